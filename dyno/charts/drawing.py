"""Pictures as lists of shapes, written as SVG for pages and files, and as PNG.

A picture is drawn separately for each width, so that text keeps its size and axes have as many labels as fit. A page
contains all widths of a picture, and its style sheet shows the width that suits the screen. Shapes name colours of
`PALETTE`. Pages define these colours as variables of the style sheet; files contain the colours.
"""

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple
from xml.sax.saxutils import escape, quoteattr

# Colours for light and dark backgrounds: Okabe and Ito's hues, darkened or lightened for text and lines on these.
PALETTE: Mapping[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e6e9ec"),
    "faint": ("#59636e", "#a1abb5"),
    "paper": ("#ffffff", "#14181c"),
    "line": ("#d5dbe1", "#39424c"),
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#b85000", "#e69f00"),
    "green": ("#007a58", "#2fc299"),
    "purple": ("#a0528a", "#dd94c6"),
}
Colour = Literal["ink", "faint", "paper", "line", "blue", "orange", "green", "purple"]
Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

WIDTHS = {"narrow": 320, "medium": 704, "wide": 1120}  # key: class in the style sheet
FILE_WIDTH = 704
_PADDING = 12.0  # around a picture in a file
TEXT = 12.0  # pixels
LINE_HEIGHT = 18.0
_HEADING = 15.0
_PNG_DENSITY, _FINER = 2, 2  # pixels of a PNG per unit, and the supersampling factor
_NARROW, _WIDE = frozenset("fijlrtI.,:;|'!()[]{}/- "), frozenset("mwMW%@…—×±→")
_SUBSTITUTES = str.maketrans({"µ": "u", "×": "x", "±": "+-", "–": "-", "…": "...", "→": "to"})


def text_width(text: str, size: float = TEXT) -> float:
    """The width of a text in DejaVu Sans, which is wider than the fonts that most systems use."""
    return size * math.fsum(map(_advance, text))


def _advance(character: str) -> float:
    if character in _NARROW:
        return 0.41
    if character in _WIDE or ord(character) > 0x2000:
        return 1.0
    return 0.79 if character.isupper() else 0.64


def fitting(text: str, width: float, size: float = TEXT) -> str:
    """The text, shortened if it is wider than `width`."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def wrapped(text: str, width: float, size: float = TEXT) -> list[str]:
    """The text in lines of at most `width`; words wider than a line are shortened."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [fitting(line, width, size) for line in lines]


def box(x: float, y: float, width: float, height: float) -> list[Point]:
    """The corners of a rectangle."""
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


class Stroke(NamedTuple):
    """One or several polylines."""

    lines: Sequence[Sequence[Point]]
    colour: Colour
    width: float = 1.0
    dash: Sequence[float] = ()
    opacity: float = 1.0
    title: str = ""


class Area(NamedTuple):
    """A filled polygon."""

    corners: Sequence[Point]
    colour: Colour
    opacity: float = 1.0
    title: str = ""


class Dots(NamedTuple):
    """Filled circles of one radius."""

    centres: Sequence[Point]
    radius: float
    colour: Colour
    opacity: float = 1.0
    title: str = ""


class Label(NamedTuple):
    """A text whose baseline is at `y`."""

    x: float
    y: float
    text: str
    anchor: Anchor
    colour: Colour
    size: float
    bold: bool

    @property
    def left(self) -> float:
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return self.x - share * text_width(self.text, self.size)


Shape = Stroke | Area | Dots | Label


def _moved(shape: Shape, right: float, down: float) -> Shape:
    def moved(points: Sequence[Point]) -> Sequence[Point]:
        return [(x + right, y + down) for x, y in points]

    if isinstance(shape, Label):
        return shape._replace(x=shape.x + right, y=shape.y + down)
    if isinstance(shape, Stroke):
        return shape._replace(lines=[*map(moved, shape.lines)])
    if isinstance(shape, Area):
        return shape._replace(corners=moved(shape.corners))
    return shape._replace(centres=moved(shape.centres))


class Canvas:
    """Collects the shapes of a picture of one width. The drawing function sets `height`.

    Titles of shapes are tooltips. A narrow canvas leaves them out, because narrow screens have no pointer.
    """

    def __init__(self, width: float) -> None:
        self.width, self.height = width, 0.0
        self.shapes: list[Shape] = []

    @property
    def is_narrow(self) -> bool:
        return self.width <= WIDTHS["narrow"]

    def add(self, shape: Shape) -> None:
        self.shapes.append(shape)

    def write(
        self,
        x: float,
        y: float,
        text: str,
        anchor: Anchor = "start",
        *,
        colour: Colour = "faint",
        bold: bool = False,
        size: float = TEXT,
    ) -> None:
        self.shapes.append(Label(x, y, text, anchor, colour, size, bold))

    def place(self, inner: "Canvas", right: float, down: float) -> None:
        """Add the shapes of another canvas, moved to the right and down."""
        self.shapes += [_moved(shape, right, down) for shape in inner.shapes]

    def paragraph(self, y: float, text: str, *, colour: Colour = "faint") -> float:
        """Write the text in lines below `y`. Returns the y of their lower end."""
        for line in wrapped(text, self.width):
            y += LINE_HEIGHT
            self.write(0, y - 4, line, colour=colour)
        return y


@dataclass(frozen=True)
class Picture:
    """A picture of any width: `draw` draws it on a canvas. Templates write it as SVG in all `widths`.

    `description`: a text in files for screen readers. A page has a table beside the picture instead.
    """

    title: str
    draw: Callable[[Canvas], None]
    description: str = ""
    widths: Mapping[str, int] = field(default_factory=WIDTHS.copy)

    def on(self, width: float) -> Canvas:
        canvas = Canvas(width)
        self.draw(canvas)
        return canvas

    def __html__(self) -> str:
        return "".join(self._in_page(name, self.on(width)) for name, width in self.widths.items())

    def _in_page(self, name: str, canvas: Canvas) -> str:
        size = f'width="{canvas.width:g}" height="{canvas.height:g}" viewBox="0 0 {canvas.width:g} {canvas.height:g}"'
        head = f'<svg class="picture {name}" {size} role="img"><title>{_xml(self.title)}</title>'
        shapes = (_markup(shape, "var(--{})".format, has_title=not canvas.is_narrow) for shape in canvas.shapes)
        return f"{head}{''.join(shapes)}</svg>"

    def svg(self) -> str:
        """The picture as a file with a heading. It is dark if the viewer's system prefers dark colours."""
        canvas, heading = self._file()
        (width, height), top = _size(canvas, heading), _top(heading)
        size = f'width="{width:g}" height="{height:g}" viewBox="{-_PADDING:g} {-top:g} {width:g} {height:g}"'
        named = 'aria-labelledby="title desc"' if self.description else 'aria-labelledby="title"'
        family = f'font-family="system-ui, sans-serif" font-size="{TEXT:g}"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {named} {family}>',
            f'<title id="title">{_xml(self.title)}</title>',
            f'<desc id="desc">{_xml(self.description)}</desc>' if self.description else "",
            f"<style>{_dark_style()}</style>",
            f'<rect x="{-_PADDING:g}" y="{-top:g}" width="100%" height="100%" fill="{PALETTE["paper"][0]}"/>',
            *(_markup(shape, _light, has_title=True) for shape in (*heading, *canvas.shapes)),
        ]
        return f"{''.join(parts)}</svg>"

    def png(self) -> bytes:
        """The picture in light colours, at twice the size of the SVG. Needs Pillow."""
        return _raster(*self._file())

    def _file(self) -> tuple[Canvas, list[Label]]:
        """The canvas with the picture, and the lines of the heading above it."""
        canvas = self.on(FILE_WIDTH - 2 * _PADDING)
        lines = wrapped(self.title, canvas.width, _HEADING)
        return canvas, [
            Label(0, -8 - 20.0 * (len(lines) - number - 1), line, "start", "ink", _HEADING, True)
            for number, line in enumerate(lines)
        ]


def _top(heading: Sequence[Label]) -> float:
    """The height of the heading, with the padding above it."""
    return _PADDING + 8 + 20.0 * len(heading)


def _size(canvas: Canvas, heading: Sequence[Label]) -> tuple[float, float]:
    return canvas.width + 2 * _PADDING, canvas.height + _top(heading) + _PADDING


def _light(colour: str) -> str:
    return PALETTE[colour][0]


def _dark_style() -> str:
    """CSS rules that override the light colours in the shapes' attributes."""
    rules = (
        f"[{attribute}='{light}']{{{attribute}:{dark}}}"
        for attribute in ("fill", "stroke")
        for light, dark in PALETTE.values()
    )
    return f"@media (prefers-color-scheme:dark){{{''.join(rules)}}}"


def _xml(text: str) -> str:
    """The text, escaped for an element. XML can't contain control characters, even escaped ones."""
    return escape("".join(character if character.isprintable() else "\ufffd" for character in text))


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{_short(x)} {_short(y)}" for x, y in points)


def _markup(shape: Shape, colour: Callable[[str], str], *, has_title: bool) -> str:
    """The shape as an element of SVG."""
    if isinstance(shape, Label):
        weight = ' font-weight="600"' if shape.bold else ""
        size = "" if shape.size == TEXT else f' font-size="{shape.size:g}"'
        anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
        place = f'x="{_short(shape.x)}" y="{_short(shape.y)}"{anchor}'
        return f'<text {place} fill="{colour(shape.colour)}"{size}{weight}>{_xml(shape.text)}</text>'
    name, attributes = _element(shape, colour)
    text = "".join(f" {attribute}={quoteattr(value)}" for attribute, value in attributes.items())
    title = f"<title>{_xml(shape.title)}</title>" if shape.title and has_title else ""
    return f"<{name}{text}>{title}</{name}>" if title else f"<{name}{text}/>"


def _element(shape: Stroke | Area | Dots, colour: Callable[[str], str]) -> tuple[str, dict[str, str]]:
    paint, opacity = colour(shape.colour), "" if shape.opacity == 1 else f"{shape.opacity:g}"
    if isinstance(shape, Area):
        filled = {"fill": paint} | ({"fill-opacity": opacity} if opacity else {})
        return "path", {"d": f"{_path(shape.corners)}Z", **filled}
    if isinstance(shape, Dots) and len(shape.centres) == 1:
        [(x, y)] = shape.centres
        filled = {"fill": paint} | ({"fill-opacity": opacity} if opacity else {})
        return "circle", {"cx": _short(x), "cy": _short(y), "r": f"{shape.radius:g}", **filled}
    drawn = {"fill": "none", "stroke": paint} | ({"stroke-opacity": opacity} if opacity else {})
    if isinstance(shape, Dots):  # lines of length 0 with round ends; circles take ten times as many bytes
        path = "".join(f"M{_short(x)} {_short(y)}h0" for x, y in shape.centres)
        return "path", {"d": path, **drawn, "stroke-width": f"{2 * shape.radius:g}", "stroke-linecap": "round"}
    dash = {"stroke-dasharray": " ".join(f"{part:g}" for part in shape.dash)} if shape.dash else {}
    return "path", {"d": "".join(map(_path, shape.lines)), **drawn, "stroke-width": f"{shape.width:g}", **dash}


def _raster(canvas: Canvas, heading: Sequence[Label]) -> bytes:
    from PIL import Image, ImageDraw

    scale, paper = _PNG_DENSITY * _FINER, PALETTE["paper"][0]
    width, height = (math.ceil(length) * scale for length in _size(canvas, heading))
    image = Image.new("RGB", (width, height), paper)
    pen = _Pen(ImageDraw.Draw(image), scale, _top(heading))
    for shape in (*heading, *canvas.shapes):
        pen.draw(shape)
    file = io.BytesIO()
    image.reduce(_FINER).save(file, "PNG", optimize=True)
    return file.getvalue()


class _Pen:
    """Draws shapes on an image of Pillow."""

    def __init__(self, draw: Any, scale: int, top: float) -> None:
        self._draw, self._scale, self._top = draw, scale, top

    def draw(self, shape: Shape) -> None:
        if isinstance(shape, Label):
            self._write(shape)
            return
        colour = _mixed(shape.colour, shape.opacity)
        if isinstance(shape, Area):
            self._draw.polygon(self._places(shape.corners), fill=colour)
        elif isinstance(shape, Dots):
            radius = shape.radius * self._scale
            for x, y in self._places(shape.centres):
                self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
        else:
            width = max(1, round(shape.width * self._scale))
            for line in shape.lines:
                for part in _dashes(line, shape.dash) if shape.dash else [line]:
                    self._draw.line(self._places(part), fill=colour, width=width, joint="curve")

    def _places(self, points: Sequence[Point]) -> list[Point]:
        return [((x + _PADDING) * self._scale, (y + self._top) * self._scale) for x, y in points]

    def _write(self, label: Label) -> None:
        [place] = self._places([(label.x, label.y)])
        face = font(round(label.size * self._scale))
        text = label.text if face.getname()[0] == "DejaVu Sans" else label.text.translate(_SUBSTITUTES)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[label.anchor]
        stroke = self._scale // 4 if label.bold else 0
        self._draw.text(place, text, fill=_mixed(label.colour, 1.0), font=face, anchor=anchor, stroke_width=stroke)


def font(size: int) -> Any:
    """DejaVu Sans if the system has it; otherwise Pillow's own font, which lacks some characters."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


def _mixed(colour: str, opacity: float) -> tuple[int, ...]:
    """The light colour, mixed with the background's colour according to `opacity`."""
    paint, paper = (_channels(PALETTE[name][0]) for name in (colour, "paper"))
    return tuple(round(opacity * a + (1 - opacity) * b) for a, b in zip(paint, paper, strict=True))


def _channels(colour: str) -> Iterator[int]:
    return (int(colour[start : start + 2], 16) for start in (1, 3, 5))


def _dashes(line: Sequence[Point], pattern: Sequence[float]) -> Iterator[Sequence[Point]]:
    """The dashes of a polyline, by a pattern of lengths of dashes and gaps."""
    number, left = 0, pattern[0]
    for (x, y), (x_end, y_end) in pairwise(line):
        length, done = math.hypot(x_end - x, y_end - y), 0.0
        while done < length:
            step = min(left, length - done)
            if number % 2 == 0:
                shares = (done / length, (done + step) / length)
                yield [(x + share * (x_end - x), y + share * (y_end - y)) for share in shares]
            done, left = done + step, left - step
            if left <= 1e-9:
                number += 1
                left = pattern[number % len(pattern)]

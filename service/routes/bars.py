"""A comparison as a picture: one bar for each result, its interval as a whisker, what is said of it beside it.

Plain SVG without a script, a style sheet or a background: text has a contrast of 4.5 with white and with black, bars
of 3.9, and no meaning hangs on a colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from dyno.formatting import format_quantity
from dyno.models.comparison import Compared, Comparison, Ratio

WIDTH, LEFT, RIGHT = 960, 270, 270  # of all, of the names, of what is said
ROW, TOP, BOTTOM, BAR = 52, 64, 48, 22
LOG_FROM = 20.0  # times between the smallest and the largest: from here a linear bar would be a sliver
COLOURS = ("#3182bd", "#c8641e", "#2b8a6b", "#a9609f", "#8a7a1f")
INK, FAINT = "#767676", "#a0a0a0"
NAME_LENGTH = 32


@dataclass(frozen=True)
class Axis:
    """`place(value)` is the x of a value; `ticks` are round values; `start` is where bars begin."""

    start: float
    end: float
    log: bool
    ticks: Sequence[float]

    def place(self, value: float) -> float:
        low, high, at = self.start, self.end, min(max(value, self.start), self.end)
        share = math.log(at / low) / math.log(high / low) if self.log else (at - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)


def drawn(comparison: Comparison) -> str:
    """The SVG, as text."""
    results = comparison.results
    height = TOP + ROW * len(results) + BOTTOM
    root = ElementTree.Element(
        "svg",
        {
            **{"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {height}", "width": str(WIDTH)},
            **{"height": str(height), "role": "img", "aria-labelledby": "title desc"},
            **{"font-family": "system-ui, sans-serif", "font-size": "13", "fill": INK},
        },
    )
    ElementTree.SubElement(root, "title", {"id": "title"}).text = _title(comparison)
    ElementTree.SubElement(root, "desc", {"id": "desc"}).text = " ".join(_sentence(comparison, r) for r in results)
    _text(root, 16, 26, _title(comparison), **{"font-size": "16"})
    axis = axis_for([bound for each in results for bound in (each.value, each.low, each.high) if bound is not None])
    better = f"{comparison.better} is better"
    _text(root, 16, 46, f"{better}; whiskers: {100 * comparison.confidence:.4g} % intervals" + ", log scale" * axis.log)
    _draw_ticks(root, axis, comparison.unit, height - BOTTOM)
    for place, each in enumerate(results):
        _draw_row(root, axis, each, TOP + ROW * place, COLOURS[place % len(COLOURS)], comparison.unit)
    return ElementTree.tostring(root, encoding="unicode")


def axis_for(values: Sequence[float]) -> Axis:
    """From zero, or where all values are positive and lie far apart, logarithmic from the power of ten below them."""
    positive = [value for value in values if value > 0]
    highest, lowest = max(values, default=1.0), min(values, default=0.0)
    if positive and lowest >= 0 and highest / min(positive) >= LOG_FROM:
        first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(highest))
        step = math.ceil((last - first) / 8)
        ticks = [10.0**power for power in range(first, last + 1, step)]
        return Axis(10.0**first, 10.0**last, log=True, ticks=ticks)
    low, high = min(lowest, 0.0), max(highest, 0.0)
    step_size = _round_step((high - low) / 5 or 0.2)
    first, last = math.floor(low / step_size), math.ceil(high / step_size) or 1
    return Axis(first * step_size, last * step_size, log=False, ticks=[k * step_size for k in range(first, last + 1)])


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))


def _draw_ticks(root: ElementTree.Element, axis: Axis, unit: str, bottom: int) -> None:
    for tick in axis.ticks:
        x = f"{axis.place(tick):.1f}"
        line = {"x1": x, "x2": x, "y1": str(TOP - 4), "y2": str(bottom), "stroke": FAINT, "stroke-opacity": "0.4"}
        ElementTree.SubElement(root, "line", line)
        _text(
            root,
            axis.place(tick),
            bottom + 18,
            format_quantity(tick, unit),
            **{"text-anchor": "middle", "font-size": "11"},
        )


def _draw_row(root: ElementTree.Element, axis: Axis, each: Compared, top: int, colour: str, unit: str) -> None:
    name, middle = _name(each), top + ROW / 2
    _text(root, 16, middle - 3, name)
    _text(root, 16, middle + 13, ", ".join((each.framework, _of(each), each.verdict)), **{"font-size": "11"})
    said_at = WIDTH - RIGHT + 16
    verdict = f" {each.ratio.verdict}" if each.ratio else ""
    _text(root, said_at, middle - 3, format_quantity(each.value, unit) + verdict)
    _text(root, said_at, middle + 13, _said(each.ratio), **{"font-size": "11"})
    if each.value is None:
        return
    start, end = sorted((axis.place(0.0), axis.place(each.value)))
    bar = {"x": f"{start:.1f}", "y": f"{middle - BAR / 2:.1f}", "width": f"{end - start:.1f}", "height": str(BAR)}
    ElementTree.SubElement(root, "rect", {**bar, "fill": colour, "rx": "2"})
    if each.low is not None and each.high is not None:
        _draw_whisker(root, axis.place(each.low), axis.place(each.high), middle)


def _draw_whisker(root: ElementTree.Element, low: float, high: float, y: float) -> None:
    path = f"M{low:.1f} {y - 6:.1f}V{y + 6:.1f}M{low:.1f} {y:.1f}H{high:.1f}M{high:.1f} {y - 6:.1f}V{y + 6:.1f}"
    for stroke, width in (("#ffffff", "4"), ("#202020", "2")):  # seen on the bar and beside it, on light and dark
        ElementTree.SubElement(root, "path", {"d": path, "stroke": stroke, "stroke-width": width, "fill": "none"})


def _text(root: ElementTree.Element, x: float, y: float, text: str, **attributes: str) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    ElementTree.SubElement(root, "text", {**place, **attributes}).text = _printable(text)


def _title(comparison: Comparison) -> str:
    return _printable(f"{comparison.workload}: {comparison.metric} in {comparison.unit}")


def _sentence(comparison: Comparison, each: Compared) -> str:
    interval = ""
    if each.low is not None and each.high is not None:
        interval = f" ({format_quantity(each.low, comparison.unit)} to {format_quantity(each.high, comparison.unit)})"
    figure = f"{format_quantity(each.value, comparison.unit)}{interval}"
    said = f"{_said(each.ratio)}, {each.ratio.verdict}" if each.ratio else _said(None)
    return _printable(f"{_name(each)}, {each.framework}: {figure}; {said}; {each.verdict}.")


def _said(ratio: Ratio | None) -> str:
    if ratio is None:
        return "what the others are compared with"
    if ratio.value is None:
        return "no ratio"
    interval = f" ({ratio.low:.4g} to {ratio.high:.4g})" if ratio.low is not None and ratio.high is not None else ""
    return f"{ratio.value:.4g} times as good{interval}"


def _of(each: Compared) -> str:
    return each.arm or each.job[-8:]


def _name(each: Compared) -> str:
    name = each.device_model or each.device
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def _printable(text: str) -> str:
    """XML can't hold control characters, not even escaped."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)

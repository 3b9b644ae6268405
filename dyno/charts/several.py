"""Pictures of several results: bars, ratios, and series over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dyno.charts.axes import (
    ARROWS,
    EDGE,
    TOP,
    Axis,
    axis_of,
    axis_of_ratios,
    axis_of_times,
    both,
    draw_across,
    draw_interval,
    draw_up,
    in_words,
    left_of,
    legend,
    legend_of_verdicts,
    line_sample,
    mark,
    range_in_words,
    write_in_row,
)
from dyno.charts.drawing import LINE_HEIGHT, Area, Canvas, Colour, Dots, Picture, Stroke, box, fitting, text_width
from dyno.formatting import format_quantity, ratio_in_words
from dyno.models.comparison import Comparison, Ratio
from dyno.models.history import HistoryPoint, ResultSeries


@dataclass(frozen=True)
class Bar:
    """A named figure with its interval and the figures of its runs. `text` follows the name, for example a verdict."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    by_run: Sequence[float] = ()
    text: str = ""

    @property
    def bounds(self) -> tuple[float, float] | None:
        return both(self.low, self.high)


class ReferenceLine(NamedTuple):
    """A value marked by a line across all rows."""

    value: float
    name: str


def bars(
    title: str,
    rows: Sequence[Bar],
    name: str,
    unit: str = "1",
    *,
    reference: ReferenceLine | None = None,
    notes: Sequence[str] = (),
    description: str = "",
) -> Picture:
    """A bar from zero for each row, with the interval as a whisker and a small dot for each run.

    The axis is logarithmic if the figures are far apart.
    """

    def draw(canvas: Canvas) -> None:
        _draw_bars(canvas, rows, name, unit, reference, notes)

    return Picture(title, draw, description)


def _draw_bars(
    canvas: Canvas,
    rows: Sequence[Bar],
    name: str,
    unit: str,
    reference: ReferenceLine | None,
    notes: Sequence[str],
) -> None:
    values = [value for row in rows for value in (row.value, *row.by_run) if value is not None]
    values += [reference.value] if reference else []
    bounds = [bound for row in rows for bound in row.bounds or ()]
    along = axis_of(values or [1.0], 1, canvas.width - EDGE, name, unit, bounds=bounds, from_zero=True)
    if along.log:
        along = replace(along, title=f"{along.title}, log scale")
    y, arrows = 0.0, False
    for row in rows:
        y = _name_row(canvas, y, row)
        x = along.place(0.0)
        canvas.add(Stroke([[(x, y - 3), (x, y + 17)]], "faint"))
        if row.value is not None:
            arrows |= _draw_bar(canvas, along, row, y, unit)
        if reference:
            x = along.place(reference.value)
            canvas.add(Stroke([[(x, y - 3), (x, y + 17)]], "ink", 1.5, dash=(4, 3), title=reference.name))
        y += 28 if row.by_run else 20
    y = draw_across(canvas, along, y)
    for note in [*([ARROWS] if arrows else []), *notes]:
        y = canvas.paragraph(y, note)
    canvas.height = y + 4


def _name_row(canvas: Canvas, y: float, row: Bar) -> float:
    """Write the name and the text, on one line if they fit. Returns the y of their lower end."""
    if not row.text or text_width(row.name) + text_width(row.text) + 24 <= canvas.width:
        canvas.write(0, y + 16, fitting(row.name, canvas.width), colour="ink")
        if row.text:
            canvas.write(canvas.width, y + 16, row.text, "end")
        return y + 22
    y = canvas.paragraph(y, row.name, colour="ink")
    return canvas.paragraph(y, row.text) + 4


def _draw_bar(canvas: Canvas, along: Axis, row: Bar, y: float, unit: str) -> bool:
    """Draw the bar, 14 pixels high, below `y`. Returns whether the bar's interval ends beyond the axis."""
    assert row.value is not None, "checked by who draws the rows"
    start, end = sorted((along.place(0.0), along.place(row.value)))
    title = f"{row.name}: {format_quantity(row.value, unit)}"
    canvas.add(Area(box(start, y, max(1.0, end - start), 14), "blue", opacity=0.45, title=title))
    for number, value in enumerate(row.by_run):
        title = f"run {number + 1}: {format_quantity(value, unit)}"
        canvas.add(Dots([(along.place(value), y + 19)], 2.5, "blue", title=title))
    if row.bounds is None:
        return False
    title = f"interval: {range_in_words(row.bounds, unit)}"
    arrows = draw_interval(canvas, along, row.bounds, y + 7, "ink", 2, title=title)
    ends = [along.place(bound) for bound in row.bounds if along.holds(bound)]
    canvas.add(Stroke([[(x, y + 2), (x, y + 12)] for x in ends], "ink", 2))
    return arrows


def comparison(compared: Comparison, names: Sequence[str], by_run: Sequence[Sequence[float]] = ()) -> Picture:
    """A bar for each result, named by `names`, with its interval and the dots of its runs."""
    rows = [
        Bar(name, result.value, result.low, result.high, by_run[number] if by_run else (), _said(compared, number))
        for number, (result, name) in enumerate(zip(compared.results, names, strict=True))
    ]
    words = f"{in_words(compared.metric)} ({compared.better} is better)"
    sentences = (f"{row.name}: {row.text}." for row in rows)
    note = f"Whiskers: {100 * compared.confidence:.4g} % intervals."
    title = f"{compared.workload}: {compared.metric} of each result"
    return bars(title, rows, words, compared.unit, notes=[note], description=" ".join(sentences))


def _said(compared: Comparison, number: int) -> str:
    """A text such as `1.93 GFLOP/s, 1.93 times as fast, FASTER, trusted`."""
    result = compared.results[number]
    ratio = ratio_text(result.ratio, ratio_in_words(compared.unit)) if result.ratio else "base"
    return ", ".join((format_quantity(result.value, compared.unit), ratio, result.verdict))


def ratio_text(ratio: Ratio, words: str = "") -> str:
    """A text such as `1.93 times as fast (1.9 to 1.95), FASTER`."""
    if ratio.value is None:
        return f"no ratio: {ratio.reason}, {ratio.verdict}" if ratio.reason else f"no ratio, {ratio.verdict}"
    interval = f" ({ratio.low:.4g} to {ratio.high:.4g})" if ratio.low is not None and ratio.high is not None else ""
    return f"{ratio.value:.4g}{f' {words}' if words else ''}{interval}, {ratio.verdict}"


def ratios(named_ratios: Sequence[tuple[str, Ratio]], margin: float, name: str) -> Picture | None:
    """Ratios with their intervals on one logarithmic axis; a band marks the margin for equal results."""
    rows = [
        Bar(named, ratio.value, ratio.low, ratio.high, text=ratio_text(ratio))
        for named, ratio in named_ratios
        if ratio.value and ratio.value > 0
    ]
    if not rows:
        return None
    title = "the ratios with their intervals, on a logarithmic axis"
    return Picture(title, lambda canvas: _draw_ratios(canvas, rows, margin, name))


def _draw_ratios(canvas: Canvas, rows: Sequence[Bar], margin: float, name: str) -> None:
    values = [row.value for row in rows if row.value is not None]
    bounds = [bound for row in rows for bound in row.bounds or ()]
    within = [1 / (1 + margin), 1 + margin]
    along = axis_of_ratios([*values, *within], EDGE, canvas.width - EDGE, f"{name}, log scale", bounds)
    low, high = map(along.place, within)
    arrows, y = False, 0.0
    for row in rows:
        y = _name_row(canvas, y, row) + 8
        corners = box(low, y - 10, high - low, 20)
        canvas.add(Area(corners, "green", opacity=0.2, title=f"within {100 * margin:g} %: the same"))
        canvas.add(Stroke([[(along.place(1.0), y - 10), (along.place(1.0), y + 10)]], "faint"))
        if row.bounds:
            title = f"interval: {row.bounds[0]:.4g} to {row.bounds[1]:.4g}"
            arrows |= draw_interval(canvas, along, row.bounds, y, "blue", 6, opacity=0.45, title=title)
        canvas.add(Dots([(along.place(row.value or 1.0), y)], 5, "blue", title=f"{row.name}: {row.value:.4g}"))
        y += 12
    y = draw_across(canvas, along, y)
    if arrows:
        y = canvas.paragraph(y, ARROWS)
    canvas.height = y + 4


def trend(series: ResultSeries, job: str) -> Picture | None:
    """The results of a series as a small line for a row of a table. The dot marks the result of `job`."""
    values = [_value(point) for point in series.points]
    if len(values) < 2:
        return None
    lowest, highest = (format_quantity(value, series.unit) for value in (min(values), max(values)))

    def draw(canvas: Canvas) -> None:
        canvas.height = 24
        up = axis_of(values, 21, 3, "", log=False)
        along = Axis(0, len(values) - 1, 4, canvas.width - 4, "", ())
        places = {p.job: (along.place(n), up.place(values[n])) for n, p in enumerate(series.points)}
        canvas.add(Stroke([[*places.values()]], "blue", 2))
        if job in places:
            canvas.add(Dots([places[job]], 3, "blue"))

    return Picture(f"{len(values)} results, {lowest} to {highest}", draw, widths={"trend": 96})


def history(series: ResultSeries, lines: Mapping[str, float]) -> Picture | None:
    """The points of a series over time with their intervals. Vertical lines mark changes and new software.

    `lines`: values of baselines by name, drawn as horizontal lines. Each value is the value of a point.
    """
    if len(series.points) < 2:
        return None
    title = f"{series.workload}: {series.metric} over time"
    return Picture(title, lambda canvas: _draw_history(canvas, series, lines))


def _value(point: HistoryPoint) -> float:
    return point.adjusted_value or point.value


def _bounds(point: HistoryPoint) -> tuple[float, float] | None:
    """The point's interval, adjusted to one clock like the point's value."""
    bounds, share = both(point.low, point.high), _value(point) / point.value if point.value else 1.0
    return (bounds[0] * share, bounds[1] * share) if bounds else None


def _draw_history(canvas: Canvas, series: ResultSeries, lines: Mapping[str, float]) -> None:
    top = TOP + LINE_HEIGHT * bool(series.changes or len(series.contexts) > 1)
    bottom = top + 150
    bounds = [bound for point in series.points for bound in _bounds(point) or ()]
    name = f"{in_words(series.metric)} ({series.better} is better)"
    up = axis_of([_value(point) for point in series.points], bottom, top, name, series.unit, bounds=bounds)
    right = canvas.width - EDGE
    along = axis_of_times([point.time for point in series.points], left_of(up) + 8, right)
    draw_up(canvas, up, right, title_y=TOP - 14)
    for baseline, value in lines.items():
        y = up.place(value)
        canvas.add(Stroke([[(along.start, y), (right, y)]], "purple", 1.5, dash=(8, 4), title=f"baseline {baseline}"))
    rules = [
        (change.time.timestamp(), f"× {change.ratio:.3g}", f"{change.ratio:.3g} times as good from here")
        for change in series.changes
    ]
    rules += [(context.since.timestamp(), "new software", "new software") for context in series.contexts[1:]]
    _draw_rules(canvas, along, sorted(rules), (top - 6, bottom))
    arrows = _draw_points(canvas, series, along, up)
    y = draw_across(canvas, along, bottom + 6)
    y = legend_of_verdicts(canvas, y, [point.verdict for point in series.points])
    if lines:
        y = legend(canvas, y, [(line_sample(canvas, "purple", 1.5, (8, 4)), f"baseline {', '.join(lines)}")])
    if arrows:
        y = canvas.paragraph(y, ARROWS)
    canvas.height = y + 4


def _draw_rules(
    canvas: Canvas, along: Axis, rules: Sequence[tuple[float, str, str]], ends: tuple[float, float]
) -> None:
    """Draw vertical lines. Write the text of each line above it if there is room."""
    (top, bottom), texts = ends, list[tuple[float, str, Colour]]()
    for moment, text, title in rules:
        x, colour = along.place(moment), _colour_of(text)
        dash = () if colour == "orange" else (3, 3)
        canvas.add(Stroke([[(x, top), (x, bottom)]], colour, 1.5, dash=dash, title=title))
        texts.append((x, text, colour))
    write_in_row(canvas, top - 4, texts)


def _colour_of(text: str) -> Colour:
    return "orange" if text.startswith("×") else "faint"


def _draw_points(canvas: Canvas, series: ResultSeries, along: Axis, up: Axis) -> bool:
    """Draw the points in front of their intervals. Returns whether an interval ends beyond the axis."""
    arrows = False
    for point in series.points:
        if bounds := _bounds(point):
            x = along.place(point.time.timestamp())
            arrows |= draw_interval(canvas, up, bounds, x, "blue", 2, opacity=0.5)
    for point in series.points:
        x, y = along.place(point.time.timestamp()), up.place(_value(point))
        title = f"{format_quantity(_value(point), series.unit)}, {point.verdict}, {point.time:%Y-%m-%d %H:%M}"
        mark(canvas, x, y, point.verdict, "blue", title)
    return arrows

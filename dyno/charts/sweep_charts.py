"""Pictures of a sweep: curves for a numeric axis, a heat map for two numeric axes, or bars.

No information depends on colour alone: lines also differ in their dashes, and marks show the verdicts.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from dyno.charts.axes import (
    ARROWS,
    EDGE,
    TOP,
    Axis,
    axis_of,
    axis_of_numbers,
    draw_across,
    draw_interval,
    draw_up,
    in_words,
    left_of,
    legend,
    legend_of_verdicts,
    line_sample,
    mark,
    write_in_row,
)
from dyno.charts.drawing import LINE_HEIGHT, Area, Canvas, Colour, Picture, Stroke, box, fitting, text_width
from dyno.charts.several import Bar, ReferenceLine, bars, ratio_text
from dyno.formatting import format_quantity, scaled_unit
from dyno.models import sweep as sweep_model
from dyno.models.sweep import Sweep, SweepPoint

Kind = Literal["curve", "heatmap", "bars"]
_COLOURS: Sequence[Colour] = ("blue", "orange", "green", "purple", "ink")
_DASHES: Sequence[Sequence[float]] = ((), (6, 4), (2, 3), (9, 3, 2, 3))
_MOST_IN_LEGEND = 14
_MOST_NAMED = 6
_CELL_HEIGHT = 44.0
_PALEST, _DEEPEST = 0.06, 0.45  # opacity of cells: text stays readable on the deepest colour
INTERVALS = "Thick: the 95 % interval of the runs. Thin: where the next result falls."


def varying(sweep: Sweep) -> Mapping[str, Sequence[JsonValue]]:
    """The axes with more than one value."""
    return {axis: values for axis, values in sweep.axes.items() if len(values) > 1}


def kind_for(sweep: Sweep) -> Kind:
    """A heat map for two numeric axes, bars without a numeric axis, and curves otherwise."""
    axes = varying(sweep)
    numeric = [axis for axis in axes if is_numeric(axes[axis])]
    if len(axes) == 2 and len(numeric) == 2:
        return "heatmap"
    return "curve" if numeric else "bars"


def cannot_draw(kind: Kind, sweep: Sweep) -> str | None:
    """The reason why the axes don't allow this kind of picture; None if they allow this kind."""
    axes = varying(sweep)
    if kind == "heatmap" and len(axes) != 2:
        return f"a heat map needs two axes with several values; this sweep has {len(axes)}"
    if kind == "curve" and not any(is_numeric(values) for values in axes.values()):
        return "a curve needs an axis with several numbers; this sweep has none"
    return None


def is_numeric(values: Sequence[JsonValue]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def draw(sweep: Sweep, kind: Kind | None = None) -> Picture:
    """The picture. `kind`: a kind that the axes allow; None for the default of `kind_for`."""
    kind = kind or kind_for(sweep)
    if kind == "bars":
        return _bars(sweep)
    drawn = {"curve": _draw_curves, "heatmap": _draw_heat_map}[kind]
    return Picture(_title(sweep), lambda canvas: drawn(canvas, sweep))


def _title(sweep: Sweep) -> str:
    drawn = sum(1 for point in sweep.points if _value(sweep, point) is not None)
    missing = "" if drawn == len(sweep.points) else f" ({drawn} of {len(sweep.points)} points)"
    return f"{sweep.workload}: {sweep.metric}{missing}"


def _notes(sweep: Sweep) -> list[str]:
    """A line that names the points measured on emulated devices."""
    emulated = [_name(sweep, point) for point in sweep.points if point.is_emulated]
    more = f" and {len(emulated) - _MOST_NAMED} more" if len(emulated) > _MOST_NAMED else ""
    return [f"emulated: {'; '.join(emulated[:_MOST_NAMED])}{more}"] if emulated else []


def _name(sweep: Sweep, point: SweepPoint) -> str:
    axes = varying(sweep)
    return sweep_model.in_words({axis: value for axis, value in point.values.items() if axis in axes}) or point.job


def _value(sweep: Sweep, point: SweepPoint) -> float | None:
    metric = point.metric(sweep.metric)
    return None if metric is None else metric.value


def _unit(sweep: Sweep) -> str:
    return next((metric.unit for point in sweep.points if (metric := point.metric(sweep.metric))), "1")


def _better(sweep: Sweep) -> str:
    return next((metric.better for point in sweep.points if (metric := point.metric(sweep.metric))), "higher")


def _metric(sweep: Sweep) -> str:
    return f"{in_words(sweep.metric or 'no metric')} ({_better(sweep)} is better)"


def _label(axis: str) -> str:
    return axis.removeprefix(sweep_model.PARAM)


def _draw_curves(canvas: Canvas, sweep: Sweep) -> None:
    """Draw the metric over the numeric axis with the most values; each combination of other values is one line."""
    axes = varying(sweep)
    over = max((name for name in axes if is_numeric(axes[name])), key=lambda name: len(axes[name]))
    series = _series(sweep, over)
    points = [point for line in series.values() for point in line]
    top = _legend_of_lines(canvas, [*series]) + TOP if 1 < len(series) <= _MOST_IN_LEGEND else TOP
    bottom = top + 220
    values = [value for point in points if (value := _value(sweep, point)) is not None]
    bounds = [bound for point in points for interval in _intervals(sweep, point) for bound in interval]
    up = axis_of(values or [0.0, 1.0], bottom, top, _metric(sweep), _unit(sweep), bounds=bounds)
    numbers = [_number(value) for value in axes[over]]
    along = axis_of_numbers(numbers, left_of(up) + 12, canvas.width - EDGE - 8, _label(over))
    draw_up(canvas, up, canvas.width - EDGE)
    arrows = False
    for index, line in enumerate(series.values()):
        aside = 5.0 * (index - (len(series) - 1) / 2) if len(series) <= 5 else 0.0  # so that intervals don't overlap
        arrows |= _draw_line(canvas, sweep, line, over, (along, up), index, aside)
    y = draw_across(canvas, along, bottom + 6)
    y = legend_of_verdicts(canvas, y, [point.verdict for point in points])
    unnamed = [f"{len(series)} lines: the table names them."] if len(series) > _MOST_IN_LEGEND else []
    for note in (INTERVALS, *([ARROWS] if arrows else []), *unnamed, *_notes(sweep)):
        y = canvas.paragraph(y, note)
    canvas.height = y + 4


def _series(sweep: Sweep, over: str) -> Mapping[str, Sequence[SweepPoint]]:
    """Points that have a figure, grouped by their values of all axes except `over`, and sorted by `over`."""
    axes, series = varying(sweep), dict[str, list[SweepPoint]]()
    for point in sweep.points:
        rest = {name: value for name, value in point.values.items() if name in axes and name != over}
        if over in point.values and _value(sweep, point) is not None:
            series.setdefault(sweep_model.in_words(rest), []).append(point)
    for line in series.values():
        line.sort(key=lambda point: _number(point.values[over]))
    return series


def _style(index: int) -> tuple[Colour, Sequence[float]]:
    return _COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)]


def _legend_of_lines(canvas: Canvas, names: Sequence[str]) -> float:
    styles = map(_style, range(len(names)))
    samples = [line_sample(canvas, colour, dash=dash) for colour, dash in styles]
    return legend(canvas, 0.0, list(zip(samples, names, strict=True)))


def _intervals(sweep: Sweep, point: SweepPoint) -> list[tuple[float, float]]:
    """The prediction for the next result and the interval of the runs; either may be missing."""
    metric = point.metric(sweep.metric)
    if metric is None:
        return []
    predicted = [(metric.repeat.low, metric.repeat.high)] if metric.repeat else []
    known = [(metric.low, metric.high)] if metric.low is not None and metric.high is not None else []
    return [*predicted, *known]


def _draw_line(
    canvas: Canvas,
    sweep: Sweep,
    line: Sequence[SweepPoint],
    over: str,
    axes: tuple[Axis, Axis],
    index: int,
    aside: float,
) -> bool:
    """Draw a line with its points and intervals, moved by `aside`. Returns whether an interval ends beyond the axis."""
    (along, up), (colour, dash) = axes, _style(index)
    places = [
        (along.place(_number(point.values[over])) + aside, up.place(value))
        for point in line
        if (value := _value(sweep, point)) is not None
    ]
    canvas.add(Stroke([places], colour, 1.5, dash=dash))
    arrows = False
    for point, (x, y) in zip(line, places, strict=True):
        metric = point.metric(sweep.metric)
        assert metric is not None, "only points with a value are drawn"
        if metric.repeat is not None:
            arrows |= draw_interval(canvas, up, (metric.repeat.low, metric.repeat.high), x, colour, 1)
        if metric.low is not None and metric.high is not None:
            arrows |= draw_interval(canvas, up, (metric.low, metric.high), x, colour, 4, opacity=0.5)
        title = f"{_name(sweep, point)}: {format_quantity(metric.value, metric.unit)}, {point.verdict}"
        mark(canvas, x, y, point.verdict, colour, title)
    return arrows


def _draw_heat_map(canvas: Canvas, sweep: Sweep) -> None:
    """Draw a cell for each pair of values, with the figure and the mark of the verdict. Without a result it is empty.

    If several points have the values of one cell, the cell shows the last of these points.
    """
    (across, columns), (down, lines) = varying(sweep).items()
    cells = {(_text(point, across), _text(point, down)): point for point in sweep.points}
    values = [value for point in sweep.points if (value := _value(sweep, point)) is not None]
    factor, unit = scaled_unit(max(map(abs, values), default=1.0), _unit(sweep))
    column_names, line_names = ([sweep_model.value_text(value) for value in names] for names in (columns, lines))
    left = min(max(map(text_width, line_names)), 0.3 * canvas.width) + 8
    width = (canvas.width - left) / len(columns)
    canvas.write(0, 12, fitting(f"{_metric(sweep)}, {unit}" if unit != "1" else _metric(sweep), canvas.width))
    canvas.write(0, 34, fitting(_label(down), canvas.width))
    top = 40.0
    for row, line in enumerate(reversed(line_names)):
        y = top + _CELL_HEIGHT * row
        canvas.write(left - 8, y + _CELL_HEIGHT / 2 + 4, fitting(line, left - 8), "end")
        for column, name in enumerate(column_names):
            point = cells.get((name, line))
            value = None if point is None else _value(sweep, point)
            if point is not None and value is not None:
                cell = (left + width * column, y, width - 2, _CELL_HEIGHT - 2)
                _draw_cell(canvas, cell, value / factor, _depth(value, values, _better(sweep)), point)
    y = top + _CELL_HEIGHT * len(lines)
    write_in_row(canvas, y + 14, [(left + width * (n + 0.5), name, "faint") for n, name in enumerate(column_names)])
    canvas.write(left, y + 32, fitting(_label(across), canvas.width - left))
    y = legend_of_verdicts(canvas, y + 2 * LINE_HEIGHT, [point.verdict for point in sweep.points])
    for note in ("The stronger the colour, the better.", *_notes(sweep)):
        y = canvas.paragraph(y, note)
    canvas.height = y + 4


def _depth(value: float, values: Sequence[float], better: str) -> float:
    """The opacity of a cell: the best value has the deepest colour."""
    low, high = min(values), max(values)
    share = (value - low) / (high - low) if high > low else 1.0
    return _PALEST + (_DEEPEST - _PALEST) * (share if better == "higher" else 1 - share)


def _draw_cell(
    canvas: Canvas, cell: tuple[float, float, float, float], figure: float, opacity: float, point: SweepPoint
) -> None:
    x, y, width, height = cell
    text = f"{figure:,.3g}" if abs(figure) < 1000 else f"{figure:,.0f}"
    canvas.add(Area(box(x, y, width, height), "blue", opacity=opacity, title=f"{text}, {point.verdict}"))
    if text_width(text) <= width:
        canvas.write(x + width / 2, y + 18, text, "middle", colour="ink")
    if width >= 12:
        mark(canvas, x + width / 2, y + 31, point.verdict, "ink")


def _text(point: SweepPoint, axis: str) -> str | None:
    return sweep_model.value_text(point.values[axis]) if axis in point.values else None


def _bars(sweep: Sweep) -> Picture:
    """A bar for each point: its speed-up over its base, which has the value 1; without a base, its metric."""
    rows = [_row(sweep, point) for point in sweep.points]
    if sweep.base is None:
        return bars(_title(sweep), rows, _metric(sweep), _unit(sweep), notes=_notes(sweep))
    base = sweep_model.in_words(sweep.base)
    name = f"{in_words(str(sweep.metric))}: times as good as with {base}"
    return bars(_title(sweep), rows, name, reference=ReferenceLine(1.0, base), notes=_notes(sweep))


def _row(sweep: Sweep, point: SweepPoint) -> Bar:
    name, metric, ratio = _name(sweep, point), point.metric(sweep.metric), point.ratio
    verdict = f", {point.verdict}" if point.verdict else ""
    if sweep.base is None:
        if metric is None:
            return Bar(name, None, text=str(point.status_reason or point.status))
        text = f"{format_quantity(metric.value, metric.unit)}{verdict}"
        return Bar(name, metric.value, metric.low, metric.high, text=text)
    if ratio is not None:
        return Bar(name, ratio.value, ratio.low, ratio.high, text=f"{ratio_text(ratio)}{verdict}")
    is_base = metric is not None and sweep.is_base(point)
    return Bar(name, 1.0 if is_base else None, text=f"1, the base{verdict}" if is_base else str(point.status))


def _number(value: JsonValue) -> float:
    assert isinstance(value, int | float), "checked by is_numeric"
    return float(value)

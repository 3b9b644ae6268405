"""Draw a sweep with Matplotlib, without a display: curves, a heat map, or bars.

Colours are Okabe and Ito's, which the colour-blind can tell apart. No information depends on colour alone: each series
has its own line style, and the marker shows the verdict. Only one drawing at a time: Matplotlib's settings are global.
"""

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import JsonValue

from dyno.formatting import format_quantity
from dyno.models import sweep as sweep_model
from dyno.models.result import Verdict
from service.sweeps.results import varying

Kind = Literal["curve", "heatmap", "bars"]
LOG_FROM = 20.0  # ratio of largest to smallest value: from here a linear axis would press most of them together
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_LINES = ("-", "--", "-.", ":")
_MARKERS = {Verdict.TRUSTED: "o", Verdict.INDICATIVE: "s", Verdict.UNTRUSTED: "x"}
_SIGNS = {Verdict.TRUSTED: "✓", Verdict.INDICATIVE: "~", Verdict.UNTRUSTED: "✗"}
_KEY = "✓ trusted, ~ indicative, ✗ untrusted"
_KEY_OF_CURVES = "round: trusted, square: indicative, cross: untrusted; thick: interval of the runs, thin: next result"
_MOST_IN_LEGEND = 14
_MOST_NAMED = 6
_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "dyno", "text.parse_math": False, "font.size": 9}


def kind_for(sweep: sweep_model.Sweep) -> Kind:
    """A heat map for two axes of numbers, a curve for an axis of numbers, bars for names alone."""
    axes = varying(sweep)
    numeric = [axis for axis in axes if is_numeric(axes[axis])]
    if len(axes) == 2 and len(numeric) == 2:
        return "heatmap"
    return "curve" if numeric else "bars"


def cannot_draw(kind: Kind, sweep: sweep_model.Sweep) -> str | None:
    """Why the axes don't allow this kind; None if they do."""
    axes = varying(sweep)
    if kind == "heatmap" and len(axes) != 2:
        return f"a heat map needs two axes with several values; this sweep has {len(axes)}"
    if kind == "curve" and not any(is_numeric(values) for values in axes.values()):
        return "a curve needs an axis with several numbers; this sweep has none"
    return None


def is_numeric(values: Sequence[JsonValue]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def draw(sweep: sweep_model.Sweep, kind: Kind | None, format: Literal["svg", "png"]) -> bytes:
    """The image. `kind`: one that the axes allow; None for `kind_for`."""
    import matplotlib
    from matplotlib.figure import Figure

    kind = kind or kind_for(sweep)
    draw_on = {"curve": _curve, "heatmap": _heat_map, "bars": _bars}[kind]
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=_size(kind, sweep), dpi=110, layout="constrained")
        axis = figure.subplots()
        draw_on(figure, axis, sweep)
        figure.suptitle(_title(sweep), fontsize=11)
        key = _KEY_OF_CURVES if kind == "curve" else _KEY
        figure.supxlabel("\n".join([key, *_emulated(sweep)]), fontsize=7, color="#555555")
        image = io.BytesIO()
        figure.savefig(image, format=format, metadata={"Date": None} if format == "svg" else None)
    return image.getvalue()


def _size(kind: Kind, sweep: sweep_model.Sweep) -> tuple[float, float]:
    """Width and height in inches, with room for the text of each cell or bar."""
    if kind == "bars":
        return 8, max(5, 0.3 * len(sweep.points) + 1)
    if kind == "heatmap":
        columns, lines = varying(sweep).values()
        return max(8, 0.7 * len(columns) + 2), max(5, 0.5 * len(lines) + 1.5)
    return 8, 5


def _title(sweep: sweep_model.Sweep) -> str:
    drawn = sum(1 for point in sweep.points if _value(sweep, point) is not None)
    missing = "" if drawn == len(sweep.points) else f" ({drawn} of {len(sweep.points)} points)"
    return f"{sweep.workload}: {sweep.metric}{missing}"


def _emulated(sweep: sweep_model.Sweep) -> list[str]:
    """A line that names the points whose figures are no device's speed."""
    values_in_words = [
        sweep_model.in_words(_of(point.values, varying(sweep))) or point.job
        for point in sweep.points
        if point.is_emulated
    ]
    more = f" and {len(values_in_words) - _MOST_NAMED} more" if len(values_in_words) > _MOST_NAMED else ""
    return [f"emulated: {'; '.join(values_in_words[:_MOST_NAMED])}{more}"] if values_in_words else []


def _value(sweep: sweep_model.Sweep, point: sweep_model.SweepPoint) -> float | None:
    metric = point.metric(sweep.metric)
    return None if metric is None else metric.value


def _unit(sweep: sweep_model.Sweep) -> str:
    return next((metric.unit for point in sweep.points if (metric := point.metric(sweep.metric))), "1")


def _label(axis: str) -> str:
    return axis.removeprefix(sweep_model.PARAM)


def _curve(figure: Any, axis: Any, sweep: sweep_model.Sweep) -> None:
    """The metric over the axis with the most numbers; a line for each combination of the others."""
    axes = varying(sweep)
    over = max((name for name in axes if is_numeric(axes[name])), key=lambda name: len(axes[name]))
    series: dict[str, list[sweep_model.SweepPoint]] = {}
    for point in sweep.points:
        rest = {name: value for name, value in point.values.items() if name in axes and name != over}
        if over in point.values and _value(sweep, point) is not None:
            series.setdefault(sweep_model.in_words(rest), []).append(point)
    for index, (name, points) in enumerate(series.items()):
        points.sort(key=lambda point: _number(point.values[over]))
        colour = _COLOURS[index % len(_COLOURS)]
        xs = [_number(point.values[over]) for point in points]
        style = {"color": colour, "linestyle": _LINES[index % len(_LINES)], "linewidth": 1.2}
        axis.plot(xs, [_value(sweep, point) for point in points], label=name or None, **style)
        for x, point in zip(xs, points, strict=True):
            _mark(axis, sweep, point, x, colour)
    powers = sorted({_number(value) for value in axes[over]})
    if all(value > 0 and math.log2(value).is_integer() for value in powers):
        axis.set_xscale("log", base=2)
        axis.set_xticks(powers, [f"{value:g}" for value in powers])
        axis.minorticks_off()
    axis.set_xlabel(_label(over))
    _scale_values(axis, sweep)
    if 1 < len(series) <= _MOST_IN_LEGEND:
        axis.legend()


def _mark(axis: Any, sweep: sweep_model.Sweep, point: sweep_model.SweepPoint, x: float, colour: str) -> None:
    """Draw the point with its verdict: the interval of its runs thick, the bounds of the next result thin."""
    metric = point.metric(sweep.metric)
    assert metric is not None, "only points with a value are drawn"
    if metric.repeat is not None:
        axis.vlines(x, max(0.0, metric.repeat.low), metric.repeat.high, color=colour, linewidth=1, alpha=0.6)
    if metric.low is not None and metric.high is not None:
        axis.vlines(x, metric.low, metric.high, color=colour, linewidth=3, alpha=0.6)
    axis.plot([x], [metric.value], marker=_MARKERS[point.verdict or Verdict.INDICATIVE], color=colour, markersize=6)


def _scale_values(axis: Any, sweep: sweep_model.Sweep) -> None:
    values = [value for point in sweep.points if (value := _value(sweep, point)) is not None]
    if values and min(values) > 0 and max(values) / min(values) >= LOG_FROM:
        axis.set_yscale("log")
    unit = _unit(sweep)
    axis.yaxis.set_major_formatter(lambda value, _: format_quantity(value, unit))
    axis.set_ylabel(f"{sweep.metric}, {_better(sweep)} is better")
    axis.grid(visible=True, alpha=0.3)


def _better(sweep: sweep_model.Sweep) -> str:
    return next((metric.better for point in sweep.points if (metric := point.metric(sweep.metric))), "higher")


def _heat_map(figure: Any, axis: Any, sweep: sweep_model.Sweep) -> None:
    """A cell for each pair of values, with its figure and the verdict's sign; empty without a result.

    If a list of unlike points puts several points into a cell, the cell shows the last of them.
    """
    (across, columns), (down, lines) = varying(sweep).items()
    cells = {(_text(point, across), _text(point, down)): point for point in sweep.points}
    grid = [[math.nan] * len(columns) for _ in lines]
    for (x, column), (y, line) in itertools.product(enumerate(columns), enumerate(lines)):
        point = cells.get((sweep_model.value_text(column), sweep_model.value_text(line)))
        value = None if point is None else _value(sweep, point)
        if point is not None and value is not None:
            grid[y][x] = value
            text = f"{format_quantity(value, _unit(sweep))}\n{_SIGNS[point.verdict or Verdict.INDICATIVE]}"
            box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 2}
            axis.text(x, y, text, ha="center", va="center", fontsize=8, bbox=box)
    if all(math.isnan(value) for row in grid for value in row):
        grid = [[0.0] * len(columns) for _ in lines]
    best_is_bright = "cividis" if _better(sweep) == "higher" else "cividis_r"
    image = axis.imshow(grid, cmap=best_is_bright, aspect="auto", origin="lower")
    unit = _unit(sweep)
    figure.colorbar(image, ax=axis, format=lambda value, _: format_quantity(value, unit))
    axis.set_xticks(range(len(columns)), map(sweep_model.value_text, columns))
    axis.set_yticks(range(len(lines)), map(sweep_model.value_text, lines))
    axis.set(xlabel=_label(across), ylabel=_label(down))


def _text(point: sweep_model.SweepPoint, axis: str) -> str | None:
    return sweep_model.value_text(point.values[axis]) if axis in point.values else None


def _bars(figure: Any, axis: Any, sweep: sweep_model.Sweep) -> None:
    """The speed-up of each point over its base, which is 1; without a base the metric itself."""
    axes = varying(sweep)
    names = [sweep_model.in_words(_of(point.values, axes)) or point.job for point in sweep.points]
    for row, point in enumerate(sweep.points):
        value, low, high, text = _bar(sweep, point)
        if value is None:
            axis.annotate(f" {text}", (0, row), va="center", fontsize=8)
            continue
        axis.barh(row, value, color=_COLOURS[0], alpha=0.8, height=0.6)
        end = value if high is None else max(high, value)
        if low is not None and high is not None:
            axis.hlines(row, max(0.0, low), high, color="black", linewidth=3)
        sign = _SIGNS[point.verdict] if point.verdict else ""
        axis.annotate(f" {text} {sign}", (end, row), va="center", fontsize=8)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.margins(x=0.25)
    axis.grid(visible=True, axis="x", alpha=0.3)
    if sweep.base is None:
        unit = _unit(sweep)
        axis.xaxis.set_major_formatter(lambda value, _: format_quantity(value, unit))
        axis.set_xlabel(f"{sweep.metric}, {_better(sweep)} is better")
    else:
        axis.axvline(1, color="#555555", linestyle="--", linewidth=1)
        axis.set_xlabel(f"{sweep.metric}: times as good as with {sweep_model.in_words(sweep.base)}")


def _bar(
    sweep: sweep_model.Sweep, point: sweep_model.SweepPoint
) -> tuple[float | None, float | None, float | None, str]:
    """Length, interval and text of a point's bar."""
    metric, ratio = point.metric(sweep.metric), point.ratio
    if sweep.base is None:
        if metric is None:
            return None, None, None, ""
        return metric.value, metric.low, metric.high, format_quantity(metric.value, metric.unit)
    if ratio is not None:
        text = f"no ratio: {ratio.reason}" if ratio.value is None else f"{ratio.value:.4g}"
        return ratio.value, ratio.low, ratio.high, text
    return (1.0, None, None, "1, the base") if metric and sweep.is_base(point) else (None, None, None, "")


def _of(values: Mapping[str, JsonValue], axes: Mapping[str, Sequence[JsonValue]]) -> dict[str, JsonValue]:
    return {axis: value for axis, value in values.items() if axis in axes}


def _number(value: JsonValue) -> float:
    assert isinstance(value, int | float), "checked by is_numeric"
    return float(value)

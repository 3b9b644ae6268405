"""The table of a sweep for people: one row of text for each point."""

from collections.abc import Iterator

from dyno.formatting import format_quantity
from dyno.models import sweep


def headings(found: sweep.Sweep) -> list[str]:
    axes = [axis.removeprefix(sweep.PARAM) for axis in found.axes]
    figures = [str(found.metric), "95 % interval", "next result"]
    return axes + figures + ["times as good"] * (found.base is not None) + ["verdict", "job"]


def cells(found: sweep.Sweep) -> list[list[str]]:
    """The rows below `headings`, with rounded figures."""
    return [list(_cells(found, point)) for point in found.points]


def _cells(found: sweep.Sweep, point: sweep.SweepPoint) -> Iterator[str]:
    for axis in found.axes:
        yield sweep.value_text(point.values[axis]) if axis in point.values else "–"
    metric = point.metric(found.metric)
    yield format_quantity(metric.value, metric.unit) if metric else "–"
    yield _bounds(metric.low, metric.high, metric.unit) if metric else "–"
    yield _bounds(metric.repeat.low, metric.repeat.high, metric.unit) if metric and metric.repeat else "–"
    if found.base is not None:
        yield "1, the base" if found.is_base(point) else _ratio(point)
    state = str(point.verdict or point.status_reason or point.status)
    yield f"{state}, stopped: {point.stopped.reason}" if point.stopped else state
    yield point.job if len(point.jobs) == 1 else f"{point.job} and {len(point.jobs) - 1} more"


def _ratio(point: sweep.SweepPoint) -> str:
    """Such as `1.5 (1.4 to 1.6), FASTER`."""
    ratio = point.ratio
    if ratio is None:
        return "–"
    if ratio.value is None:
        return ratio.reason or "–"
    interval = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.4g} to {ratio.high:.4g})"
    return f"{ratio.value:.4g}{interval}, {ratio.verdict}"


def _bounds(low: float | None, high: float | None, unit: str) -> str:
    return "–" if low is None or high is None else f"{format_quantity(low, unit)} to {format_quantity(high, unit)}"

"""The table of a sweep for people: one row of text for each point, and sentences below it."""

from collections.abc import Iterator

from dyno.bench.measure.accuracy_metric import is_over_seeds
from dyno.formatting import format_quantity
from dyno.models import sweep
from dyno.models.job import Status


def headings(found: sweep.Sweep) -> list[str]:
    axes = [axis.removeprefix(sweep.PARAM) for axis in found.axes]
    figures = [str(found.metric), "95 % interval", "next result"]
    return axes + figures + ["times as good"] * (found.base is not None) + ["verdict", "job"]


def cells(found: sweep.Sweep) -> list[list[str]]:
    """The rows below `headings`, with rounded figures."""
    return [list(_cells(found, point)) for point in found.points]


def conclusions(found: sweep.Sweep) -> Iterator[str]:
    """What a search for batch sizes has found, what would tell points from their bases, and the notes."""
    for each in found.batch_sizes:
        at = f" with {sweep.in_words(each.values)}" if each.values else ""
        largest, fastest = (size or "unknown" for size in (each.largest_that_fits, each.fastest))
        line = f"batch size{at}: largest that fits {largest}, fastest {fastest}"
        yield f"{line} ({each.limit})" if each.limit else line
    repeated = "runs of each" if found.rounds == 1 else "rounds"
    what = "trials of each" if is_over_seeds(found.metric or "") else repeated
    for point in found.points:
        if point.ratio is not None and point.ratio.more_runs:
            yield f"{sweep.in_words(point.values)}: about {point.ratio.more_runs} more {what} would decide"
    yield from found.notes


def _cells(found: sweep.Sweep, point: sweep.SweepPoint) -> Iterator[str]:
    for axis in found.axes:
        yield sweep.value_text(point.values[axis]) if axis in point.values else "–"
    metric = point.metric(found.metric)
    yield format_quantity(metric.value, metric.unit) if metric else "–"
    yield _interval(metric) if metric else "–"
    yield _bounds(metric.repeat.low, metric.repeat.high, metric.unit) if metric and metric.repeat else "–"
    if found.base is not None:
        yield "1, the base" if found.is_base(point) else _ratio(point)
    yield _state(point)
    yield point.job if len(point.jobs) == 1 else f"{point.job} and {len(point.jobs) - 1} more"


def _state(point: sweep.SweepPoint) -> str:
    """The verdict, or the reason for having none. It also says how a round without a result ended,
    and whether the device is emulated.
    """
    ended = str(point.status_reason or point.status)
    state = str(point.verdict or ended)
    if point.verdict and point.status in (Status.FAILED, Status.CANCELED, "gone"):
        state = f"{state}, a round: {ended}"
    if point.is_emulated:
        state = f"{state}, emulated"
    return f"{state}, stopped: {point.stopped.reason}" if point.stopped else state


def _interval(metric: sweep.PointMetric) -> str:
    return metric.reason or "–" if metric.value is None else _bounds(metric.low, metric.high, metric.unit)


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

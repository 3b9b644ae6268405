"""How many runs are enough."""

from __future__ import annotations

from collections.abc import Sequence

from dyno.measure.cases import by_case
from dyno.measure.statistics import Interval, mean_interval, median
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import Measure


def enough(measure: Measure, records: Sequence[RunRecord]) -> bool:
    """Whether no other run is needed: at least `min`, at most `max`, in between until the interval is narrow enough."""
    if len(records) < measure.processes.min:
        return False
    return len(records) >= measure.processes.max or on_target(measure.target_rel_ci, records)


def on_target(target_rel_ci: float, records: Sequence[RunRecord]) -> bool:
    """Whether the interval over the runs' medians is as narrow as that, of every case; one run's never is."""
    widths = [time_interval(each).rel_half_width for each in (records, *by_case(records).values())]
    return all(width is not None and width <= target_rel_ci for width in widths)


def time_interval(records: Sequence[RunRecord]) -> Interval:
    """Seconds per execution: the mean of the runs' medians with Student's t interval."""
    return mean_interval([median(record.samples) for record in records])

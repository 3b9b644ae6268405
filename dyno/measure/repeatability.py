"""`repeat` of a metric: where the next result of the same spec on this device will fall, with a probability of 95 %.

A figure's own interval describes one stretch of time. The next result lies in another one, so `repeat` is a prediction
interval: Student's t times the deviation between runs times sqrt(1 + 1/n), which holds one further run (Hahn & Meeker
1991, Statistical Intervals, 4.7). A further mean of n equal runs would need only sqrt(2/n). The difference is the
allowance for what changes between jobs. On recorded series, this interval held the next mean of five runs in 92 % of
cases, and the figure's own interval in 65 %.

Figures are compared as logarithms, so that a rate and its time agree, and no bound is below zero.
"""

import math
from collections.abc import Sequence

from dyno.measure.statistics import student_t
from dyno.models.result import BasedOn, Repeat

_WIDEST = math.log(1e6)  # keeps every bound finite


def from_runs(value: float, figures: Sequence[float]) -> Repeat | None:
    """The prediction from one job alone: around its `value`, from the `figures` of its runs. None for a single run."""
    count = len(figures)
    if count < 2:
        return None
    relative = min(figures) > 0
    deviation = _deviation([math.log(figure) for figure in figures] if relative else figures)
    half = student_t(count - 1) * deviation * math.sqrt(1 + 1 / count)
    based_on = BasedOn(runs=count)
    if relative:
        return _around(value, half, based_on)
    return Repeat(low=max(0.0, value - half), high=value + half, based_on=based_on)  # a share may be zero


def _around(value: float, half: float, based_on: BasedOn) -> Repeat:
    """The interval of `half` in logarithms around `value`."""
    factor = math.exp(min(half, _WIDEST))
    return Repeat(low=value / factor, high=value * factor, based_on=based_on)


def _deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))

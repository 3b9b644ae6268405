"""Did a series of runs change its level, at once or evenly from run to run?

Each step between two neighbours, and the straight line, is fitted by least squares; the best fit is judged by its sum
of squares over what it leaves. This is the likelihood ratio of a change at an unknown place (Worsley 1979, "On the
Likelihood Ratio Test for a Shift in Location of Normal Populations", JASA 74). The limits were simulated, 60,000 to
200,000 trials, for Student's t with 3 degrees of freedom, because runs have such tails.

Five runs show little: a step of 5 % in their middle is certain to one in a hundred if they scatter by 0.4 %, and to one
in twenty if they scatter by 0.7 %. A wider scatter looks like a step, and the interval of the runs is as wide then.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from dyno.measure.statistics import student_t

# By number of runs: the ratio that one in twenty, and one in a hundred, series without a change exceeds.
ONE_IN_20 = {5: 14.1, 6: 7.4, 7: 4.8, 8: 3.5, 10: 2.2, 15: 1.15, 20: 0.77, 30: 0.48, 50: 0.27}
ONE_IN_100 = {5: 52.0, 6: 23.4, 7: 14.1, 8: 9.4, 10: 5.9, 15: 2.9, 20: 1.8, 30: 1.1, 50: 0.61}
LEAST_RUNS = min(ONE_IN_100)


class Shift(NamedTuple):
    """The best fit of a change: `at` is the run that begins the new level, or None for a slide over all runs.

    `moved`: how far the mean lies from the level that is farther away, a share of the mean. `rel_half_width`: of the
    mean's 95 % interval if the level hadn't changed. `ratio`: sum of squares of the fit over what it leaves.
    """

    at: int | None
    moved: float
    rel_half_width: float
    ratio: float


def largest_shift(values: Sequence[float], limits: dict[int, float]) -> Shift | None:
    """The change of level, if it is larger than chance explains; None below five values, which show none."""
    count = len(values)
    if count < LEAST_RUNS:
        return None
    shift = max((_fitted(values, at) for at in (None, *range(1, count))), key=lambda fitted: fitted.ratio)
    return shift if shift.ratio > limits[max(runs for runs in limits if runs <= count)] else None


def _fitted(values: Sequence[float], at: int | None) -> Shift:
    count = len(values)
    shape = _centred([float(place if at is None else place >= at) for place in range(count)])
    logs = _centred([math.log(value) for value in values])
    slope = _product(shape, logs) / _product(shape, shape)
    left = math.fsum((log - slope * level) ** 2 for log, level in zip(logs, shape, strict=True))
    explained = slope**2 * _product(shape, shape)
    ratio = explained / left if left > 0 else math.inf if explained > 0 else 0.0
    deviation = math.sqrt(left / (count - 2))
    moved = abs(slope) * max(map(abs, shape))
    return Shift(at, moved, student_t(count - 2) * deviation / math.sqrt(count), ratio)


def _centred(values: Sequence[float]) -> list[float]:
    return [value - fmean(values) for value in values]


def _product(first: Sequence[float], second: Sequence[float]) -> float:
    return math.fsum(one * other for one, other in zip(first, second, strict=True))

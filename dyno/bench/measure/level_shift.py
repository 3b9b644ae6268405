"""Did a series of runs change its level, at once or evenly from run to run?

The module fits a step between each two neighbours, and a straight line, by least squares. It judges the best fit by its
sum of squares over the residual one. This is the likelihood ratio of a change at an unknown place (Worsley 1979, "On
the Likelihood Ratio Test for a Shift in Location of Normal Populations", JASA 74). Consecutive runs resemble each
other, which looks like a change. So the limits were simulated (60,000 to 200,000 trials) for normal values with the
recorded autocorrelation of 0.44. Independent values with heavy tails (Student's t, 3 degrees of freedom) exceed
ONE_IN_100 as rarely. With an autocorrelation of 0.8, levels really wander: one set of ten runs in nine exceeds it.

Five runs show little. Their scatter may be small by chance, and then any difference looks like a change. For clocks,
the usual scatter is known: each limit of ONE_IN_40_CLOCKS counts it as two further degrees of freedom. So five clocks
that deviate by 0.5 % show a step of 5 % in 99 % of cases, and a step of 4 % in 94 %.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from dyno.bench.measure.statistics import student_t

# By number of runs: the ratio that one in a hundred sets without a change exceeds.
ONE_IN_100 = {5: 55.0, 6: 24.0, 7: 14.5, 8: 10.0, 10: 6.3, 15: 3.2, 20: 2.2, 30: 1.3, 50: 0.71}
# The same for one in forty sets of clocks that deviate by 1.5 %, the largest recorded deviation, with QUIET_CLOCK.
ONE_IN_40_CLOCKS = {5: 10.5, 6: 8.2, 7: 6.6, 8: 5.5, 10: 4.0, 15: 2.35, 20: 1.65, 30: 1.0, 50: 0.57}
QUIET_CLOCK = 2 * 0.005**2  # the sum of squares of a clock that deviates by 0.5 %, for two degrees of freedom
LEAST_RUNS = min(ONE_IN_100)


class Shift(NamedTuple):
    """The best fit of a change: `at` is the run that begins the new level, or None for a slide over all runs.

    `moved`: the distance of the mean from the farther level, as a share of the mean. `rel_half_width`: half the width
    of the mean's 95 % interval without the change. `ratio`: the sum of squares of the fit over the residual one plus
    `usual`.
    """

    at: int | None
    moved: float
    rel_half_width: float
    ratio: float


def largest_shift(values: Sequence[float], limits: dict[int, float], usual: float = 0.0) -> Shift | None:
    """The change of level, if it is larger than chance explains. None below five values, which are too few.

    `usual`: a previously known sum of squares of such values (logarithms), for which the limits were simulated.
    """
    count = len(values)
    if count < LEAST_RUNS:
        return None
    shift = max((_fitted(values, at, usual) for at in (None, *range(1, count))), key=lambda fitted: fitted.ratio)
    return shift if shift.ratio > limits[max(runs for runs in limits if runs <= count)] else None


def _fitted(values: Sequence[float], at: int | None, usual: float) -> Shift:
    count = len(values)
    shape = _centred([float(run if at is None else run >= at) for run in range(count)])
    logs = _centred([math.log(value) for value in values])
    slope = _product(shape, logs) / _product(shape, shape)
    residual = math.fsum((log - slope * level) ** 2 for log, level in zip(logs, shape, strict=True))
    explained = slope**2 * _product(shape, shape)
    unexplained = residual + usual
    ratio = explained / unexplained if unexplained > 0 else math.inf if explained > 0 else 0.0
    deviation = math.sqrt(residual / (count - 2))
    moved = abs(slope) * max(map(abs, shape))
    return Shift(at, moved, student_t(count - 2) * deviation / math.sqrt(count), ratio)


def _centred(values: Sequence[float]) -> list[float]:
    return [value - fmean(values) for value in values]


def _product(first: Sequence[float], second: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(first, second, strict=True))

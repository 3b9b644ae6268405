"""Find changes of level: in results from day to day, or in the runs within a job.

*Results* (`find_changes`). In a stretch of values, the candidate for a change is the split with the largest energy
distance between the values before it and the values after it, as in E-divisive (Matteson & James 2014, "A Nonparametric
Approach for Multiple Change Point Analysis of Multivariate Data", Journal of the American Statistical Association 109).
The values after the split may end anywhere, so the search also finds a level that lasts for a while and then goes back.
The candidate splits the stretch if Student's test between its sides is significant, and the search continues on each
side. Finally, the weakest split is removed until each remaining split is significant between its neighbours. Both steps
follow Hunter (Fleming et al. 2023, "Hunter: Using Change Point Detection to Hunt for Performance Regressions", ICPE
'23), which Apache Otava continues. docs/dev/decisions/0028-*.md says why Dyno has its own code. Values are compared as
logarithms, so a rate and its inverse change alike. A level has at least `MIN_LEVEL` values. Medians must differ, too,
so an outlier isn't a change. The variance is pooled over both sides, so few new values suffice.

*Runs* (`largest_shift`). By least squares, Dyno fits a step at each place between two runs, and also a straight line.
The best fit has the largest ratio of its sum of squares to the residual sum of squares. This ratio corresponds to the
likelihood ratio of a change at an unknown place (Worsley 1979, "On the Likelihood Ratio Test for a Shift in Location of
Normal Populations", JASA 74). Consecutive runs resemble each other, which may look like a change. So the limits were
simulated (60,000 to 200,000 trials) for normal values with the recorded autocorrelation of 0.44. Independent values
with heavy tails (Student's t, 3 degrees of freedom) exceed SHIFT_LIMITS equally rarely. With an autocorrelation of 0.8,
values wander more: one in nine sets of ten runs exceeds these limits.

Five runs are weak evidence. Their scatter may be small by chance, and then any difference looks like a change. For
clocks, the usual scatter is known, and CLOCK_SHIFT_LIMITS include it as two more degrees of freedom. If five clocks
deviate by 0.5 %, a step of 5 % is detected in 99 % of cases, and a step of 4 % in 94 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from dyno.bench.measure.statistics import centred, logs, median, product, squares, student_t

MIN_LEVEL = 3
# Strict: the test assumes one given split, but the candidate is the best of many (docs/results/history.md).
SIGNIFICANCE = 0.0001
_FIRST_PASS = 0.001  # a split that is weak in a long stretch may be strong between its neighbours
_WINDOW = 0.00001
_LEAST_CHANCE = 1e-300  # keeps z finite
# By number of runs: the ratio that one in a hundred sets of runs without a change exceeds.
SHIFT_LIMITS = {5: 55.0, 6: 24.0, 7: 14.5, 8: 10.0, 10: 6.3, 15: 3.2, 20: 2.2, 30: 1.3, 50: 0.71}
# With QUIET_CLOCK: the ratio that one in forty sets of clocks exceeds if clocks deviate by 1.5 %, the recorded maximum.
CLOCK_SHIFT_LIMITS = {5: 10.5, 6: 8.2, 7: 6.6, 8: 5.5, 10: 4.0, 15: 2.35, 20: 1.65, 30: 1.0, 50: 0.57}
QUIET_CLOCK = 2 * 0.005**2  # the sum of squares of a clock that deviates by 0.5 %, for two degrees of freedom


@dataclass(frozen=True)
class Change:
    """A change of level at `index`. `before` and `after`: the numbers of values in the old and the new level.

    `ratio`: the new level's geometric mean, divided by the old level's, with its 95 % interval. `z`: the
    significance of Student's test, as the standard normal deviate of the same probability.
    """

    index: int
    ratio: float
    low: float
    high: float
    z: float
    before: int
    after: int


def find_changes(values: Sequence[float]) -> list[Change]:
    """The changes, in order. The time grows with len(values)²: 20 ms for 365 values. Raises ValueError unless all
    values are above zero.
    """
    if len(values) < 2 * MIN_LEVEL:
        return []
    import numpy as np  # a local import: the API imports this module

    if not all(0 < value < math.inf for value in values):
        raise ValueError("values must be above zero")
    series = np.log(np.asarray(values, dtype=np.float64))
    cuts = _strong_cuts(series, _weak_cuts(series))
    return [_change(before, after, cut) for cut, (before, after) in zip(cuts, _levels(series, cuts), strict=True)]


def ratio_of_levels(before: Sequence[float], after: Sequence[float]) -> Change | None:
    """The change between two given groups of values, such as the values of two software versions; None for fewer than
    two values on a side."""
    if min(len(before), len(after)) < 2:
        return None
    return _change(logs(before), logs(after), len(before))


def _change(before: Any, after: Any, index: int) -> Change:
    difference, error, degrees = _difference(before, after)
    half = student_t(degrees) * error
    ratio, low, high = (math.exp(difference + by) for by in (0.0, -half, half))
    z = _deviate(difference, error, degrees)
    return Change(index, ratio, low, high, z, len(before), len(after))


def _difference(before: Any, after: Any) -> tuple[float, float, int]:
    """The difference of both means, its standard error from the pooled variance, and the degrees of freedom."""
    degrees = len(before) + len(after) - 2
    variance = (squares(before) + squares(after)) / degrees
    return fmean(after) - fmean(before), math.sqrt(variance * (1 / len(before) + 1 / len(after))), degrees


def _deviate(difference: float, error: float, degrees: int) -> float:
    from scipy.special import ndtri, stdtr  # a local import, as in `student_t`

    if difference == 0:
        return 0.0
    chance = 2 * float(stdtr(degrees, -abs(difference) / error)) if error else 0.0
    return -float(ndtri(max(chance, _LEAST_CHANCE) / 2))


def _strength(before: Any, after: Any) -> float:
    """z; 0 if the medians differ by less than half as much as the means, because then outliers moved the means."""
    difference, error, degrees = _difference(before, after)
    if abs(median(after.tolist()) - median(before.tolist())) < abs(difference) / 2:
        return 0.0
    return _deviate(difference, error, degrees)


def _z_limit(significance: float) -> float:
    from scipy.special import ndtri

    return -float(ndtri(significance / 2))


def _levels(series: Any, cuts: Sequence[int]) -> list[tuple[Any, Any]]:
    """The values before and after each cut, up to the neighbouring cuts."""
    bounds = [0, *cuts, len(series)]
    return [(series[start:cut], series[cut:end]) for start, cut, end in zip(bounds, cuts, bounds[2:], strict=False)]


def _weak_cuts(series: Any) -> list[int]:
    """The candidates that are significant in the stretch that they split, in order.

    If the level goes back later, the mean of all later values is near the old level. So a second test uses only the
    values up to the candidate's `last`. The limit of this test is stricter, because `last` was chosen out of many.
    """
    sums, limit, strict = _distance_sums(series), _z_limit(_FIRST_PASS), _z_limit(_WINDOW)
    cuts, stretches = list[int](), [(0, len(series))]
    while stretches:
        start, end = stretches.pop()
        if end - start < 2 * MIN_LEVEL:
            continue
        cut, last = _candidate(sums, start, end)
        before, after, near = series[start:cut], series[cut:end], series[cut:last]
        if _strength(before, after) > limit or _strength(before, near) > strict:
            cuts.append(cut)
            stretches += [(start, cut), (cut, end)]
    return sorted(cuts)


def _strong_cuts(series: Any, cuts: Sequence[int]) -> list[int]:
    """Remove the weakest cut until all remaining cuts are significant between their neighbours."""
    kept, limit = list(cuts), _z_limit(SIGNIFICANCE)
    while kept:
        strengths = [_strength(before, after) for before, after in _levels(series, kept)]
        weakest = min(range(len(kept)), key=strengths.__getitem__)
        if strengths[weakest] > limit:
            break
        del kept[weakest]
    return kept


def _distance_sums(series: Any) -> Any:
    """A matrix whose element [i, j] is the sum of the distances between the first i values and the first j values."""
    import numpy as np

    sums = np.zeros((len(series) + 1, len(series) + 1))
    np.abs(series[:, None] - series[None, :]).cumsum(axis=0).cumsum(axis=1, out=sums[1:, 1:])
    return sums


def _candidate(sums: Any, start: int, end: int) -> tuple[int, int]:
    """(cut, last) in start..end with the largest weighted energy distance between start..cut and cut..last.

    A side has at least `MIN_LEVEL` values. Sides of n and m values have the distance
    n m / (n + m) (2 E|X-Y| - E|X-X'| - E|Y-Y'|).
    """
    import numpy as np

    cuts = np.arange(start + MIN_LEVEL, end - MIN_LEVEL + 1)[:, None]
    lasts = np.arange(start + 2 * MIN_LEVEL, end + 1)[None, :]
    n, m = cuts - start, np.maximum(lasts - cuts, 2)  # sides with fewer than MIN_LEVEL values are masked below

    def between(a: Any, b: Any, c: Any, d: Any) -> Any:
        return sums[b, d] - sums[a, d] - sums[b, c] + sums[a, c]

    across = 2 * between(start, cuts, cuts, lasts) / (n * m)
    inside_first = between(start, cuts, start, cuts) / (n * (n - 1))
    inside_second = between(cuts, lasts, cuts, lasts) / (m * (m - 1))
    distance = n * m / (n + m) * (across - inside_first - inside_second)
    distance[lasts - cuts < MIN_LEVEL] = -np.inf
    row, column = np.unravel_index(int(distance.argmax()), distance.shape)
    return int(cuts[row, 0]), int(lasts[0, column])


class Shift(NamedTuple):
    """The best fit of a change: `at` is the run that begins the new level, or None for a slide over all runs.

    `moved`: the distance of the mean from the farther level, as a share of the mean. `rel_half_width`: the relative
    half-width of the mean's 95 % interval after the change is removed. `ratio`: the fit's sum of squares, divided by
    the sum of `usual` and the residual sum of squares.
    """

    at: int | None
    moved: float
    rel_half_width: float
    ratio: float


def largest_shift(values: Sequence[float], limits: dict[int, float], usual: float = 0.0) -> Shift | None:
    """The largest change of level; None if chance may explain it, or with fewer than five values.

    `usual`: a known sum of squares of such values (logarithms), with which the limits were simulated.
    """
    count = len(values)
    if count < min(limits):
        return None
    shift = max((_fitted(values, at, usual) for at in (None, *range(1, count))), key=lambda fitted: fitted.ratio)
    return shift if shift.ratio > limits[max(runs for runs in limits if runs <= count)] else None


def _fitted(values: Sequence[float], at: int | None, usual: float) -> Shift:
    count = len(values)
    shape, series = centred([float(run if at is None else run >= at) for run in range(count)]), centred(logs(values))
    slope = product(shape, series) / product(shape, shape)
    residual = math.fsum((log - slope * level) ** 2 for log, level in zip(series, shape, strict=True))
    explained, unexplained = slope**2 * product(shape, shape), residual + usual
    ratio = explained / unexplained if unexplained > 0 else math.inf if explained > 0 else 0.0
    half_width = student_t(count - 2) * math.sqrt(residual / (count - 2) / count)
    return Shift(at, abs(slope) * max(map(abs, shape)), half_width, ratio)

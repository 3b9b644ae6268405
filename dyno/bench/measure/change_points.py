"""Find where the level of a series of figures changes, and by which ratio.

The candidate of a stretch is that of E-divisive (Matteson & James 2014, "A Nonparametric Approach for Multiple Change
Point Analysis of Multivariate Data", Journal of the American Statistical Association 109): the split with the largest
energy distance between the values before it and the values after it, up to any later value. So it also finds a level
that lasts for a while and goes back. The candidate splits the stretch if Student's test of both sides is significant,
and the search continues on each side. At the end, the weakest split is removed until all are significant between their
neighbours. Both steps follow Hunter (Fleming et al. 2023, "Hunter: Using Change Point Detection to Hunt for Performance
Regressions", ICPE '23), which Apache Otava continues. docs/dev/decisions/0028-*.md says why Dyno has its own code.

Values are compared as logarithms, so a rate and its time have the same changes. A level has at least `MIN_LEVEL`
values, and its median must differ, too, so an outlier isn't a change. The variance is pooled over both sides, so a few
new values suffice after many old ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dyno.bench.measure.statistics import median, student_t

MIN_LEVEL = 3
# The candidate is the best of many splits, which a single test's probability ignores: docs/results/history.md.
SIGNIFICANCE = 0.0001
_FIRST_PASS = 0.001  # a split that is weak in a long stretch may be strong between its neighbours
_WINDOW = 0.00001
_LEAST_CHANCE = 1e-300  # keeps z finite


@dataclass(frozen=True)
class Change:
    """A new level of the `after` values from `index` on, against the level of the `before` values in front of it.

    `ratio`: the new level's geometric mean over the old one's, with its 95 % interval. `z`: the significance of
    Student's test, as the standard normal deviate of the same probability.
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
    logs = np.log(np.asarray(values, dtype=np.float64))
    cuts = _strong_cuts(logs, _weak_cuts(logs))
    bounds = [0, *cuts, len(logs)]
    return [
        _change(logs[start:cut], logs[cut:end], cut) for start, cut, end in zip(bounds, cuts, bounds[2:], strict=False)
    ]


def ratio_of_levels(before: Sequence[float], after: Sequence[float]) -> Change | None:
    """The change between two given groups of values, such as of two software versions; None for fewer than two values
    on a side."""
    if min(len(before), len(after)) < 2:
        return None
    return _change([math.log(value) for value in before], [math.log(value) for value in after], len(before))


def _change(before: Any, after: Any, index: int) -> Change:
    difference, error, degrees = _difference(before, after)
    half = student_t(degrees) * error
    ratio, low, high = (math.exp(difference + by) for by in (0.0, -half, half))
    z = _deviate(difference, error, degrees)
    return Change(index, ratio, low, high, z, len(before), len(after))


def _difference(before: Any, after: Any) -> tuple[float, float, int]:
    """The difference of both means, its standard error from the pooled variance, and the degrees of freedom."""
    means = [math.fsum(side) / len(side) for side in (before, after)]
    squares = math.fsum(
        (value - mean) ** 2 for side, mean in zip((before, after), means, strict=True) for value in side
    )
    degrees = len(before) + len(after) - 2
    return means[1] - means[0], math.sqrt(squares / degrees * (1 / len(before) + 1 / len(after))), degrees


def _deviate(difference: float, error: float, degrees: int) -> float:
    from scipy.special import ndtri, stdtr  # a local import, as in `student_t`

    if difference == 0:
        return 0.0
    chance = 2 * float(stdtr(degrees, -abs(difference) / error)) if error else 0.0
    return -float(ndtri(max(chance, _LEAST_CHANCE) / 2))


def _strength(before: Any, after: Any) -> float:
    """z; 0 if the medians differ by less than half as much as the means, since outliers then moved the means."""
    difference, error, degrees = _difference(before, after)
    if abs(median(after.tolist()) - median(before.tolist())) < abs(difference) / 2:
        return 0.0
    return _deviate(difference, error, degrees)


def _z_limit(significance: float) -> float:
    from scipy.special import ndtri

    return -float(ndtri(significance / 2))


def _weak_cuts(logs: Any) -> list[int]:
    """The candidates that are significant in the stretch that they split, in order.

    A level that goes back differs little from all later values, so the values up to the candidate's `last` count as
    well, but under a stricter limit: they were chosen out of many.
    """
    sums, limit, strict = _distance_sums(logs), _z_limit(_FIRST_PASS), _z_limit(_WINDOW)
    cuts, stretches = list[int](), [(0, len(logs))]
    while stretches:
        start, end = stretches.pop()
        if end - start < 2 * MIN_LEVEL:
            continue
        cut, last = _candidate(sums, start, end)
        before, after, near = logs[start:cut], logs[cut:end], logs[cut:last]
        if _strength(before, after) > limit or _strength(before, near) > strict:
            cuts.append(cut)
            stretches += [(start, cut), (cut, end)]
    return sorted(cuts)


def _strong_cuts(logs: Any, cuts: Sequence[int]) -> list[int]:
    """`cuts` without those that aren't significant between their neighbours."""
    kept, limit = list(cuts), _z_limit(SIGNIFICANCE)
    while kept:
        bounds = [0, *kept, len(logs)]
        strengths = [
            _strength(logs[start:cut], logs[cut:end]) for start, cut, end in zip(bounds, kept, bounds[2:], strict=False)
        ]
        weakest = min(range(len(kept)), key=strengths.__getitem__)
        if strengths[weakest] > limit:
            break
        del kept[weakest]
    return kept


def _distance_sums(logs: Any) -> Any:
    """[i, j]: the sum of the distances between the first i values and the first j values."""
    import numpy as np

    sums = np.zeros((len(logs) + 1, len(logs) + 1))
    np.abs(logs[:, None] - logs[None, :]).cumsum(axis=0).cumsum(axis=1, out=sums[1:, 1:])
    return sums


def _candidate(sums: Any, start: int, end: int) -> tuple[int, int]:
    """The cut and the last in start..end with the largest weighted energy distance of start..cut and cut..last.

    Each side has at least `MIN_LEVEL` values. With n and m values: n m / (n + m) (2 E|X-Y| - E|X-X'| - E|Y-Y'|).
    """
    import numpy as np

    cuts = np.arange(start + MIN_LEVEL, end - MIN_LEVEL + 1)[:, None]
    lasts = np.arange(start + 2 * MIN_LEVEL, end + 1)[None, :]
    n, m = cuts - start, np.maximum(lasts - cuts, 2)  # below MIN_LEVEL: masked at the end

    def between(a: Any, b: Any, c: Any, d: Any) -> Any:
        return sums[b, d] - sums[a, d] - sums[b, c] + sums[a, c]

    across = 2 * between(start, cuts, cuts, lasts) / (n * m)
    inside_first = between(start, cuts, start, cuts) / (n * (n - 1))
    inside_second = between(cuts, lasts, cuts, lasts) / (m * (m - 1))
    distance = n * m / (n + m) * (across - inside_first - inside_second)
    distance[lasts - cuts < MIN_LEVEL] = -np.inf
    row, column = np.unravel_index(int(distance.argmax()), distance.shape)
    return int(cuts[row, 0]), int(lasts[0, column])

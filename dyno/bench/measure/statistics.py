"""Compute figures from samples, with their intervals. All functions take sequences of floats in one unit.

No function drops outliers. If there are too few values for a figure, the figure is None, never zero.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import fmean

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """`value` with its bounds. Without an interval, both bounds are None and `reason` says why."""

    value: float
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    @property
    def rel_half_width(self) -> float | None:
        """Half of the interval's width as a share of the value; None without an interval or if the value is zero."""
        if self.low is None or self.high is None or self.value == 0:
            return None
        return (self.high - self.low) / 2 / abs(self.value)


def centred(values: Sequence[float]) -> list[float]:
    """The distances from the mean."""
    mean = fmean(values) if len(values) else 0.0
    return [value - mean for value in values]


def product(first: Sequence[float], second: Sequence[float]) -> float:
    """The sum of the products of corresponding values."""
    return math.fsum(x * y for x, y in zip(first, second, strict=True))


def squares(values: Sequence[float]) -> float:
    """The sum of squares of the distances from the mean; 0 without values."""
    return math.fsum(distance**2 for distance in centred(values))


def logs(values: Sequence[float]) -> list[float]:
    """The natural logarithms. Raises ValueError unless all values are above zero."""
    return [math.log(value) for value in values]


def deviation(values: Sequence[float]) -> float:
    """The standard deviation over n - 1 degrees of freedom, for two values or more."""
    return math.sqrt(squares(values) / (len(values) - 1))


def satterthwaite(variances: Sequence[float], degrees: Sequence[float], known: float = 0.0) -> float | None:
    """The degrees of freedom of a sum of variances: Satterthwaite (1946), Biometrics Bulletin 2(6).

    `known`: a further variance, known without error. None if `variances` are zero.
    """
    spread = math.fsum(variance**2 / count for variance, count in zip(variances, degrees, strict=True))
    return math.fsum([*variances, known]) ** 2 / spread if spread > 0 else None


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two. Raises ValueError if `values` is empty."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation between order statistics: Hyndman & Fan (1996), type 7, NumPy's default."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile."""
    return quantile(values, 0.25), quantile(values, 0.75)


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median; times 1.4826, it estimates a normal standard deviation."""
    centre = median(values)
    return median([abs(value - centre) for value in values])


_TO_DEVIATION = 1.4826  # standard deviation of a normal distribution / its median absolute deviation
_EFFICIENCY = 0.37  # efficiency of `mad`: Rousseeuw & Croux (1993), "Alternatives to the Median Absolute Deviation"
_SMALL_SAMPLE = 0.8  # n / (n - 0.8) corrects the bias: Croux & Rousseeuw (1992)


def robust_half_width(values: Sequence[float], confidence: float) -> float:
    """The half-width of the interval around the median that contains a further value with probability `confidence`."""
    count = len(values)
    scatter = _TO_DEVIATION * mad(values) * count / (count - _SMALL_SAMPLE)
    of_next = math.sqrt(1 + math.pi / 2 / count)  # adds the new value's scatter and the median's error
    return student_t(_EFFICIENCY * count, confidence) * scatter * of_next


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the median with its order-statistic interval, which assumes no distribution.

    [X(k), X(n+1-k)] covers the median with probability 1 - 2 P(Bin(n, 1/2) < k). k is the largest rank that keeps
    `confidence`. David & Nagaraja, Order Statistics (3rd ed. 2003), 7.1; Hoefler & Belli (2015), 3.1.3. Below six
    values no pair of order statistics reaches 95 %.
    """
    centre = median(values)
    rank = _rank(len(values), confidence)
    if rank == 0:
        return Interval(centre, reason=f"{len(values)} values are too few for a {confidence:.0%} interval of a median")
    ordered = sorted(values)
    return Interval(centre, ordered[rank - 1], ordered[-rank])


def quantile_interval(values: Sequence[float], share: float, confidence: float = CONFIDENCE) -> Interval:
    """A quantile with the interval of order statistics, which assumes no distribution but needs independent values.

    [X(l), X(u)] with P(Bin(n, share) < l) and P(Bin(n, share) >= u) at most (1 - confidence) / 2 each. David &
    Nagaraja, Order Statistics (3rd ed. 2003), 7.1. For 95 %, the median needs 6 values, the 99th percentile 368.
    """
    from scipy.special import bdtr  # a local import, as below

    count, tail = len(values), (1 - confidence) / 2
    below = bisect_right(range(count), tail, key=lambda most: float(bdtr(most, count, share)))
    above = bisect_left(range(count), 1 - tail, key=lambda most: float(bdtr(most, count, share)))
    value, ordered = quantile(values, share), sorted(values)
    if below == 0 or above == count:
        return Interval(value, reason=f"{count} values are too few for a {confidence:.0%} interval of p{share * 100:g}")
    return Interval(value, ordered[below - 1], ordered[above])


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE, first_set: int | None = None) -> Interval:
    """The mean with Student's t interval over n - 1 degrees of freedom; `values` are the runs' medians.

    Georges et al. (2007), 3.2.3. An interval over pooled samples contains the true mean in 35-58 % of cases.

    `first_set`: the number of first values whose scatter decided n. The interval is then at least as wide as Stein's
    (1945), which uses the deviation and the degrees of freedom of these values. An interval from all values alone would
    contain the true mean in only 92 % of cases. A first set of one value is ignored, because it has no scatter.
    """
    count, centre = len(values), fmean(values)
    if count < 2:
        return Interval(centre, reason="one run gives no interval")
    parts = [values, values[:first_set]] if first_set and first_set > 1 else [values]
    half = max(student_t(len(part) - 1, confidence) * deviation(part) for part in parts) / math.sqrt(count)
    return Interval(centre, centre - half, centre + half)


@lru_cache(maxsize=1024)  # fractional degrees are rarely requested twice
def student_t(degrees: float, confidence: float = CONFIDENCE) -> float:
    """The two-sided quantile: |T| with `degrees` of freedom exceeds it with probability 1 - confidence."""
    from scipy.special import stdtrit  # a local import: it takes 0.3 s, and the API imports this module

    return float(stdtrit(degrees, (1 + confidence) / 2))


def wilson_interval(hits: int, trials: int) -> Interval:
    """A proportion with Wilson's 95 % score interval (1927). Unlike the normal interval, it is accurate near 0 and 1.

    Raises ValueError unless 0 <= hits <= trials and trials > 0.
    """
    if not 0 <= hits <= trials or trials == 0:
        raise ValueError(f"{hits} of {trials} is not a proportion")
    z = 1.959963984540054  # the normal quantile for two-sided 95 %
    share, spread = hits / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def separated(before: Sequence[float], after: Sequence[float], z_limit: float) -> bool:
    """Whether two groups differ in location: Mann & Whitney's U (1947), normal approximation, no tie correction.

    `z_limit` is the number of standard deviations of U above which groups differ. A tie adds 1/2 to U.
    """
    wins = sum((x < y) + (x == y) / 2 for x in before for y in after)
    pairs = len(before) * len(after)
    deviation = math.sqrt(pairs * (len(before) + len(after) + 1) / 12)
    return abs(wins - pairs / 2) / deviation > z_limit


def change_point(values: Sequence[float], significance: float) -> int | None:
    """The index at which the level of `values` changes, or None: Pettitt's test (1979), Applied Statistics 28(2).

    K is the largest |U(t)| of Mann & Whitney over all splits, and p = 2 exp(-6 K^2 / (n^3 + n^2)). This p is
    conservative: 10 values never reach 5 %, and a clean split of 12 values gives 3 %.
    """
    count, statistic, change, largest = len(values), 0.0, None, 0.0
    for split, rank in enumerate(_ranks(values), start=1):
        statistic += 2 * rank - (count + 1)
        if abs(statistic) > largest:
            change, largest = split, abs(statistic)
    chance = 2 * math.exp(-6 * largest**2 / (count**3 + count**2)) if count else 1.0
    return change if chance < significance else None


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; ties share the mean of their ranks."""
    ranks: dict[float, list[int]] = {}
    for rank, value in enumerate(sorted(values), start=1):
        ranks.setdefault(value, []).append(rank)
    return [math.fsum(ranks[value]) / len(ranks[value]) for value in values]


@cache
def _rank(count: int, confidence: float) -> int:
    """The largest k with P(Bin(count, 1/2) < k) <= (1 - confidence) / 2, or 0."""
    tail, rank = 0.0, 0
    while rank < count:
        tail += math.comb(count, rank) / 2**count
        if tail > (1 - confidence) / 2:
            return rank
        rank += 1
    return rank

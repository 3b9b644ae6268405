"""Compute the ratio of two means with its interval: for independent runs, interleaved pairs, and jobs in rounds.

Independent runs use Fieller's interval (1940; 1954, Journal of the Royal Statistical Society B 16). It contains all
ratios r for which N - r D does not differ significantly from zero, where N and D are the two means. The variances of
the groups may be unequal, so the variance of N - r D is var(N) + r² var(D), with the degrees of freedom of Welch and
Satterthwaite at the estimated ratio (Tamhane & Logan 2004, Biometrika 91; R's mratios::ttestratio does the same). If D
itself does not differ significantly from zero, the set of ratios is unbounded, and there is no interval.

Interleaved pairs, AB, BA, AB, BA, …: each pair of neighbouring runs gives one ratio, which cancels slow changes of the
machine. The position may matter, too: at the second run, the machine is warmer, or a drift is further along. Pairs that
begin with A form one group, and pairs that begin with B another. The mean of both groups' means is free of the effect
of order and of any linear drift. This is the analysis of a two-period cross-over trial (Hills & Armitage 1979, British
Journal of Clinical Pharmacology 8; Jones & Kenward, Design and Analysis of Cross-Over Trials, 2nd ed. 2003, ch. 2):
Student's t with the pooled variance of the groups and n - 2 degrees of freedom for n pairs. The analysis works on
logarithms, so swapping A and B inverts the ratio exactly. The result is the ratio of the geometric means.

Jobs that took turns in rounds, like a sweep's points: each round gives one ratio of two jobs' values, so changes of the
machine from round to round cancel. The order within a round is random, so changes within a round only add scatter. The
interval is Student's t over the rounds' logarithms, with rounds - 1 degrees of freedom. It covers the differences
between jobs of the same spec, which don't appear in the runs of a single job.
"""

import bisect
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean
from typing import NamedTuple, Self

from dyno.bench.measure.statistics import CONFIDENCE, Interval, satterthwaite, squares, student_t
from dyno.models.comparison import POWER, Comparative

_LARGEST_LOG = 10.0  # e**10 exceeds the ratio of any two devices
_MOST_RUNS = 2**20


class Scatter(NamedTuple):
    """The standard error of a ratio's logarithm, and its degrees of freedom."""

    error: float
    degrees: float


@dataclass(frozen=True)
class RatioEstimate:
    """A ratio of means. `degrees` may be fractional. Without an interval, `degrees` and `smallest_effect` are None.

    `with_more(runs)` is the scatter to expect with `runs` more runs on each side, or `runs` more rounds; None if the
    scatter is unknown. `runs` must be a multiple of `step`.
    """

    interval: Interval
    degrees: float | None = None
    smallest_effect: float | None = None
    with_more: Callable[[int], Scatter] | None = None
    step: int = 1


@dataclass(frozen=True)
class Mean:
    """The mean of `count` runs, and the variance of this mean: s² / n.

    `adjustment`: the variance that an adjustment of the mean adds; it doesn't depend on the number of runs.
    """

    value: float
    variance: float
    count: int
    adjustment: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float], log_variance: float = 0.0) -> Self:
        """Raises ValueError if `values` is empty."""
        if not values:
            raise ValueError("no values")
        mean, count = fmean(values), len(values)
        return cls(mean, squares(values) / max(count - 1, 1) / count, count, mean**2 * log_variance)

    @property
    def in_all(self) -> float:
        return self.variance + self.adjustment

    def with_more(self, runs: int) -> "Mean":
        """The mean with `runs` more runs of the same scatter."""
        count = self.count + runs
        return replace(self, variance=self.variance * self.count / count, count=count)


def ratio_of_means(
    numerators: Sequence[float],
    denominators: Sequence[float],
    confidence: float = CONFIDENCE,
    *,
    log_variance: float = 0.0,
) -> RatioEstimate:
    """mean(numerators) / mean(denominators) over the runs' figures.

    `log_variance`: the variance that an adjustment of one side adds to the ratio's logarithm.

    Raises ValueError if either sequence is empty or the mean of the denominators is zero.
    """
    over, under = Mean.of(numerators, log_variance), Mean.of(denominators)
    if under.value == 0:
        raise ValueError("the mean of the denominators is zero")
    ratio = over.value / under.value
    if min(over.count, under.count) < 2:
        return RatioEstimate(Interval(ratio, reason="an interval needs at least two runs on each side"))
    degrees = _degrees(ratio, over, under)
    t = student_t(degrees, confidence)
    bounds = fieller(over.value, under.value, over.in_all, under.variance, t)
    if over.value == 0:
        return RatioEstimate(Interval(ratio, *bounds or (None, None)), degrees)

    def with_more(runs: int) -> Scatter:
        return _scatter(over.with_more(runs), under.with_more(runs))

    if bounds is None:
        reason = "the base scatters so much that the ratio has no upper bound"
        return RatioEstimate(Interval(ratio, reason=reason), degrees, with_more=with_more)
    effect = smallest_effect(with_more(0).error, degrees, t)
    return RatioEstimate(Interval(ratio, *bounds), degrees, effect, with_more)


def _scatter(over: Mean, under: Mean) -> Scatter:
    error = math.sqrt(over.in_all / over.value**2 + under.variance / under.value**2)
    return Scatter(error, _degrees(over.value / under.value, over, under))


def fieller(
    numerator: float, denominator: float, numerator_variance: float, denominator_variance: float, t: float
) -> tuple[float, float] | None:
    """The bounds of numerator / denominator, from the variances of two independent means and Student's quantile `t`.

    The roots of (N - r D)² = t² (var(N) + r² var(D)). None if the set of ratios is unbounded: |D| <= t sd(D).
    """
    scale = denominator**2 - t**2 * denominator_variance
    if scale <= 0:
        return None
    centre = numerator * denominator
    half = t * math.sqrt(numerator**2 * denominator_variance + scale * numerator_variance)
    return (centre - half) / scale, (centre + half) / scale


def comparative_verdict(interval: Interval, margin: float) -> Comparative:
    """The verdict for the interval of a ratio; above 1 is better.

    SAME if the whole interval is within 1 / (1 + margin) to 1 + margin, a range that treats both sides alike. Otherwise
    FASTER or SLOWER if 1 is outside the interval. The rule for SAME equals two one-sided tests (Schuirmann 1987), each
    at half of 1 - confidence.
    """
    if interval.low is None or interval.high is None:
        return Comparative.INCONCLUSIVE
    if 1 / (1 + margin) <= interval.low and interval.high <= 1 + margin:
        return Comparative.SAME
    if interval.low > 1:
        return Comparative.FASTER
    return Comparative.SLOWER if interval.high < 1 else Comparative.INCONCLUSIVE


def more_runs(estimate: RatioEstimate, margin: float, confidence: float = CONFIDENCE) -> int | None:
    """The approximate number of further runs per side for a verdict other than INCONCLUSIVE with probability POWER.

    It assumes the estimated ratio and scatter. None if the scatter is unknown, or if a million runs aren't enough.
    """
    with_more, step = estimate.with_more, estimate.step
    if with_more is None:
        return None
    centre, band = math.log(estimate.interval.value), math.log1p(margin)

    def decide(runs: int) -> bool:
        error, degrees = with_more(runs)
        return _chance_of_verdict(NormalDist(centre, error), student_t(degrees, confidence) * error, band) >= POWER

    bound = step
    while not decide(bound):
        bound *= 2
        if bound > _MOST_RUNS:
            return None
    candidates = range(step, bound + 1, step)
    return candidates[bisect.bisect_left(candidates, True, key=decide)]


def _chance_of_verdict(logarithm: NormalDist, half: float, band: float) -> float:
    """The chance that an interval of half-width `half` around a ratio's logarithm excludes 0 or lies in the band."""
    if 2 * half <= band:
        return 1.0
    same = logarithm.cdf(band - half) - logarithm.cdf(half - band) if half < band else 0.0
    return logarithm.cdf(-half) + 1 - logarithm.cdf(half) + same


def _degrees(ratio: float, over: Mean, under: Mean) -> float:
    """Welch's and Satterthwaite's degrees of freedom; the sum of both sides' degrees if neither side scatters."""
    variances, degrees = [over.variance, ratio**2 * under.variance], [over.count - 1, under.count - 1]
    fitted = satterthwaite(variances, degrees, known=over.adjustment)
    return float(sum(degrees)) if fitted is None else fitted


def smallest_effect(error: float, degrees: float, t: float) -> float | None:
    """The smallest relative difference that a test at this confidence detects with probability POWER.

    `error` is the standard error of the ratio's logarithm, which is the same for a ratio and its inverse. `t` is
    Student's quantile. The result follows from the test's noncentral t distribution. None above a factor of e**10.
    """
    from scipy.special import nctdtrinc  # a local import, as in `student_t`

    logarithm = float(nctdtrinc(degrees, 1 - POWER, t)) * error
    return math.expm1(logarithm) if logarithm < _LARGEST_LOG else None


def paired_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    confidence: float = CONFIDENCE,
    *,
    without: Collection[int] = (),
) -> RatioEstimate:
    """The ratio of paired runs. Values are in the order of the pairs; every other pair ran in reverse order.

    `without`: positions of pairs that are left out. At least one pair of each order must remain.

    Raises ValueError for unequal lengths, fewer than two pairs, or a figure that isn't above zero.
    """
    logs = _log_ratios(numerators, denominators, 2, "a paired ratio needs two or more complete pairs")
    groups = [[log for pair, log in enumerate(logs) if pair % 2 == order and pair not in without] for order in (0, 1)]
    return _of_groups(groups, confidence, "an interval needs more than two pairs")


def ratio_over_rounds(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> RatioEstimate:
    """The geometric mean of the rounds' ratios. The values are in the order of the rounds.

    Raises ValueError for unequal lengths, no rounds, or a value that isn't above zero.
    """
    logs = _log_ratios(numerators, denominators, 1, "a ratio over rounds needs one value of each point in every round")
    return _of_groups([logs], confidence, "an interval needs at least two rounds")


def _log_ratios(over: Sequence[float], under: Sequence[float], least: int, needs: str) -> list[float]:
    """The logarithms of at least `least` ratios. Raises ValueError for unequal lengths or a figure not above zero."""
    if len(over) != len(under) or len(over) < least:
        raise ValueError(needs)
    if min(*over, *under) <= 0:
        raise ValueError(f"{needs}, all above zero")
    return [math.log(numerator / denominator) for numerator, denominator in zip(over, under, strict=True)]


def _of_groups(groups: Sequence[Sequence[float]], confidence: float, few: str) -> RatioEstimate:
    """The ratio whose logarithm is the mean of the groups' means, with Student's t and the variance within the groups.

    `few`: the reason to give if there is no interval because no group has two logarithms.
    """
    centre, degrees = fmean([fmean(group) for group in groups]), sum(map(len, groups)) - len(groups)
    if degrees == 0:
        return RatioEstimate(Interval(math.exp(centre), reason=few))
    variance = math.fsum(map(squares, groups)) / degrees

    def with_more(ratios: int) -> Scatter:
        sizes = [len(group) + ratios / len(groups) for group in groups]
        error = math.sqrt(variance * math.fsum(1 / size for size in sizes)) / len(groups)
        return Scatter(error, sum(sizes) - len(groups))

    error, t = with_more(0).error, student_t(degrees, confidence)
    interval = Interval(math.exp(centre), math.exp(centre - t * error), math.exp(centre + t * error))
    return RatioEstimate(interval, degrees, smallest_effect(error, degrees, t), with_more, step=len(groups))

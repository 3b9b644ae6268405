"""The ratio of two means with its interval: for independent runs, and for interleaved pairs.

Independent runs: Fieller's interval (1940; 1954, Journal of the Royal Statistical Society B 16), all ratios r for
which N - r D does not differ from zero, where N and D are the two means. The variances of the groups may be unequal,
so the variance of N - r D is var(N) + r² var(D), with the degrees of freedom of Welch and Satterthwaite at the
estimated ratio (Tamhane & Logan 2004, Biometrika 91; as mratios' ttestratio in R does). Where D itself does not
differ from zero, that set has no upper end, or is everything: then there is no interval.

Interleaved pairs, AB, BA, AB, BA, …: each pair of neighbouring runs gives one ratio, in which slow changes of the
machine cancel. Going second may matter too (a warmer machine, one step further along a drift), so pairs that began
with A form one group and pairs that began with B another. The mean of both groups' means is free of that order and of
any linear drift. This is the analysis of a two-period cross-over trial (Hills & Armitage 1979, British Journal of
Clinical Pharmacology 8; Jones & Kenward, Design and Analysis of Cross-Over Trials, 2nd ed. 2003, ch. 2): Student's t
with the pooled variance within the groups and pairs - 2 degrees of freedom. It works on logarithms, so that the ratio
is the same read either way round; it is the ratio of the geometric means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dyno.measure.statistics import CONFIDENCE, Interval, student_t
from dyno.models.comparison import POWER, Comparative

_LARGEST_LOG = 10.0  # e**10: more than any two devices differ


@dataclass(frozen=True)
class RatioEstimate:
    """A ratio of means. `degrees` is no whole number; it and `smallest_effect` are None without an interval."""

    interval: Interval
    degrees: float | None = None
    smallest_effect: float | None = None


@dataclass(frozen=True)
class _Mean:
    """The mean of `count` runs, and the variance of that mean: s² / n."""

    value: float
    variance: float
    count: int


def ratio_of_means(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> RatioEstimate:
    """mean(numerators) / mean(denominators), each value a run's own figure.

    Raises ValueError where either is empty, or all denominators are zero.
    """
    over, under = _mean(numerators), _mean(denominators)
    if under.value == 0:
        raise ValueError("a ratio to zero")
    ratio = over.value / under.value
    if min(over.count, under.count) < 2:
        return RatioEstimate(Interval(ratio, reason="one run says nothing of its scatter: no interval"))
    degrees = _degrees(ratio, over, under)
    t = student_t(degrees, confidence)
    bounds = fieller(over.value, under.value, over.variance, under.variance, t)
    if bounds is None:
        reason = "the scatter of what it is compared with is so large that the ratio has no upper bound"
        return RatioEstimate(Interval(ratio, reason=reason), degrees)
    if over.value == 0:
        return RatioEstimate(Interval(ratio, *bounds), degrees)
    error = math.sqrt(over.variance / over.value**2 + under.variance / under.value**2)
    return RatioEstimate(Interval(ratio, *bounds), degrees, smallest_effect(error, degrees, t))


def fieller(
    numerator: float, denominator: float, numerator_variance: float, denominator_variance: float, t: float
) -> tuple[float, float] | None:
    """The bounds of numerator / denominator; variances are those of the two independent means, `t` Student's quantile.

    The roots of (N - r D)² = t² (var(N) + r² var(D)). None where the set of ratios is unbounded: |D| <= t sd(D).
    """
    scale = denominator**2 - t**2 * denominator_variance
    if scale <= 0:
        return None
    centre = numerator * denominator
    half = t * math.sqrt(numerator**2 * denominator_variance + scale * numerator_variance)
    return (centre - half) / scale, (centre + half) / scale


def comparative_verdict(interval: Interval, margin: float) -> Comparative:
    """What a ratio says; above 1 is better.

    SAME where the whole interval lies within the margin, which is two one-sided tests (Schuirmann 1987), each at half
    of 1 - confidence; 1 / (1 + margin) to 1 + margin, so that it makes no difference which of two comes first. Else
    FASTER or SLOWER where 1 lies outside it.
    """
    if interval.low is None or interval.high is None:
        return Comparative.INCONCLUSIVE
    if 1 / (1 + margin) <= interval.low and interval.high <= 1 + margin:
        return Comparative.SAME
    if interval.low > 1:
        return Comparative.FASTER
    return Comparative.SLOWER if interval.high < 1 else Comparative.INCONCLUSIVE


def _mean(values: Sequence[float]) -> _Mean:
    count = len(values)
    if not values:
        raise ValueError("no values")
    mean = math.fsum(values) / count
    squares = math.fsum((value - mean) ** 2 for value in values)
    return _Mean(mean, squares / max(count - 1, 1) / count, count)


def _degrees(ratio: float, over: _Mean, under: _Mean) -> float:
    first, second = over.variance, ratio**2 * under.variance
    spread = first**2 / (over.count - 1) + second**2 / (under.count - 1)
    if spread == 0:  # no scatter at all, so no weight to give to either
        return float(over.count + under.count - 2)
    return (first + second) ** 2 / spread


def smallest_effect(error: float, degrees: float, t: float) -> float | None:
    """The difference that a test at this confidence finds with probability POWER, as a share.

    `error` is the standard error of the ratio's logarithm, which is the same for a ratio and its inverse; `t` Student's
    quantile. From the noncentral t distribution of that test. None where it would be a factor beyond all sense.
    """
    from scipy.special import nctdtrinc  # here, as in `student_t`

    logarithm = float(nctdtrinc(degrees, 1 - POWER, t)) * error
    return math.expm1(logarithm) if logarithm < _LARGEST_LOG else None


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> RatioEstimate:
    """The ratio of each pair in the order they were run, the first pair beginning with the same side as every other.

    Raises ValueError where the two are of unequal length, fewer than two pairs, or a figure isn't above zero.
    """
    if len(numerators) != len(denominators) or len(numerators) < 2:
        raise ValueError("at least two whole pairs are needed")
    if min(*numerators, *denominators) <= 0:
        raise ValueError("a ratio of what isn't above zero")
    logs = [math.log(over / under) for over, under in zip(numerators, denominators, strict=True)]
    groups = logs[0::2], logs[1::2]
    means = [math.fsum(group) / len(group) for group in groups]
    centre, degrees = math.fsum(means) / 2, len(logs) - 2
    if degrees == 0:
        reason = "two pairs, one each way round, say nothing of their scatter: no interval"
        return RatioEstimate(Interval(math.exp(centre), reason=reason))
    squares = math.fsum((x - mean) ** 2 for group, mean in zip(groups, means, strict=True) for x in group)
    error = math.sqrt(squares / degrees * math.fsum(1 / len(group) for group in groups)) / 2
    t = student_t(degrees, confidence)
    low, high = math.exp(centre - t * error), math.exp(centre + t * error)
    return RatioEstimate(Interval(math.exp(centre), low, high), degrees, smallest_effect(error, degrees, t))

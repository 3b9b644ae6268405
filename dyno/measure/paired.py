"""How many times as large is one figure as another, where their runs took turns: AB, BA, AB, BA, …

Each pair of neighbouring runs gives one ratio, in which what changed slowly on the machine has dropped out. Going
second may matter too (a warmer machine, and one step further along a drift), so pairs that began with the one are a
group, those that began with the other another: the mean of both groups' means is free of that order, and of any
drift that is a straight line. This is the analysis of a two-period cross-over trial (Hills & Armitage 1979, British
Journal of Clinical Pharmacology 8; Jones & Kenward, Design and Analysis of Cross-Over Trials, 2nd ed. 2003, ch. 2):
Student's t with the pooled variance within the groups and pairs - 2 degrees of freedom, on logarithms, as a ratio is
to be the same read either way round. So the ratio is that of the geometric means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dyno.measure.ratio import RatioEstimate, smallest_effect
from dyno.measure.statistics import CONFIDENCE, Interval, student_t


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

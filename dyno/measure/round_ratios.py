"""The ratio of two points of a sweep whose jobs took turns in rounds.

Each round has one job of either point, and gives one ratio of their values: changes of the machine from round to round
cancel. The order within a round is random, so changes within one are scatter. The interval is Student's t over the
rounds' logarithms, with rounds - 1 degrees of freedom, so it covers what differs between jobs of the same spec; the
runs of a single job don't show that. Swapping the points inverts the ratio exactly.
"""

import math
from collections.abc import Sequence

from dyno.measure.ratios import RatioEstimate, smallest_effect
from dyno.measure.statistics import CONFIDENCE, Interval, mean_interval, student_t


def ratio_over_rounds(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> RatioEstimate:
    """The geometric mean of the rounds' ratios. The values are in the order of the rounds.

    Raises ValueError for unequal lengths, no rounds, or a value that isn't above zero.
    """
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError("a ratio over rounds needs one value of each point in every round")
    if min(*numerators, *denominators) <= 0:
        raise ValueError("a ratio over rounds needs values above zero")
    logs = [math.log(over / under) for over, under in zip(numerators, denominators, strict=True)]
    found = mean_interval(logs, confidence)
    centre = math.exp(found.value or 0.0)
    if found.low is None or found.high is None:
        return RatioEstimate(Interval(centre, reason="an interval needs at least two rounds"))
    degrees = len(logs) - 1
    t = student_t(degrees, confidence)
    error = (found.high - found.low) / 2 / t
    interval = Interval(centre, math.exp(found.low), math.exp(found.high))
    return RatioEstimate(interval, degrees, smallest_effect(error, degrees, t))

"""MULTIMODAL: do the runs fall into two groups far apart from each other?

The medians are cut in two where the scatter between the groups is the largest multiple of the scatter within them:
the likelihood ratio of two normal groups of one width against a single one (Engelman & Hartigan 1969, "Percentage
Points of a Test for Clusters"). Their percentage points are for the normal distribution; LIMITS are those of Student's
t with 3 degrees of freedom, simulated (400,000 trials, 100,000 from 30 runs on), as runs have such tails: it raises
one set in a hundred, a normal distribution fewer (of five runs 0.6 %, of ten 0.1 %), an exponential one two.

What this can find. With a fifth of all processes in a second mode, five runs visit it in 67 % of cases (1 - 0.8^5):
what no run visited looks like a job of one mode, so a rule that raised it would raise every such job. 14 runs visit it
in 96 %. Once visited, it is found where the modes are far apart, against the scatter within them: five runs find half
of those 17 standard deviations apart (one training loop was seen to alternate between 180 and 310 us a sample), ten
runs half of those 10 apart. Visited modes that lie nearer are in the interval, which is as wide as they are apart.
`benchmarks/coverage.py` counts all of this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dyno.measure.statistics import median
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning

MIN_RUNS = 5
# Runs -> the ratio of the two scatters that one set in a hundred exceeds; for counts between two, that of the lower.
LIMITS = {5: 108.0, 6: 53.0, 7: 35.0, 8: 26.5, 10: 18.0, 12: 14.3, 15: 11.4, 20: 8.7, 30: 6.7, 50: 4.8, 100: 3.5}
# Groups closer than the margin inside which two results count as the same don't matter.
MIN_SHIFT = 0.02


def multimodal(medians: Sequence[float]) -> ResultWarning | None:
    """`medians`: one per run. Silent below five runs, which can't tell two modes from scatter."""
    if len(medians) < MIN_RUNS:
        return None
    ordered = sorted(medians)
    scatters = {cut: _scatter_ratio(ordered[:cut], ordered[cut:]) for cut in range(1, len(ordered))}
    cut = max(scatters, key=lambda place: scatters[place])
    shift = (ordered[cut] - ordered[cut - 1]) / median(ordered)
    limit = LIMITS[max(count for count in LIMITS if count <= len(medians))]
    if shift <= MIN_SHIFT or scatters[cut] <= limit:
        return None
    return warning(
        "MULTIMODAL",
        f"{cut} and {len(ordered) - cut} runs lie {shift:.1%} apart.",
        low_group=list(ordered[:cut]),
        high_group=list(ordered[cut:]),
        gap=ordered[cut] - ordered[cut - 1],
        scatter_ratio=scatters[cut] if math.isfinite(scatters[cut]) else None,
        limit=limit,
    )


def _scatter_ratio(low: Sequence[float], high: Sequence[float]) -> float:
    """Sum of squares between two groups over that within them; infinite where neither scatters at all."""
    low_mean, high_mean = math.fsum(low) / len(low), math.fsum(high) / len(high)
    within = math.fsum((value - low_mean) ** 2 for value in low) + math.fsum((value - high_mean) ** 2 for value in high)
    between = (high_mean - low_mean) ** 2 * len(low) * len(high) / (len(low) + len(high))
    return between / within if within > 0 else math.inf

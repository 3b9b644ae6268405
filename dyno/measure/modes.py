"""MULTIMODAL: do the runs fall into groups far apart from each other?

The largest gap between neighbouring medians is compared with the wider of the two groups it leaves (Dixon's ratio
for outliers (1950), with either group of any size). Simulated limits, 200,000 trials each: in one of a hundred sets of
five medians from one normal distribution the gap is 6.3 times the wider group or more (six 3.8, seven 2.8); from
Student's t with 3 degrees of freedom 8.3, 5.7, 4.7. The limits below lie above, so that one mode raises it in 1 % of
cases. What this finds is bimodal by a wide margin: with five runs, modes about 15 standard deviations apart, such as
the 180 and 310 us per sample that one training loop was seen to alternate between. A mode that none of the runs
visited can't be found by anybody: with 20 % of processes in it, that is one set of five in three.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dyno.measure.statistics import median
from dyno.measure.warnings import warning
from dyno.result import ResultWarning

MIN_RUNS = 5
LIMITS = {5: 8.0, 6: 5.5}
LIMIT_ABOVE = 4.5  # seven runs and more
# Groups closer than the margin inside which two results count as the same don't matter.
MIN_SHIFT = 0.02


def multimodal(medians: Sequence[float]) -> ResultWarning | None:
    """`medians`: one per run. Silent below five runs, which can't tell two modes from scatter."""
    if len(medians) < MIN_RUNS:
        return None
    ordered = sorted(medians)
    gaps = [high - low for low, high in pairwise(ordered)]
    cut = gaps.index(max(gaps)) + 1
    low_group, high_group = ordered[:cut], ordered[cut:]
    wider = max(low_group[-1] - low_group[0], high_group[-1] - high_group[0])
    shift = gaps[cut - 1] / median(ordered)
    if shift <= MIN_SHIFT or gaps[cut - 1] <= LIMITS.get(len(medians), LIMIT_ABOVE) * wider:
        return None
    return warning(
        "MULTIMODAL",
        f"{len(low_group)} and {len(high_group)} runs lie {shift:.1%} apart.",
        low_group=list(low_group),
        high_group=list(high_group),
        gap=gaps[cut - 1],
        wider_group=wider,
    )

"""Three ways to an interval from the samples of several runs: Dyno's own, and two that fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from benchmarks.synthetic import Array
from dyno.measure.statistics import CONFIDENCE, Interval, mean_interval, median, median_interval


def over_runs(samples: Array) -> Interval:
    """What Dyno reports: Student's t over the medians of the runs. `samples`: of shape (runs, samples)."""
    return mean_interval([median(run) for run in samples.tolist()])


def pooled(samples: Array) -> Interval:
    """As if all samples were independent: the order-statistic interval of the median of all of them."""
    return median_interval(samples.ravel().tolist())


def bootstrap_of_means(medians: Sequence[float]) -> Interval:
    """The percentile bootstrap of the mean, exactly: over all resamples there are, not a random choice of them."""
    counts, chances = _resamples(len(medians))
    means = counts @ np.asarray(medians) / len(medians)
    order = np.argsort(means)
    reached = np.cumsum(chances[order])
    low, high = (
        means[order][np.searchsorted(reached, level)] for level in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    )
    return Interval(math.fsum(medians) / len(medians), float(low), float(high))


def holds(interval: Interval, truth: float) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= truth <= interval.high


@cache
def _resamples(count: int) -> tuple[Array, Array]:
    """How often each of `count` values is in each resample, and the resample's chance; 126 of five values."""
    drawn = list(combinations_with_replacement(range(count), count))
    counts = np.array([np.bincount(each, minlength=count) for each in drawn], float)
    ways = [math.factorial(count) / math.prod(math.factorial(int(n)) for n in row) for row in counts]
    return counts, np.array(ways) / count**count

"""Several trainings that differ in their seed, where accuracy itself is the question."""

from __future__ import annotations

from collections.abc import Sequence

from dyno.measure.statistics import mean_interval
from dyno.result import Trial

_SEEDS = 2**32


def seed_of(seed: int, trial: int) -> int:
    """That of trial number `trial` (from 0) of a job with `seed`."""
    return (seed + trial) % _SEEDS


def over_seeds(trials: Sequence[Trial]) -> dict[str, float]:
    """The mean accuracy with Student's t over the seeds, within 0 to 1; nothing of one trial, or without accuracies."""
    accuracies = [trial.accuracy for trial in trials if trial.accuracy is not None]
    if len(accuracies) < 2:
        return {}
    interval = mean_interval(accuracies)
    assert interval.low is not None
    assert interval.high is not None
    return {
        "accuracy": interval.value,
        "accuracy_low": max(0.0, interval.low),
        "accuracy_high": min(1.0, interval.high),
    }

"""Several trainings that differ in their seed, where accuracy itself is the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dyno.measure.statistics import mean_interval
from dyno.models.result import Epoch, Trial

_SEEDS = 2**32


def seed_of(seed: int, trial: int) -> int:
    """That of trial number `trial` (from 0) of a job with `seed`."""
    return (seed + trial) % _SEEDS


def trial_of(seed: int, epochs: Sequence[Epoch], judged: Mapping[str, Any]) -> Trial:
    """`judged`: `Outcome.training` of that trial."""
    loss, accuracy, wrong = epochs[-1].loss, judged.get("accuracy"), judged.get("wrong")
    return Trial(seed=seed, epochs=len(epochs), loss=loss, accuracy=accuracy, wrong=wrong)


def over_seeds(trials: Sequence[Trial]) -> dict[str, float | None]:
    """The mean accuracy with Student's t over the seeds, within 0 to 1; nothing of one trial, or without accuracies.

    `wrong` is each trial's own: beside a mean it would be that of one of them.
    """
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
        "wrong": None,
    }

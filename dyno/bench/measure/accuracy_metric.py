"""Make metrics of a training's accuracy on its test set, and of its time to an accuracy, so that results compare.

Each metric has one figure for each trial, a full training with its own seed. So the interval of a comparison is over
the seeds: it says whether further seeds would show the difference. One trial gives no interval.

The names `time_to_accuracy_0.98` and `epochs_to_accuracy_0.98` contain the target, so a comparison never mixes targets.
A trial that missed the target is censored: its time is longer than the training. The mean of the other trials would be
too short, so then the metric has no value.

Jobs of one spec have the same seeds, so more trials narrow these intervals, but more jobs don't.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from dyno.bench.measure.statistics import mean_interval
from dyno.models.result import AccuracySummary, Metric, Result, ResultSummary, Training, Trial

NAME = "test_accuracy"
_TIME, _EPOCHS = "time_to_accuracy_", "epochs_to_accuracy_"

_Training = Training | AccuracySummary


def is_over_seeds(name: str) -> bool:
    """Whether this module makes the metric `name`."""
    return name == NAME or name.startswith((_TIME, _EPOCHS))


def names_for(params: object) -> list[str]:
    """The names that the result of a job with these params will have."""
    if not getattr(params, "tests_accuracy", False):
        return []
    target = getattr(params, "target_accuracy", None)
    return [NAME] if target is None else [NAME, *(f"{kind}{target:g}" for kind in (_TIME, _EPOCHS))]


@overload
def with_accuracy(result: Result) -> Result: ...


@overload
def with_accuracy(result: ResultSummary) -> ResultSummary: ...


def with_accuracy(result: Result | ResultSummary) -> Result | ResultSummary:
    """The result with these metrics after its others, as far as it has the figures."""
    training = result.training
    if training is None or any(metric.name == NAME for metric in result.metrics):
        return result
    return result.model_copy(update={"metrics": [*result.metrics, *_of_training(training)]})


def _of_training(training: _Training) -> Iterator[Metric]:
    if training.accuracy is not None:
        of_trials = [trial.accuracy for trial in training.trials if trial.accuracy is not None] or [training.accuracy]
        accuracy = _metric(NAME, "1", of_trials, training)
        high = None if accuracy.high is None else min(1.0, accuracy.high)
        yield accuracy.model_copy(update={"better": "higher", "high": high})
    if training.target_accuracy is not None:
        target, trials = f"{training.target_accuracy:g}", training.trials
        seconds = [trial.time_to_accuracy_s for trial in trials]
        epochs = [None if trial.epochs_to_accuracy is None else float(trial.epochs_to_accuracy) for trial in trials]
        yield _until(f"{_TIME}{target}", "s", seconds, training)
        yield _until(f"{_EPOCHS}{target}", "epochs", epochs, training)


def _until(name: str, unit: str, of_trials: Sequence[float | None], training: _Training) -> Metric:
    reached = [figure for figure in of_trials if figure is not None]
    if len(reached) == len(of_trials):
        return _metric(name, unit, reached, training)
    missed, target = _missed(training.trials), training.target_accuracy
    reason = f"{missed} of {len(of_trials)} trials didn't reach an accuracy of {target:g}; a mean would leave them out"
    return Metric(name=name, unit=unit, value=None, better="lower", runs=len(of_trials), samples=0, reason=reason)


def _missed(trials: Sequence[Trial]) -> int:
    return sum(trial.epochs_to_accuracy is None for trial in trials)


def _metric(name: str, unit: str, of_trials: Sequence[float], training: _Training) -> Metric:
    interval = mean_interval(of_trials)
    return Metric(
        name=name,
        unit=unit,
        value=interval.value,
        low=None if interval.low is None else max(0.0, interval.low),
        high=interval.high,
        better="lower",
        runs=len(of_trials),
        samples=len(of_trials) * training.data.test_samples,
        reason=None if interval.low is not None else "one trial gives no interval over seeds: set `trials`",
        by_run=[*of_trials],
    )

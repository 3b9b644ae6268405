"""The accuracy of a training on its test set, as a metric that results can be compared by.

It has one figure for each trial, a full training with its own seed. So the interval of a comparison is over the seeds:
it says whether further seeds would show the difference. One trial gives no interval.
"""

from dyno.measure.statistics import mean_interval
from dyno.models.result import Metric, Result

NAME = "test_accuracy"


def with_accuracy(result: Result) -> Result:
    """The result with `test_accuracy` as its last metric, if it has an accuracy."""
    training = result.training
    if training is None or training.accuracy is None or any(metric.name == NAME for metric in result.metrics):
        return result
    of_trials = [trial.accuracy for trial in training.trials if trial.accuracy is not None] or [training.accuracy]
    interval = mean_interval(of_trials)
    metric = Metric(
        name=NAME,
        unit="1",
        value=interval.value,
        low=None if interval.low is None else max(0.0, interval.low),
        high=None if interval.high is None else min(1.0, interval.high),
        better="higher",
        runs=len(of_trials),
        samples=len(of_trials) * training.data.test_samples,
        reason=None if interval.low is not None else "one trial gives no interval over seeds: set `trials`",
        by_run=of_trials,
    )
    return result.model_copy(update={"metrics": [*result.metrics, metric]})

"""Accuracies of trainings, compared over their seeds."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dyno.bench.measure.accuracy_metric import is_over_seeds, names_for, with_accuracy
from dyno.bench.measure.compare_results import compare
from dyno.bench.registry import registry
from dyno.bench.workloads.mnist_cnn import WORKLOAD
from dyno.errors import InvalidComparison
from dyno.models.comparison import CompareHow
from dyno.models.result import DataOrigin, Epoch, ResultSummary, Training, Trial
from tests.comparisons import a_metric, an_entry
from tests.results import a_result

DATA = DataOrigin(name="mnist", kind="real", train_samples=60000, test_samples=10000)


def trained(accuracies):
    """A result of that many trials."""
    trials = [
        Trial(seed=seed, epochs=1, loss=0.1, highest_loss=0.1, accuracy=each) for seed, each in enumerate(accuracies)
    ]
    epochs = [Epoch(index=0, time_s=1.0, loss=0.1)]
    known = Training(epochs=epochs, seed=0, data=DATA, accuracy=accuracies[0], trials=trials if len(trials) > 1 else [])
    entry = an_entry(training=known, spec={"workload": "mnist_cnn"})
    return replace(entry, result=with_accuracy(entry.result))


def compared(*entries, margin=0.02):
    how = CompareHow(metric="test_accuracy", margin=margin)
    return compare(how, entries, WORKLOAD, datetime.now(UTC))


def test_a_difference_beyond_the_seeds_is_real():
    better, worse = [0.845, 0.846, 0.844, 0.8455, 0.8445], [0.830, 0.831, 0.829, 0.8305, 0.8295]
    found = compared(trained(worse), trained(better), margin=0.001).results
    assert (found[0].value, found[0].runs) == (pytest.approx(0.83), 5)
    ratio = found[1].ratio
    assert ratio is not None
    assert (ratio.verdict, ratio.value) == ("FASTER", pytest.approx(0.845 / 0.83))
    assert ratio.low is not None
    assert 1.01 < ratio.low < ratio.value
    assert found[1].low == pytest.approx(0.845 - 0.00098, abs=1e-4)


def test_a_difference_within_the_seeds_is_not():
    found = compared(trained([0.80, 0.86, 0.83]), trained([0.82, 0.87, 0.845])).results[1].ratio
    assert found is not None
    assert found.verdict == "INCONCLUSIVE"
    assert found.more_runs is not None


def test_one_trial_gives_no_interval():
    compared_ones = compared(trained([0.83]), trained([0.845]))
    found = compared_ones.results[1]
    assert found.ratio is not None
    assert (found.low, found.ratio.verdict) == (None, "INCONCLUSIVE")
    assert "two runs on each side" in str(found.ratio.reason)


def reaching(seconds, target=0.98, batch_size=128):
    """A result whose trials took that many seconds to the target; None: not reached."""
    trials = [
        Trial(
            seed=0,
            epochs=5,
            loss=0.1,
            highest_loss=0.1,
            time_to_accuracy_s=each,
            epochs_to_accuracy=None if each is None else 3,
        )
        for each in seconds
    ]
    epochs = [Epoch(index=0, time_s=1.0, loss=0.1)]
    known = Training(epochs=epochs, seed=0, data=DATA, trials=trials, target_accuracy=target)
    spec = {"workload": "mnist_cnn", "params": {"batch_size": batch_size}}
    entry = an_entry(training=known, spec=spec)
    return replace(entry, result=with_accuracy(entry.result))


def test_times_to_an_accuracy_are_compared_over_the_seeds_even_with_other_batches():
    slow, fast = reaching([20.0, 21.0, 19.0]), reaching([10.0, 10.5, 9.5], batch_size=1024)
    how = CompareHow(metric="time_to_accuracy_0.98")
    ratio = compare(how, [slow, fast], WORKLOAD, datetime.now(UTC)).results[1].ratio
    assert ratio is not None
    assert (ratio.verdict, ratio.value) == ("FASTER", pytest.approx(2.0))
    assert ratio.low is not None


def test_a_trial_that_did_not_reach_it_is_never_averaged_away():
    entry = reaching([10.0, None, 9.5])
    metric = entry.result.metric("time_to_accuracy_0.98")
    assert metric is not None
    assert (metric.value, metric.by_run) == (None, [])
    assert str(metric.reason).startswith("1 of 3 trials didn't reach an accuracy of 0.98")
    how = CompareHow(metric="time_to_accuracy_0.98")
    found = compare(how, [entry, reaching([20.0, 21.0])], WORKLOAD, datetime.now(UTC)).results[1].ratio
    assert found is not None
    assert (found.verdict, found.value) == ("INCONCLUSIVE", None)
    assert str(found.reason).startswith("there is no figure to compare: 1 of 3 trials didn't reach")


def test_a_summary_of_the_result_has_the_same_metrics():
    """Sweeps read summaries."""
    for entry in (trained([0.83, 0.84, 0.85]), reaching([10.0, None]), reaching([10.0, 11.0])):
        own = [metric for metric in entry.result.metrics if is_over_seeds(metric.name)]
        plain = entry.result.model_copy(update={"metrics": [a_metric()]})
        summary = with_accuracy(ResultSummary.model_validate_json(plain.model_dump_json()))
        assert own
        assert summary.metrics[1:] == own


def test_the_names_follow_from_the_params():
    params = {"epochs": 1, "train_samples": 80}
    with_target = WORKLOAD.params.model_validate(params | {"target_accuracy": 0.98})
    assert names_for(WORKLOAD.params.model_validate(params)) == ["test_accuracy"]
    assert names_for(with_target) == ["test_accuracy", "time_to_accuracy_0.98", "epochs_to_accuracy_0.98"]
    assert names_for(registry()["matmul"].params.model_validate({"n": 64})) == []


def test_different_targets_are_not_compared():
    how = CompareHow(metric="time_to_accuracy_0.98")
    with pytest.raises(InvalidComparison):
        compare(how, [reaching([10.0, 11.0]), reaching([5.0, 6.0], 0.9)], WORKLOAD, datetime.now(UTC))


def test_a_result_without_an_accuracy_stays_as_it_is():
    result = a_result("job_1")
    assert with_accuracy(result) is result

"""Metrics, fraction of peak and energy, with figures that can be computed by hand."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dyno.bench.contract import LATENCIES
from dyno.bench.measure.compare_results import compare
from dyno.bench.measure.result_metrics import accuracy_names, all_metrics, energy, is_over_seeds, with_accuracy
from dyno.bench.registry import registry
from dyno.bench.workloads.mnist_cnn import WORKLOAD
from dyno.errors import InvalidComparison
from dyno.models.comparison import CompareHow
from dyno.models.result import DataOrigin, Epoch, ResultSummary, Sensors, Training, Trial
from dyno.models.runner_protocol import CallQuantile
from tests.comparisons import a_metric, an_entry

DATA = DataOrigin(name="mnist", kind="real", train_samples=60000, test_samples=10000)
TRAINING = Training(epochs=[], seed=0, data=DATA)


def metric(result, name):
    return next(each for each in result.metrics if each.name == name)


def test_a_percentile_of_calls_has_an_interval_over_runs_or_over_the_calls_of_one(record):
    spec, name = LATENCIES[0], LATENCIES[0].name

    def run(value, reason=None):
        calls = CallQuantile(value=value, low=0.5, high=9.0, calls=700, reason=reason)
        return record([1.0] * 20).model_copy(update={"calls": {name: calls}})

    [alone] = all_metrics([spec], [run(2.0)])
    assert (alone.value, alone.low, alone.high, alone.samples) == (2.0, 0.5, 9.0, 700)
    assert alone.reason == "over one run's calls: it says nothing about further runs"
    [over] = all_metrics([spec], [run(2.0), run(3.0), run(4.0)])
    assert (over.value, over.runs, over.samples, over.by_run) == (3.0, 3, 2100, [2.0, 3.0, 4.0])
    assert over.low == pytest.approx(3 - 4.302653 / 3**0.5)
    [absent] = all_metrics([spec], [run(2.0), run(None, "the line grows for ever")])
    assert (absent.value, absent.reason) == (None, "the line grows for ever")


def test_all_workloads_count_their_work_in_five_units():
    rates = {spec.unit for each in registry().values() for spec in each.metrics if spec.unit.endswith("/s")}
    assert rates == {"FLOP/s", "samples/s", "tokens/s", "queries/s", "bytes/s"}


def test_joules_per_sample_are_of_samples_alone(record):
    sensors = Sensors(energy_j=10.0, energy_s=2.0, energy_of="package")
    runs = [record([1.0] * 20, sensors=sensors)]
    known = {unit: energy(runs, unit, 100.0).joules_per_sample for unit in ("samples/s", "bytes/s", "FLOP/s", None)}
    assert {unit for unit, joules in known.items() if joules} == {"samples/s"}


def test_a_rate_is_the_mean_of_the_runs_rates_with_student_s_t(result):
    """Rates 2000, 1000, 500: mean 1166.67, deviation 763.76, t(2) = 4.3027: ± 1897.3, but no rate is below zero."""
    rate = metric(result(), "throughput")
    assert rate.value == pytest.approx(3500 / 3)
    assert rate.low == 0.0
    assert rate.high == pytest.approx(3500 / 3 + 1897.3, abs=0.1)
    assert (rate.runs, rate.samples, rate.better, rate.unit) == (3, 60, "higher", "FLOP/s")


def test_a_time_is_per_unit_of_work_times_its_amount(result):
    assert metric(result(), "execution_time").value == pytest.approx(3.5 / 3)


def test_a_rate_has_work_per_cycle_of_its_run_s_clock_and_nothing_else_has(result, record):
    """Rates of 1000 and 2000 FLOP/s at 1 and 2 kHz: one FLOP per cycle in both runs."""
    clocks = ((1.0, 1e3), (0.5, 2e3))
    found = result([record([time_s] * 20, clock_hz=hz) for time_s, hz in clocks])
    rate = metric(found, "throughput").per_cycle
    assert (rate.value, rate.unit, rate.low, rate.high) == (1.0, "FLOP/cycle", 1.0, 1.0)
    assert [each.name for each in found.metrics if each.per_cycle] == ["throughput"]


def test_an_unknown_clock_of_a_run_leaves_no_work_per_cycle(result, record):
    runs = [record([1.0] * 20, clock_hz=clock) for clock in (3e9, None)]
    assert metric(result(runs), "throughput").per_cycle is None


def test_a_cold_rate_comes_from_the_first_executions(result):
    cold = metric(result(), "cold_throughput")
    assert (cold.value, cold.low, cold.high, cold.samples) == (2000.0, 2000.0, 2000.0, 3)


def test_a_run_without_a_first_execution_leaves_the_cold_rate_unknown(result, record):
    runs = [record([1.0] * 20, first_execution_s=first) for first in (0.5, None)]
    cold = metric(result(runs), "cold_throughput")
    assert cold.value is None
    assert cold.reason


def test_training_has_no_cold_rate_and_comes_from_the_run_that_trained(result, record):
    runs = [record([1.0] * 20, training=training) for training in (TRAINING, None)]
    found = result(runs)
    assert not [each.name for each in found.metrics if each.name.startswith("cold_")]
    assert found.training == TRAINING


def test_a_figure_taken_once_has_no_interval_and_a_missing_one_has_a_reason(result, record):
    once = metric(result([record([1.0] * 20, figures={"startup": 7.0})]), "startup")
    assert (once.value, once.low, once.runs) == (7.0, None, 1)
    absent = metric(result(), "startup")
    assert (absent.value, absent.runs) == (None, 0)
    assert absent.reason


def test_a_figure_of_each_run_has_an_interval_and_is_missing_if_a_run_lacks_it(result, record):
    """0.1 and 0.3: mean 0.2, deviation 0.1414, t(1) = 12.706: ± 1.27, but no share is below zero."""
    runs = [record([1.0] * 20, figures={"waiting": share}) for share in (0.1, 0.3)]
    waiting = metric(result(runs), "waiting")
    assert (waiting.value, waiting.low, waiting.high) == pytest.approx((0.2, 0.0, 1.4706), abs=1e-4)
    assert waiting.by_run == [0.1, 0.3]
    absent = metric(result([*runs, record([1.0] * 20)]), "waiting")
    assert (absent.value, absent.reason) == (None, "a run didn't measure it")


def test_one_run_has_no_interval_but_a_reason(result, record):
    rate = metric(result([record([1.0] * 20)]), "throughput")
    assert (rate.value, rate.low, rate.high) == (1000.0, None, None)
    assert rate.reason == "one run gives no interval"


def test_the_fraction_of_peak_uses_the_peak_of_the_dtype_that_ran(result):
    peak = result().peak
    assert peak.fraction == pytest.approx(3500 / 3 / 10_000)
    assert peak.provenance == "measured here"


def test_the_fraction_of_peak_uses_the_flop_that_a_run_reports(result, record):
    records = [record([1.0] * 20, flops=flops) for flops in (None, 250.0)]
    assert [result([each]).peak.fraction for each in records] == pytest.approx([0.1, 0.025])


@pytest.mark.parametrize(("dtype", "reason"), [("bfloat16", "no unit"), ("float16", "was not measured")])
def test_an_unknown_peak_is_null_with_a_reason(result, dtype, reason):
    peak = result(dtype=dtype).peak
    assert (peak.value, peak.fraction) == (None, None)
    assert reason in (peak.reason or "")


def test_a_metric_keeps_the_figure_of_each_run_and_one_taken_once_has_none(result):
    metrics = {metric.name: metric for metric in result().metrics}
    assert metrics["throughput"].by_run == [2000.0, 1000.0, 500.0]
    assert metrics["execution_time"].by_run == [0.5, 1.0, 2.0]
    assert metrics["startup"].by_run == []


def counted(joules, seconds=20.0, **reasons):
    return Sensors(looks=2, energy_j=joules, energy_s=seconds, energy_of="a counter", reasons=reasons)


def test_joules_add_up_and_are_divided_by_the_executions(record):
    """100 W and 200 W in runs of 20 executions of 1 s each: 150 J for an execution of 1000 samples or FLOP."""
    runs = [record([1.0] * 20, sensors=counted(joules)) for joules in (2000.0, 4000.0)]
    images = energy(runs, "images/s", flops=3e6)
    assert (images.joules, images.window_s, images.covers, images.reason) == (6000.0, 40.0, "a counter", None)
    assert (images.joules_per_sample, images.flop_per_joule) == (pytest.approx(0.15), pytest.approx(2e4))
    products = energy(runs, "FLOP/s", flops=1000.0)
    assert (products.joules_per_sample, products.flop_per_joule) == (None, pytest.approx(1000 / 150))


def test_a_counter_read_over_part_of_the_window_counts_by_its_power(record):
    """100 W over the last 10 s of 20 executions that took 20 s."""
    found = energy([record([1.0] * 20, sensors=counted(1000.0, 10.0))], "images/s", flops=0.0)
    assert (found.joules, found.window_s) == (1000.0, 10.0)
    assert (found.joules_per_sample, found.flop_per_joule) == (pytest.approx(0.1), None)


def test_a_run_without_energy_leaves_the_total_unknown_with_a_reason(record):
    silent = counted(None, None, energy_j="root alone may read it")
    found = energy([record([1.0] * 20, sensors=each) for each in (counted(2000.0), silent)], "images/s", 1.0)
    assert (found.joules, found.joules_per_sample, found.reason) == (None, None, "root alone may read it")
    assert energy([record([1.0] * 20)], None, 0.0).reason == "no energy counter was read"


def test_a_result_has_flop_per_joule_of_its_own_work(result, record):
    found = result([record([1.0] * 20, sensors=counted(2000.0))] * 2)
    assert (found.energy.joules, found.energy.flop_per_joule) == (4000.0, pytest.approx(10.0))


def an_accuracy(accuracies=(), seconds=(), target=0.98, batch_size=128):
    """An entry whose trials reached these accuracies, or took these seconds to the target; None: not reached."""
    usual = {"epochs": 5, "loss": 0.1, "highest_loss": 0.1}
    trials = [Trial(seed=seed, accuracy=accuracy, **usual) for seed, accuracy in enumerate(accuracies)]
    trials += [Trial(seed=0, time_to_accuracy_s=each, epochs_to_accuracy=each and 3, **usual) for each in seconds]
    known = {"accuracy": accuracies[0]} if accuracies else {"target_accuracy": target}
    epochs = [Epoch(index=0, time_s=1.0, loss=0.1)]
    kept = trials if seconds or len(trials) > 1 else []
    training = Training(epochs=epochs, seed=0, data=DATA, trials=kept, **known)
    entry = an_entry(training=training, spec={"workload": "mnist_cnn", "params": {"batch_size": batch_size}})
    return replace(entry, result=with_accuracy(entry.result))


def compared(*entries, metric="test_accuracy", margin=0.02):
    return compare(CompareHow(metric=metric, margin=margin), entries, WORKLOAD, datetime.now(UTC)).results


def test_a_difference_of_accuracies_beyond_the_seeds_is_real():
    better, worse = [0.845, 0.846, 0.844, 0.8455, 0.8445], [0.830, 0.831, 0.829, 0.8305, 0.8295]
    first, second = compared(an_accuracy(worse), an_accuracy(better), margin=0.001)
    assert (first.value, first.runs) == (pytest.approx(0.83), 5)
    assert (second.ratio.verdict, second.ratio.value) == ("FASTER", pytest.approx(0.845 / 0.83))
    assert 1.01 < second.ratio.low < second.ratio.value
    assert second.low == pytest.approx(0.845 - 0.00098, abs=1e-4)
    ratio = compared(an_accuracy([0.80, 0.86, 0.83]), an_accuracy([0.82, 0.87, 0.845]))[1].ratio
    assert (ratio.verdict, ratio.more_runs > 0) == ("INCONCLUSIVE", True), "within the seeds"


def test_one_trial_gives_no_interval():
    _, second = compared(an_accuracy([0.83]), an_accuracy([0.845]))
    assert (second.low, second.ratio.verdict) == (None, "INCONCLUSIVE")
    assert "two runs on each side" in second.ratio.reason


def test_times_to_an_accuracy_are_compared_over_the_seeds_even_with_other_batches():
    slow, fast = an_accuracy(seconds=[20.0, 21.0, 19.0]), an_accuracy(seconds=[10.0, 10.5, 9.5], batch_size=1024)
    ratio = compared(slow, fast, metric="time_to_accuracy_0.98")[1].ratio
    assert (ratio.verdict, ratio.value, ratio.low > 1) == ("FASTER", pytest.approx(2.0), True)


def test_a_trial_that_did_not_reach_it_is_never_averaged_away():
    entry = an_accuracy(seconds=[10.0, None, 9.5])
    time = metric(entry.result, "time_to_accuracy_0.98")
    assert (time.value, time.by_run) == (None, [])
    assert time.reason.startswith("1 of 3 trials didn't reach an accuracy of 0.98")
    ratio = compared(entry, an_accuracy(seconds=[20.0, 21.0]), metric="time_to_accuracy_0.98")[1].ratio
    assert (ratio.verdict, ratio.value) == ("INCONCLUSIVE", None)
    assert ratio.reason.startswith("there is no figure to compare: 1 of 3 trials didn't reach")


def test_different_targets_are_not_compared():
    with pytest.raises(InvalidComparison):
        compared(
            an_accuracy(seconds=[10.0, 11.0]), an_accuracy(seconds=[5.0], target=0.9), metric="time_to_accuracy_0.98"
        )


@pytest.mark.parametrize("trials", [{"accuracies": [0.83, 0.84, 0.85]}, {"seconds": [10.0, None]}, {"seconds": [10.0]}])
def test_a_summary_of_the_result_has_the_same_metrics(trials):
    """Sweeps read summaries."""
    result = an_accuracy(**trials).result
    own = [each for each in result.metrics if is_over_seeds(each.name)]
    plain = result.model_copy(update={"metrics": [a_metric()]})
    assert with_accuracy(ResultSummary.model_validate_json(plain.model_dump_json())).metrics[1:] == own != []


def test_the_names_follow_from_the_params():
    def names(workload, **params):
        return accuracy_names(workload.params.model_validate(params))

    usual = {"epochs": 1, "train_samples": 80}
    assert names(WORKLOAD, **usual) == ["test_accuracy"]
    with_target = ["test_accuracy", "time_to_accuracy_0.98", "epochs_to_accuracy_0.98"]
    assert names(WORKLOAD, target_accuracy=0.98, **usual) == with_target
    assert names(registry()["matmul"], n=64) == []
    result = an_entry().result
    assert with_accuracy(result) is result

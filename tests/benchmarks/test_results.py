from __future__ import annotations

from typing import Any

from benchmarks.results import data, detail, epochs, figure, quality
from dyno.models.result import DataOrigin, Epoch, Metric, Training

ORIGIN = DataOrigin(name="mnist", kind="sample", train_samples=8000, test_samples=2000)


def training(**fields: Any) -> Training:
    made = [Epoch(index=index, time_s=2.0 / (index + 1), loss=1.0 - index / 4) for index in range(3)]
    return Training(epochs=made, seed=0, data=ORIGIN, **fields)


def metric(**fields: Any) -> Metric:
    return Metric(**{"name": "time_per_sample", "unit": "s", "value": 2e-4, "better": "lower", "runs": 3} | fields)


def test_a_figure_comes_with_its_interval_and_what_it_rests_on() -> None:
    assert figure(metric(low=1e-4, high=3e-4, samples=60)) == "200 µs [100 µs to 300 µs, 3 runs, 60 samples]"


def test_one_run_has_no_interval() -> None:
    assert figure(metric(runs=1, samples=20)) == "200 µs (20 samples of one run)"
    assert figure(metric(runs=1, samples=1, unit="bytes", value=91e6)) == "91,000,000 bytes"


def test_accuracy_comes_with_its_interval_and_the_count_of_what_is_wrong() -> None:
    learnt = training(accuracy=0.98, accuracy_low=0.973, accuracy_high=0.985, wrong=40)
    assert quality(learnt) == "98.00% [97.30% to 98.50%], 40 of 2,000 wrong"


def test_figures_on_the_test_set_come_beside_those_without_training() -> None:
    forecast = training(test={"mse": 0.012}, baselines={"last_value_mse": 0.031})
    assert quality(forecast) == "mse 0.012, without training last_value_mse 0.031 (-61.3%)"


def test_the_first_epoch_stays_apart() -> None:
    assert epochs(training()) == "3 epochs: first epoch 2 s, further 833.3 ms on average; loss 1 to 0.5"
    assert data(training()) == "mnist, sample, 8,000 + 2,000"


def test_margins_come_with_their_intervals_or_with_why_there_is_none() -> None:
    sure = {"by": 0.004, "low": 0.001, "high": 0.007, "blocks": 20}
    unsure = {"by": 0.004, "low": None, "high": None, "reason": "one block"}
    assert detail({"last value": sure}) == "last value by 0.004 [0.001 to 0.007, 99.9 % over 20 blocks]"
    assert detail({"bigrams": unsure}) == "bigrams by 0.004, one block"

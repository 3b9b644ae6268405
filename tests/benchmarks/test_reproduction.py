"""The articles' experiments: specs that Dyno accepts, cells of the page, and what the kept answers show."""

import pytest

from benchmarks import workloads
from benchmarks.experiments import EXPERIMENTS
from benchmarks.jobs import KeptJobs
from benchmarks.reproduce import STATE
from benchmarks.results import data, detail, epochs, figure, quality
from dyno.bench.registry import registry, resolve
from dyno.models.result import DataOrigin, Epoch, Metric, Training
from dyno.models.spec import Spec

SPECS = {name: experiment.spec for name, experiment in EXPERIMENTS.items()}
SPECS |= workloads.specs(workloads.PARAMS, ["tensorflow", "jax"])
ORIGIN = DataOrigin(name="mnist", kind="sample", train_samples=8000, test_samples=2000)


@pytest.mark.parametrize("name", SPECS)
def test_each_spec_is_one_that_its_workload_takes(name):
    assert resolve(Spec.model_validate(SPECS[name], strict=True)).spec.workload in registry()


def test_every_workload_of_an_article_has_an_experiment():
    of_articles = {name for name, workload in registry().items() if workload.references}
    assert of_articles <= {experiment.spec["workload"] for experiment in EXPERIMENTS.values()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_shows_metrics_of_its_workload_and_uses_real_data(name):
    experiment = EXPERIMENTS[name]
    workload, params = registry()[str(experiment.spec["workload"])], experiment.spec["params"]
    has = {metric.name for metric in workload.metrics}
    has |= {f"cold_{name}" for name in has}
    further_cases = tuple(f"{name}_" for name in has)
    assert [shown for shown in experiment.shows if shown not in has and not shown.startswith(further_cases)] == []
    assert isinstance(params, dict)
    assert params.get("data") == ("real" if "data" in workload.params.model_fields else None)


def kept(name):
    """What is kept under that name, if it answers the experiment that there is now."""
    answer = KeptJobs(STATE).get(name, EXPERIMENTS[name].spec)
    assert answer is not None, f"{STATE} has no answer to {name} as it is now"
    assert answer.result is not None
    return answer.result


def trained(name):
    found = kept(name).training
    assert found is not None
    assert found.data.kind == "real"
    return found


@pytest.mark.parametrize(
    ("name", "least"),
    [("mnist_full_1024", 0.984), ("mnist_full_128", 0.990), ("fashion", 0.90), ("imdb", 0.83), ("cifar10_128", 0.65)],
)
def test_the_accuracy_of_a_full_training(name, least):
    assert (trained(name).accuracy or 0) >= least


@pytest.mark.parametrize(
    ("name", "metric", "baseline", "at_most"),
    [
        ("weather_small", "mse", "last_value_mse", 0.8),
        ("shakespeare_small", "nats_per_character", "bigram_nats_per_character", 0.75),
    ],
)
def test_a_forecast_beats_what_needs_no_training(name, metric, baseline, at_most):
    found = trained(name)
    assert found.test[metric] <= at_most * found.baselines[baseline]


def test_the_weather_at_full_size_ran_within_this_memory():
    assert 5e9 < (kept("weather").memory.host_peak_bytes or 0) < 10e9


def training(**fields):
    made = [Epoch(index=index, time_s=2.0 / (index + 1), loss=1.0 - index / 4) for index in range(3)]
    return Training(epochs=made, seed=0, data=ORIGIN, **fields)


def metric(**fields):
    return Metric(**{"name": "time_per_sample", "unit": "s", "value": 2e-4, "better": "lower", "runs": 3} | fields)


def test_cells_have_a_figure_with_its_interval_and_what_it_rests_on():
    assert figure(metric(low=1e-4, high=3e-4, samples=60)) == "200 µs [100 µs to 300 µs, 3 runs, 60 samples]"
    assert figure(metric(runs=1, samples=20)) == "200 µs (20 samples of one run)"
    assert figure(metric(runs=1, samples=1, unit="bytes", value=91e6)) == "91,000,000 bytes"
    learnt = training(accuracy=0.98, accuracy_low=0.973, accuracy_high=0.985, wrong=40)
    assert quality(learnt) == "98.00% [97.30% to 98.50%], 40 of 2,000 wrong"
    forecast = training(test={"mse": 0.012}, baselines={"last_value_mse": 0.031})
    assert quality(forecast) == "mse 0.012, without training last_value_mse 0.031 (-61.3%)"
    assert epochs(training()) == "3 epochs: first epoch 2 s, further 833.3 ms on average; loss 1 to 0.5"
    assert data(training()) == "mnist, sample, 8,000 + 2,000"
    sure = {"by": 0.004, "low": 0.001, "high": 0.007, "blocks": 20}
    unsure = {"by": 0.004, "low": None, "high": None, "reason": "one block"}
    assert detail({"last value": sure}) == "last value by 0.004 [0.001 to 0.007, 99.9 % over 20 blocks]"
    assert detail({"bigrams": unsure}) == "bigrams by 0.004, one block"

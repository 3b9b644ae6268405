"""What the long trainings of the reproduction taught, as their kept answers say it."""

from __future__ import annotations

import pytest

from benchmarks.experiments import EXPERIMENTS
from benchmarks.jobs import KeptJobs
from benchmarks.reproduce import STATE
from dyno.models.result import Result, Training


def kept(name: str) -> Result:
    """What is kept under that name, if it answers the experiment that there is now."""
    answer = KeptJobs(STATE).get(name, EXPERIMENTS[name].spec)
    assert answer is not None, f"{STATE} has no answer to {name} as it is now"
    assert answer.result is not None
    return answer.result


def trained(name: str) -> Training:
    training = kept(name).training
    assert training is not None
    assert training.data.kind == "real"
    return training


@pytest.mark.parametrize(
    ("name", "least"),
    [("mnist_full_1024", 0.984), ("mnist_full_128", 0.990), ("fashion", 0.90), ("imdb", 0.83), ("cifar10_128", 0.65)],
)
def test_the_accuracy_of_a_full_training(name: str, least: float) -> None:
    assert (trained(name).accuracy or 0) >= least


@pytest.mark.parametrize(
    ("name", "figure", "baseline", "at_most"),
    [
        ("weather_small", "mse", "last_value_mse", 0.8),
        ("shakespeare_small", "nats_per_character", "bigram_nats_per_character", 0.75),
    ],
)
def test_a_forecast_beats_what_needs_no_training(name: str, figure: str, baseline: str, at_most: float) -> None:
    training = trained(name)
    assert training.test[figure] <= at_most * training.baselines[baseline]


def test_the_weather_at_full_size_ran_within_this_memory() -> None:
    assert 5e9 < (kept("weather").memory.host_peak_bytes or 0) < 10e9

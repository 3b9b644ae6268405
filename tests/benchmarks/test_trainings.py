"""Trainings beside `model.fit`: the plain models, the threads, and the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.files import Files
from benchmarks.trainings import SETUPS, bind_threads, kept_runs, lines, spec
from dyno.bench.registry import registry, validate_params
from dyno.bench.training.model_training import TrainingParams
from dyno.bench.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.bench.workloads.fashion_mnist_cnn import CLOTHES
from dyno.bench.workloads.imdb_lstm import ImdbLstmParams, review_model
from dyno.bench.workloads.mnist_cnn import DIGITS
from dyno.bench.workloads.shakespeare_lstm import ShakespeareLstmParams, character_model
from dyno.bench.workloads.weather_gru import WeatherGruParams, weather_model

OURS: dict[str, Callable[[Any], Any]] = {
    "mnist_cnn": lambda keras: DIGITS.model(keras, 1e-3, False),
    "fashion_mnist_cnn": lambda keras: CLOTHES.model(keras, 1e-3, False),
    "cifar10_cnn": lambda keras: PHOTOGRAPHS.model(keras, 1e-3, False),
    "imdb_lstm": lambda keras: review_model(keras, ImdbLstmParams(), False),
    "weather_gru": lambda keras: weather_model(keras, 20, WeatherGruParams(window=60), False),
    "shakespeare_lstm": lambda keras: character_model(keras, ShakespeareLstmParams(), False),
}


def plain_model(name):
    from benchmarks.plain_keras import PLAIN  # imports Keras

    assert SETUPS.keys() == PLAIN.keys() == OURS.keys() | {"resnet50"}  # which is Keras' own in both
    return PLAIN[name](**{"window": 60} if name == "weather_gru" else {}).make(False)


def described(thing):
    """All that its maker decided; names count up from model to model."""
    return type(thing).__name__, {key: value for key, value in thing.get_config().items() if key != "name"}


@pytest.mark.parametrize("workload", OURS)
def test_a_plain_model_has_the_layers_optimiser_and_metrics_of_its_workload(workload, tensorflow):
    ours, plain = OURS[workload](tensorflow.keras), plain_model(workload)
    scaling = tensorflow.keras.layers.Rescaling  # the plain ones are given images of 0 to 1
    assert [described(layer) for layer in plain.layers] == [
        described(layer) for layer in ours.layers if not isinstance(layer, scaling)
    ]
    assert [weight.shape for weight in plain.weights] == [weight.shape for weight in ours.weights]
    assert described(plain.optimizer) == described(ours.optimizer)
    compiled = [model.get_compile_config() for model in (plain, ours)]
    assert compiled[0]["metrics"] == compiled[1]["metrics"]
    if workload == "weather_gru":  # which has a loss of its own
        true, predicted = np.random.default_rng(0).random((2, 4, 60, 3), np.float32)
        assert float(plain.loss(true, predicted)) == pytest.approx(float(ours.loss(true, predicted)), rel=1e-5)
    else:
        assert compiled[0]["loss"] == compiled[1]["loss"]


@pytest.mark.parametrize("name", SETUPS)
def test_an_epoch_of_each_workload_is_that_many_full_batches(name):
    params = validate_params(registry()[name], dict(SETUPS[name].params))
    assert isinstance(params, TrainingParams)
    samples = getattr(params, "train_samples", None) or getattr(params, "images", None)
    assert (samples or params.batch_size * getattr(params, "steps_per_epoch", 0)) == SETUPS[name].samples


# Two threads that `threading` knows nothing of, like a library's; they end with the process.
PROGRAM = """
import _thread, json, os
from benchmarks.trainings import bind_threads
for _ in range(2):
    taken = _thread.allocate_lock()
    taken.acquire()
    _thread.start_new_thread(taken.acquire, ())
bound = bind_threads([int(core) for core in os.environ["CORES"].split(",")])
threads = sorted(int(thread) for thread in os.listdir("/proc/self/task"))
print(json.dumps([bound, [sorted(os.sched_getaffinity(thread)) for thread in threads]]))
"""


def test_each_thread_of_a_pool_gets_a_core_in_turn_and_pythons_own_stay_free():
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core: nothing to choose from")
    env = os.environ | {"CORES": f"{cores[0]},{cores[1]}", "OPENBLAS_NUM_THREADS": "1"}
    told = subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True, stdout=subprocess.PIPE, text=True)
    assert json.loads(told.stdout) == [2, [cores, [cores[0]], [cores[1]]]]


def test_without_any_thread_to_bind_it_fails(monkeypatch):
    def forbidden(thread, cores):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", forbidden)
    with pytest.raises(RuntimeError, match="no thread could be bound"):
        bind_threads([0])


def run(dyno, fit):
    return {"dyno": dyno, "fit": fit, "data": "sample"}


def row(*runs):
    [found] = [line for line in lines({"mnist_cnn": runs}) if line.startswith("| `mnist_cnn`")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_the_ratio_rests_on_one_figure_of_each_process():
    alike = row(run([1e-3, 2e-3, 3e-3], [2e-3] * 3), run([1.9e-3, 2e-3, 2.1e-3], [2e-3] * 3))
    assert alike[1:6] == ["2,000", "2,000", "1.000", "1.000 to 1.000", "1.000"]
    assert alike[6:] == ["6 (0), too few", "1.000, 1.000"]
    apart = row(run([1e-3] * 9, [1e-3] * 9), run([1.1e-3] * 9, [1e-3] * 9))
    low, high = map(float, apart[4].split(" to "))
    assert low < 0.8, "two processes that differ leave much open, however many pairs they took"
    assert high > 1.3
    assert apart[5].endswith(", above the aim")


def test_pairs_of_fits_slow_mode_are_left_out_and_one_process_is_not_enough():
    slow = run([1e-3, 1e-3, 1.01e-3], [1e-3, 1.4e-3, 1e-3])
    assert row(slow, run([1e-3], [1.2e-3]))[6] == "3 (1), too few"
    assert row(slow)[1] == "not run yet"


def test_answers_of_another_size_are_not_used(tmp_path):
    Files(tmp_path).put("mnist_cnn.0", spec("mnist_cnn"), {"answer": run([1e-3], [1e-3])})
    Files(tmp_path).put("mnist_cnn.1", spec("imdb_lstm"), {"answer": run([1e-3], [1e-3])})
    assert kept_runs("mnist_cnn", Files(tmp_path)) == [run([1e-3], [1e-3])]

"""The plain models that trainings are compared with are the workloads' own, written a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.trainings import SETUPS
from dyno.frameworks.tensorflow import TensorFlow
from dyno.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.workloads.fashion_mnist_cnn import CLOTHES
from dyno.workloads.imdb_lstm import ImdbLstmParams, review_model
from dyno.workloads.mnist_cnn import DIGITS
from dyno.workloads.shakespeare_lstm import ShakespeareLstmParams, character_model
from dyno.workloads.weather_gru import WeatherGruParams, weather_model

OURS: dict[str, Callable[[Any], Any]] = {
    "mnist_cnn": lambda keras: DIGITS.model(keras, 1e-3, False),
    "fashion_mnist_cnn": lambda keras: CLOTHES.model(keras, 1e-3, False),
    "cifar10_cnn": lambda keras: PHOTOGRAPHS.model(keras, 1e-3, False),
    "imdb_lstm": lambda keras: review_model(keras, ImdbLstmParams(), False),
    "weather_gru": lambda keras: weather_model(keras, 20, WeatherGruParams(window=60), False),
    "shakespeare_lstm": lambda keras: character_model(keras, ShakespeareLstmParams(), False),
}


def witness(name: str, **sizes: int) -> Any:
    from benchmarks.plain_keras import PLAIN  # imports Keras

    return PLAIN[name](**sizes).make(False)


def described(thing: Any) -> tuple[str, dict[str, Any]]:
    """All that its maker decided; names count up from model to model."""
    return type(thing).__name__, {key: value for key, value in thing.get_config().items() if key != "name"}


@pytest.mark.parametrize("workload", OURS)
def test_each_has_the_layers_optimiser_and_metrics_of_its_workload(workload: str, tensorflow: TensorFlow) -> None:
    ours = OURS[workload](tensorflow.keras)
    plain = witness(workload, **{"window": 60} if workload == "weather_gru" else {})
    scaling = tensorflow.keras.layers.Rescaling  # the plain ones are given images of 0 to 1
    assert [described(layer) for layer in plain.layers] == [
        described(layer) for layer in ours.layers if not isinstance(layer, scaling)
    ]
    assert [weight.shape for weight in plain.weights] == [weight.shape for weight in ours.weights]
    assert described(plain.optimizer) == described(ours.optimizer)
    compiled = [model.get_compile_config() for model in (plain, ours)]
    assert compiled[0]["metrics"] == compiled[1]["metrics"]
    assert compiled[0]["loss"] == compiled[1]["loss"] or workload == "weather_gru"


def test_the_forecast_is_judged_alike(tensorflow: TensorFlow) -> None:
    ours = OURS["weather_gru"](tensorflow.keras)
    true, predicted = np.random.default_rng(0).random((2, 4, 60, 3), np.float32)
    assert float(witness("weather_gru", window=60).loss(true, predicted)) == pytest.approx(
        float(ours.loss(true, predicted)), rel=1e-5
    )


def test_every_training_has_one(tensorflow: TensorFlow) -> None:
    from benchmarks.plain_keras import PLAIN

    assert SETUPS.keys() == PLAIN.keys() == OURS.keys() | {"resnet50"}  # which is Keras' own in both

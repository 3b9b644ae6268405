"""Weights saved by one framework work the same in another, including recurrent layers and running statistics."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dyno.bench.datasets import mnist
from dyno.bench.frameworks.keras import load_keras
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads.cifar10_cnn import photographs
from dyno.bench.workloads.imdb_lstm import review_model
from dyno.bench.workloads.mnist_cnn import DIGITS
from dyno.bench.workloads.transformer import new_model
from dyno.bench.workloads.weather_gru import weather_model
from dyno.settings import Settings
from tests.quick_xla import QUICK_XLA

RANDOM = np.random.default_rng(7)
SMALL: dict[str, dict[str, Any]] = {
    "imdb_lstm": {"words": 50, "length": 20, "embedding": 6, "units": 8},
    "weather_gru": {"window": 60, "units": 8},
    "mnist_cnn": {},
    "cifar10_cnn": {"filters": [4, 4, 6, 6], "dense_units": 16},
    "transformer": {"preset": "tiny", "context": 16},
}
INPUTS: dict[str, NDArray[Any]] = {
    "imdb_lstm": RANDOM.integers(0, 50, (12, 20), np.int32),
    "weather_gru": RANDOM.random((3, 60, 20), np.float32),
    "mnist_cnn": mnist.load(Settings(), "sample").test_images[:40],
    "cifar10_cnn": RANDOM.integers(0, 256, (12, 32, 32, 3), np.uint8),
    "transformer": RANDOM.integers(0, 256, (3, 16), np.int32),
}
MAKE: dict[str, Callable[[Any, Any], Any]] = {
    "imdb_lstm": lambda keras, params: review_model(keras, params, False),
    "weather_gru": lambda keras, params: weather_model(keras, 20, params, False),
    "mnist_cnn": lambda keras, params: DIGITS.model(keras, 1e-3, False),
    "cifar10_cnn": lambda keras, params: photographs(params.filters, params.dense_units).model(keras, 1e-3, False),
    "transformer": lambda keras, params: new_model(keras, params, False),
}


def answered(keras, name, weights, *, draw):
    """The outputs of a small model with weights from that file; with `draw`, it draws and saves the weights first."""
    model = MAKE[name](keras, validate_params(workload(name), SMALL[name]))
    if draw:
        for each in model.weights:
            values = RANDOM.normal(0, 0.3, each.shape)
            each.assign(0.1 + np.abs(values) if "variance" in each.path else values)
        model.save_weights(weights)
    else:
        model.load_weights(weights)
    return np.asarray(model(INPUTS[name], training=False), np.float32)


@pytest.fixture(scope="module")
def by_jax(tensorflow, tmp_path_factory):
    """The outputs of each model on TensorFlow and, in a separate process, on JAX, with the same weights."""
    folder = tmp_path_factory.mktemp("weights")
    ours = {name: answered(tensorflow.keras, name, folder / f"{name}.weights.h5", draw=True) for name in SMALL}
    command = [sys.executable, "-P", "-m", "tests.bench.workloads.test_across_frameworks", str(folder)]
    subprocess.run(command, check=True, env=os.environ | QUICK_XLA, cwd=Path(__file__).parents[3])
    return {name: (ours[name], np.load(folder / f"{name}.npy")) for name in SMALL}


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed here")
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.verify
def test_jax_answers_the_same_with_the_weights_that_tensorflow_left(by_jax, name):
    ours, theirs = by_jax[name]
    assert np.ptp(ours) > 1e-2  # answers that differ from input to input
    # Two ways to sum in float32: other weights, or means and variances that were lost, change answers by a tenth.
    np.testing.assert_allclose(theirs, ours, rtol=2e-3, atol=1e-4)


if __name__ == "__main__":
    keras = load_keras("jax")
    for _name in SMALL:
        _folder = Path(sys.argv[1])
        np.save(_folder / f"{_name}.npy", answered(keras, _name, _folder / f"{_name}.weights.h5", draw=False))

"""Loading weights, and the errors for another model's weights."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset
from dyno.bench.training.checkpoints import load_weights
from dyno.bench.training.model_training import ModelTraining, Plan, TrainingOutcome
from dyno.bench.training.workload import TrainingParams
from dyno.errors import RunFailed
from dyno.models.result import DataOrigin


@pytest.fixture
def made(tensorflow):
    """A model with dense layers of these widths and two inputs."""
    keras = tensorflow.keras

    def make(widths, *, jit_compile=False):
        model = keras.Sequential([keras.Input((2,)), *map(keras.layers.Dense, widths)], name="mine")
        model.compile("sgd", "mean_squared_error", jit_compile=jit_compile)
        return model

    return make


def _refused(model, path):
    with pytest.raises(RunFailed) as failed:
        load_weights(model, path)
    assert (failed.value.failure_class, failed.value.reason) == ("benchmark", "weights_mismatch")
    return failed.value.detail


@pytest.mark.parametrize("name", ["model.weights.h5", "model.keras"])
def test_matching_layers_load_with_or_without_optimiser_state(made, tmp_path, name):
    trained, fresh = made([3, 1]), made([3, 1])
    trained.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    (trained.save if name.endswith(".keras") else trained.save_weights)(tmp_path / name)
    load_weights(fresh, tmp_path / name)
    for mine, theirs in zip(fresh.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", ["model.weights.h5", "model.keras"])
@pytest.mark.parametrize(
    ("widths", "told"),
    [
        ([4, 1], "its layer dense has (2, 4) where the model has (2, 3)"),
        ([3], "it has no layer dense_1"),
        ([3, 1, 1], "its layer dense_2, (1, 1), isn't in the model"),
    ],
)
def test_other_layers_are_named_with_their_shapes(made, tmp_path, name, widths, told):
    other = made(widths)
    (other.save if name.endswith(".keras") else other.save_weights)(tmp_path / name)
    assert f"{name} doesn't fit mine: {told}" in _refused(made([3, 1]), tmp_path / name)


def test_an_error_lists_at_most_three_differences(made, tmp_path):
    made([5, 5, 5]).save_weights(tmp_path / "model.weights.h5")
    assert _refused(made([3, 3, 3]), tmp_path / "model.weights.h5").endswith("; and 3 more")


def test_a_file_that_holds_no_weights_is_refused_in_keras_words(made, tmp_path):
    (tmp_path / "model.weights.h5").write_bytes(b"no weights at all")
    assert "OSError" in _refused(made([1]), tmp_path / "model.weights.h5")


def test_another_model_s_weights_fail_before_the_first_step(made, context, tmp_path):
    made([4, 1]).save_weights(tmp_path / "model.weights.h5")
    settings: list[Any] = []

    def make(jit_compile):
        settings.append(jit_compile)
        return made([3, 1], jit_compile=jit_compile)

    origin = DataOrigin(name="ones", kind="synthetic", train_samples=8, test_samples=0)
    samples = Dataset(np.ones((8, 2), np.float32), np.ones((8, 1), np.float32))
    ready = replace(context(), tuned={}, weights=tmp_path / "model.weights.h5")
    with pytest.raises(RunFailed, match=r"has \(2, 4\) where the model has \(2, 3\)"):
        ModelTraining(
            TrainingParams(batch_size=8), Plan(make, samples, origin, lambda model, trainer: TrainingOutcome()), ready
        )
    assert settings == [False]

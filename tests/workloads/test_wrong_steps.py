"""A step that isn't the training it is taken for leaves RESULT_INCORRECT unchecked; the right one doesn't."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyno.frameworks.contract import JitCompile, Samples
from dyno.frameworks.tensorflow import TensorFlow
from dyno.result import DataOrigin
from dyno.workloads import validate_params, workload
from dyno.workloads._training import ModelTraining, Outcome, Plan
from dyno.workloads._training_params import TrainingParams
from dyno.workloads.contract import BuildContext, Built, Verification
from tests.wrong_steps import (
    Spoil,
    Wrong,
    on_shuffled_targets,
    on_targets_shuffled_in_every_step,
    with_the_last_layer_s_alone,
    without_gradients,
)

Context = Callable[..., BuildContext]
CODE = "RESULT_INCORRECT"
DIGITS = {"data": "sample", "train_samples": 1500, "test_samples": 300, "batch_size": 64, "epochs": 3}
HOURS = {"data": "sample", "units": 16, "window": 48, "warmup_steps": 8, "batch_size": 64, "epochs": 8}
HOURS |= {"steps_per_epoch": 50, "learning_rate": 4e-3}
TEXT = {"units": 64, "embedding": 32, "window": 16, "batch_size": 128, "recurrence": "unrolled", "generate": 0}
TEXT |= {"epochs": 1, "steps_per_epoch": 400, "test_samples": 1500, "steps_per_execution": 10}
BASELINES: dict[str, set[str]] = {
    "mnist_cnn": set(),
    "weather_gru": {"last_value_mse", "training_mean_mse"},
    "shakespeare_lstm": {"unigram_nats_per_character", "bigram_nats_per_character"},
}
SIZES = {"mnist_cnn": DIGITS, "weather_gru": HOURS, "shakespeare_lstm": TEXT}


def _checked(built: Built, timed: int = 1) -> Verification:
    built.compile()
    built.execute(1)
    assert built.complete(0.0, 0.0) is not None
    built.execute(timed)
    return built.verify()


def _trained(name: str, context: BuildContext, **params: Any) -> Verification:
    asked = validate_params(workload(name), SIZES[name] | {"jit_compile": False} | params)
    return _checked(workload(name).build(asked, context))


@pytest.mark.parametrize("name", SIZES)
def test_what_the_right_step_teaches_shows_that_it_is_right(name: str, context: Context) -> None:
    found = _trained(name, context())
    assert (found.unchecked, found.warnings) == ({}, [])
    assert CODE in found.verified
    assert set(found.details.get("better_than", {})) == BASELINES[name]
    assert all(0 < each["low"] < each["by"] for each in found.details.get("better_than", {}).values())


@pytest.mark.parametrize(
    ("name", "spoil", "why"),
    [
        *((name, without_gradients, "haven't changed since the start") for name in SIZES),
        ("mnist_cnn", with_the_last_layer_s_alone, "6 of 8 arrays of weights"),
        ("mnist_cnn", on_shuffled_targets, "halfway from always naming the most frequent class"),
        ("weather_gru", on_shuffled_targets, "it isn't surely better than last_value_mse"),
        ("shakespeare_lstm", on_shuffled_targets, "it isn't surely better than"),
    ],
)
def test_a_wrong_step_teaches_nothing_that_would_show_it_right(
    name: str, spoil: Spoil, why: str, context: Context, tensorflow: TensorFlow
) -> None:
    found = _trained(name, context(Wrong(tensorflow, spoil)))
    assert why in found.unchecked[CODE]
    assert CODE not in found.verified


def _by_heart(context: BuildContext, timed: int = 400) -> Verification:
    """Of numbers and classes drawn at random, as those of `resnet50` are, by a small network with room for them."""
    random, keras = np.random.default_rng(2), context.framework.keras

    def make(jit_compile: JitCompile) -> Any:
        layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(16, activation="softmax")]
        model = keras.Sequential([keras.Input((24,)), *layers])
        model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", jit_compile=jit_compile)
        return model

    samples = Samples(random.standard_normal((32, 24), np.float32), random.integers(0, 16, 32, np.int32))
    origin = DataOrigin(name="noise", kind="synthetic", train_samples=32, test_samples=0)
    plan = Plan(make, samples, origin, lambda model, trainer: Outcome(), by_heart=True)
    return _checked(ModelTraining(TrainingParams(batch_size=16, jit_compile=False), plan, context), timed)


def test_samples_that_the_timed_steps_learned_by_heart_show_that_they_are_right(context: Context) -> None:
    found = _by_heart(context())
    assert (found.unchecked, CODE in found.verified) == ({}, True)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (without_gradients, "4 of 4 arrays of weights haven't changed"),
        (with_the_last_layer_s_alone, "2 of 4 arrays of weights haven't changed"),
        (on_targets_shuffled_in_every_step, "learned no samples by heart"),
    ],
)
def test_a_wrong_step_learns_no_samples_by_heart(
    spoil: Spoil, why: str, context: Context, tensorflow: TensorFlow
) -> None:
    found = _by_heart(context(Wrong(tensorflow, spoil)))
    assert why in found.unchecked[CODE]
    assert CODE not in found.verified


def test_a_few_steps_leave_it_open_whether_they_are_right(context: Context) -> None:
    assert "learned no samples by heart" in _by_heart(context(), timed=2).unchecked[CODE]


def test_the_steps_of_resnet_50_are_shown_right_by_the_samples_that_they_learned(context: Context) -> None:
    asked = {"image_size": 32, "classes": 10, "batch_size": 8, "images": 8, "jit_compile": False}
    resnet = workload("resnet50")
    found = _checked(resnet.build(validate_params(resnet, asked), context()), 60)
    assert (found.unchecked, CODE in found.verified) == ({}, True)


def test_other_runs_and_those_from_another_job_s_weights_show_nothing(context: Context, tmp_path: Path) -> None:
    few = {"train_samples": 64, "test_samples": 32, "epochs": 1}
    assert CODE not in _trained("mnist_cnn", context(artifacts=tmp_path), **few).verified
    weights = {"job": "job_1", "name": "model.weights.h5"}
    found = _trained("mnist_cnn", replace(context(), weights=tmp_path / weights["name"]), weights=weights)
    assert "another job's weights" in found.unchecked[CODE]
    later = workload("mnist_cnn").build(validate_params(workload("mnist_cnn"), DIGITS), context(run=1))
    later.compile()
    later.execute(1)
    assert (later.verify().unchecked, CODE in later.verify().verified) == ({}, False)

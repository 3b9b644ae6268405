"""Training steps compared with plain ones: the right step agrees, every wrong one raises RESULT_INCORRECT."""

from dataclasses import replace
from typing import Any

import pytest

from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.bench.registry import validate_params, workload
from dyno.bench.training import step_checks
from tests.running import started, training_of
from tests.wrong_steps import (
    Wrong,
    on_shuffled_targets,
    on_targets_shuffled_in_every_step,
    on_three_quarters_of_each_batch,
    with_the_last_layer_s_alone,
    without_gradients,
)

CODE = "RESULT_INCORRECT"
DIGITS = {"data": "sample", "train_samples": 128, "test_samples": 32, "batch_size": 32, "epochs": 1}
HOURS = {"data": "sample", "units": 16, "window": 48, "warmup_steps": 8, "batch_size": 32, "epochs": 1}
HOURS |= {"steps_per_epoch": 2}
TEXT = {"units": 32, "embedding": 16, "window": 16, "batch_size": 32, "recurrence": "loop", "generate": 0}
TEXT |= {"epochs": 1, "steps_per_epoch": 2, "test_samples": 100}
IMAGES = {"image_size": 32, "classes": 10, "batch_size": 8, "images": 16, "train": "full"}
QUICK = {"mnist_cnn": DIGITS, "weather_gru": HOURS, "shakespeare_lstm": TEXT}
SIZES = QUICK | {"resnet50": IMAGES}


def _checked(built):
    assert training_of(built) is not None
    built.execute(2)
    return built.verify()


def _trained(name, context, **params):
    asked = validate_params(workload(name), SIZES[name] | {"jit_compile": False} | params)
    return _checked(workload(name).build(asked, context))


def _raised(found):
    return {raised.code: raised.evidence for raised in found.warnings}


LONGER = [pytest.param(name, marks=pytest.mark.verify) for name in ("weather_gru", "shakespeare_lstm", "resnet50")]


@pytest.mark.parametrize("name", ["mnist_cnn", *LONGER])
def test_the_right_step_agrees_with_a_plain_one(name, with_room):
    found = _trained(name, with_room())
    assert CODE not in _raised(found)
    assert (found.unchecked, CODE in found.verified) == ({}, True)
    told: Any = found.details["plain_step"]
    assert (told["precision"], told["steps"]) == ("float32", 1)
    assert told["rel_error"] <= told["bound"] <= 0.5
    assert told["compared_weights"] >= 0.5


@pytest.mark.verify
@pytest.mark.parametrize("params", [{"jit_compile": True}, {"steps_per_execution": 3}])
def test_a_step_that_xla_compiled_or_that_is_one_of_several_agrees_too_its_dropout_included(params, with_room):
    found = _trained("mnist_cnn", replace(with_room(), tuned={}), **params)
    assert (_raised(found).keys() & {CODE}, found.unchecked, CODE in found.verified) == (set(), {}, True)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("mnist_cnn", without_gradients),
        pytest.param("mnist_cnn", on_shuffled_targets, marks=pytest.mark.verify),
        pytest.param("weather_gru", on_shuffled_targets, marks=pytest.mark.verify),
        pytest.param("shakespeare_lstm", on_shuffled_targets, marks=pytest.mark.verify),
        pytest.param("resnet50", on_shuffled_targets, marks=pytest.mark.verify),
        pytest.param("mnist_cnn", with_the_last_layer_s_alone, marks=pytest.mark.verify),
        pytest.param("mnist_cnn", on_targets_shuffled_in_every_step, marks=pytest.mark.verify),
        pytest.param("mnist_cnn", on_three_quarters_of_each_batch, marks=pytest.mark.verify),
        pytest.param("shakespeare_lstm", on_three_quarters_of_each_batch, marks=pytest.mark.verify),
        pytest.param("resnet50", with_the_last_layer_s_alone, marks=pytest.mark.verify),
    ],
)
@pytest.mark.timeout(600)
def test_a_wrong_step_is_found(name, spoil, with_room, tensorflow):
    found = _trained(name, with_room(Wrong(tensorflow, spoil)))
    if spoil is without_gradients:
        assert found.unchecked[CODE] == "none of the 2 timed steps changed a weight"
        return
    evidence = _raised(found)[CODE]
    assert evidence["steps"] == step_checks.MAX_COMPARISONS
    assert evidence["rel_error"] is None or evidence["rel_error"] > evidence["bound"]


@pytest.mark.verify
def test_in_bfloat16_the_right_step_agrees_within_bfloat16_rounding(with_room):
    found = _trained("resnet50", with_room(), precision="mixed_bfloat16")
    assert CODE not in _raised(found)
    told: Any = found.details["plain_step"]
    assert told["precision"] == "bfloat16"
    assert (CODE in found.verified) is (told["compared_weights"] >= 0.5)
    assert (CODE in found.unchecked) is (told["compared_weights"] < 0.5)


def test_a_plain_step_that_fails_is_a_reason_and_loses_nothing(with_room, monkeypatch, tensorflow):
    def fail(*arguments, **named):
        raise tensorflow._tf.errors.ResourceExhaustedError(None, None, "no memory left")

    monkeypatch.setattr(TensorFlow, "plain_step", fail)
    found = _trained("mnist_cnn", with_room())
    assert "ResourceExhaustedError" in found.unchecked[CODE]
    assert CODE not in found.verified


def test_a_plain_step_that_may_not_fit_in_memory_is_not_tried(with_room, device):
    found = _trained("mnist_cnn", replace(with_room(), device=device.model_copy(update={"memory_bytes": 1 << 20})))
    assert found.unchecked[CODE].endswith("GB of memory; the limit is 0.0 GB")
    assert "plain_step" not in found.details


@pytest.mark.verify
def test_steps_from_another_job_s_weights_are_compared_too(with_room, tmp_path):
    _trained("mnist_cnn", with_room(artifacts=tmp_path))
    weights = {"job": "job_1", "name": "model.weights.h5"}
    found = _trained("mnist_cnn", replace(with_room(), weights=tmp_path / weights["name"]), weights=weights)
    assert (found.unchecked, CODE in found.verified) == ({}, True)


def test_only_the_first_run_compares_steps(with_room):
    later = started(workload("mnist_cnn").build(validate_params(workload("mnist_cnn"), DIGITS), with_room(run=1)))
    found = later.verify()
    assert (found.unchecked, CODE in found.verified) == ({}, False)
    assert "plain_step" not in found.details

"""Steps that are counted but not made, change nothing, or use another precision.

Also what data and weights show of a timed training, on the real network of the digits.
"""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dyno.bench.contract import BuildContext, Verification
from dyno.bench.frameworks.interface import Dataset
from dyno.bench.measure.result_checks import precision_mismatch
from dyno.bench.registry import validate_params, workload
from dyno.bench.training import step_checks
from dyno.bench.training.model_training import ModelTraining, Plan, TrainingOutcome
from dyno.bench.training.step_checks import StepCounter, check_training
from dyno.bench.training.workload import TrainingParams
from dyno.bench.workloads._matmul_params import as_tf32
from dyno.models.device import Device
from dyno.models.result import DataOrigin
from tests.running import started

CODE = "RESULT_INCORRECT"
ORIGIN = DataOrigin(name="noise", kind="synthetic", train_samples=64, test_samples=0)


class Asked(TrainingParams):
    """Params of a workload with a selectable precision."""

    dtype: str = "float32"


def _training(context, policy="float32", **params):
    """Random data and a network of two layers that ends in float32, as mixed precision does."""
    random, keras = np.random.default_rng(2), context.framework.keras

    def make(jit_compile):
        layers = [
            keras.layers.Dense(8, dtype=policy),
            keras.layers.Dense(4, activation="softmax", dtype="float32" if policy.startswith("mixed") else policy),
        ]
        model = keras.Sequential([keras.Input((6,)), *layers])
        model.compile(keras.optimizers.SGD(1e-2), "sparse_categorical_crossentropy", jit_compile=jit_compile)
        return model

    samples = Dataset(random.standard_normal((64, 6), np.float32), random.integers(0, 4, 64, np.int32))
    plan = Plan(make, samples, ORIGIN, lambda model, trainer: TrainingOutcome())
    return ModelTraining(Asked(train="full", batch_size=16, jit_compile=False, **params), plan, context)


def _verified(built, executions=10):
    started(built)
    if built._trains:
        built.complete(0.0, 0.0)
    built.execute(executions)
    found: Verification = built.verify()
    return found


def _raised(found):
    return {raised.code: raised for raised in found.warnings}


@pytest.mark.parametrize("run", [0, pytest.param(1, marks=pytest.mark.verify)])
@pytest.mark.parametrize("at_once", [pytest.param(1, marks=pytest.mark.verify), 3])
def test_the_optimiser_made_as_many_steps_as_the_figure_counts(context, run, at_once):
    found = _verified(_training(context(run=run), steps_per_execution=at_once))
    assert "UNIT_MISMATCH" not in _raised(found)
    assert "changed a weight" not in found.unchecked.get(CODE, "")


@pytest.mark.parametrize("run", [0, 1])
def test_steps_that_are_counted_but_not_made_raise_a_warning(context, run):
    built = _training(context(run=run))
    steps = built._trainer.steps
    built._trainer.steps = lambda count: steps(count - count // 10)
    raised = _raised(_verified(built, 20))["UNIT_MISMATCH"]
    asked = 20 + run  # of run 0 the first execution belongs to the training
    assert raised.evidence == {"counted_steps": asked, "made_steps": asked - 2}


def test_steps_that_change_no_weight_stay_unchecked_in_every_run(context):
    for run in (0, 1):
        built = _training(context(run=run))
        complete = built.complete

        def still(*spent_s, built=built, complete=complete):
            done = complete(*spent_s)
            built._model.optimizer.learning_rate = 0.0
            return done

        built.complete = still
        built._model.optimizer.learning_rate = 0.0 if run else 1e-2
        found = _verified(built)
        assert found.unchecked[CODE] == f"none of the {10 + run} timed steps changed a weight"
        assert CODE not in found.verified


@pytest.mark.parametrize(
    ("policy", "asked", "observed"),
    [
        ("float32", "float32", "float32"),
        ("bfloat16", "float32", "bfloat16"),
        ("mixed_bfloat16", "float32", "bfloat16"),
        ("mixed_bfloat16", "bfloat16", "bfloat16"),
        ("float32", "bfloat16", "float32"),
    ],
)
def test_the_layers_precision_is_compared_with_the_requested_one(context, policy, asked, observed):
    found = _verified(_training(context(run=1), policy, dtype=asked))
    assert (found.precision.requested, found.precision.observed) == (asked, observed)


class Rounding:
    """Keras' operations on a device that rounds the operands of some of them to TF32, 11 significant bits."""

    def __init__(self, ops, *names):
        self._ops, self._names = ops, names

    def __getattr__(self, name):
        operation = getattr(self._ops, name)
        if name not in self._names:
            return operation
        return lambda a, b, **options: operation(as_tf32(np.asarray(a)), as_tf32(np.asarray(b)), **options)


@pytest.mark.parametrize(
    ("rounded", "by_operation"),
    [
        pytest.param([], {"product": "float32", "convolution": "float32"}, marks=pytest.mark.verify),
        pytest.param(["conv"], {"product": "float32", "convolution": "tf32"}, marks=pytest.mark.verify),
        (["matmul", "conv"], {"product": "tf32", "convolution": "tf32"}),
    ],
)
def test_a_training_on_any_device_shows_the_coarser_precision_of_products_and_convolutions(
    context, monkeypatch, rounded, by_operation
):
    ready = context(run=1)
    gpu = ready.device.model_copy(update={"kind": "gpu"}) if ready.device else None
    ready = replace(ready, device=gpu)
    mnist = workload("mnist_cnn")
    asked = {"data": "sample", "train_samples": 64, "test_samples": 8, "batch_size": 32, "jit_compile": False}
    built = started(mnist.build(validate_params(mnist, asked), ready))
    monkeypatch.setattr(ready.framework.keras, "ops", Rounding(ready.framework.keras.ops, *rounded))
    found = built.verify()
    assert found.details["precision_by_operation"] == by_operation
    assert found.precision.in_words == ("float32 (tf32)" if rounded else "float32")
    assert found.precision.by_default is bool(rounded)
    assert precision_mismatch(found.precision) is None  # it is what the frameworks make of float32 on a GPU


@pytest.mark.verify
def test_later_runs_take_the_precision_that_the_first_observed(context):
    first = _verified(_training(context(run=1)))
    errors = first.tuned["precision_errors"]
    assert errors == {"product": first.precision.rel_error}
    later = replace(context(run=1), tuned={"jit_compile": False, "precision_errors": {"product": 2.9e-4}})
    found = _verified(_training(later))
    assert (found.precision.observed, found.precision.rel_error) == ("tf32", 2.9e-4)
    assert precision_mismatch(found.precision) is not None  # no default makes TF32 of float32 on a CPU


@pytest.mark.parametrize(("framework", "by_default"), [("jax", True), ("torch", False)])
def test_pytorch_has_tf32_by_default_for_convolutions_alone(framework, by_default, device):
    gpu, named = device.model_copy(update={"kind": "gpu"}), SimpleNamespace(name=framework)
    context = cast(BuildContext, SimpleNamespace(framework=named, device=gpu))
    assert step_checks._is_default(context, "float32", {"product": "float32", "convolution": "tf32"})
    assert step_checks._is_default(context, "float32", {"product": "tf32", "convolution": "tf32"}) is by_default
    assert not step_checks._is_default(context, "float32", {"product": "bfloat16"})


@pytest.mark.parametrize(("left_out", "raised"), [(30, False), (40, True)])
def test_a_few_steps_skipped_for_infinite_gradients_are_allowed(context, left_out, raised):
    keras = context().framework.keras
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    inner = keras.optimizers.SGD(1e-2)
    model.compile(keras.optimizers.LossScaleOptimizer(inner), "mse")
    model.optimizer.build(model.trainable_variables)
    timed = StepCounter.of(model)
    timed.counted = 100
    inner.iterations.assign(100 - left_out)
    assert (timed.miscounted(model) is not None) is raised


SAMPLES = Dataset(np.arange(64, dtype=np.float32).reshape(16, 4), np.eye(4, dtype=np.float32)[np.arange(16) % 4])


@pytest.fixture
def looked_at(context):
    def look(samples=SAMPLES, spoil=None):
        made = context()
        keras = made.framework.keras
        model: Any = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, activation="softmax")])
        model.compile(keras.optimizers.SGD(1e-3), "categorical_crossentropy")
        trainer = made.framework.trainer(model, samples, 8, 0)
        timed = StepCounter.of(model)
        timed.counted = 1
        trainer.steps(1)
        if spoil is not None:
            kernel, bias = model.get_weights()
            kernel[1, 2] = spoil
            model.set_weights([kernel, bias])
        return check_training(made, model, trainer, samples, timed, None)

    return look


def _codes(found):
    return [raised.code for raised in found.warnings]


def test_a_sound_training_raises_nothing_and_its_float32_is_observed(looked_at):
    found = looked_at()
    assert _codes(found) == []
    assert found.verified == {"DEGENERATE_DATA", "OUTPUT_NONFINITE"}
    assert (found.precision.requested, found.precision.observed) == ("float32", "float32")


def test_data_that_are_all_zero_are_caught(looked_at):
    found = looked_at(replace(SAMPLES, inputs=np.zeros_like(SAMPLES.inputs)))
    assert _codes(found) == ["DEGENERATE_DATA"]
    assert found.warnings[0].evidence == {"constant": ["inputs"]}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_nonfinite_weight_is_detected(looked_at, value):
    found = looked_at(spoil=value)
    assert _codes(found) == ["OUTPUT_NONFINITE"]
    assert found.warnings[0].evidence == {"nonfinite": 1, "elements": 20}


def test_a_plain_step_that_may_not_fit_in_memory_is_left_out(context):
    device = Device(id="cpu:0", kind="cpu", model="test", host="here", cores=[0], memory_bytes=1 << 20)
    found = _verified(_training(replace(context(), device=device)))
    assert "a plain step may need" in found.unchecked[CODE]
    assert CODE not in found.verified


def test_the_memory_of_the_process_that_starts_a_run_does_not_count():
    child = "from dyno.processes import host_peak_bytes; print(host_peak_bytes())"
    parent = f"import os, sys; held = b'x' * (1 << 29); os.execv(sys.executable, [sys.executable, '-c', {child!r}])"
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1 << 28

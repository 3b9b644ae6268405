"""The choice of a training's `jit_compile`."""

import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset, JitCompile
from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.bench.training.model_training import ModelTraining, Plan, TrainingOutcome, choose_jit
from dyno.bench.training.workload import TrainingParams
from dyno.models.result import DataOrigin
from tests.running import started

INPUTS = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
TARGETS = INPUTS.sum(axis=-1, keepdims=True)


class Made:
    """Plans that count their models by setting."""

    def __init__(self, framework, *more):
        self.settings: list[JitCompile] = []
        self._keras, self._more = framework.keras, more

    def plan(self):
        origin = DataOrigin(name="sums", kind="synthetic", train_samples=100, test_samples=0, sha256={})
        return Plan(self._model, Dataset(INPUTS, TARGETS), origin, lambda model, trainer: TrainingOutcome())

    def _model(self, jit_compile):
        self.settings.append(jit_compile)
        keras = self._keras
        model = keras.Sequential([keras.Input((4,)), *self._more, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit_compile)
        return model


@pytest.fixture
def untold(context):
    """The context of a first run, without an earlier choice."""
    return replace(context(), tuned={})


def _chosen(made, context, jit_compile="auto"):
    return choose_jit(TrainingParams(jit_compile=jit_compile, batch_size=48), made.plan(), context)


@pytest.fixture(scope="module")
def measured(tensorflow, context):
    made = Made(tensorflow)
    return made, _chosen(made, replace(context(), tuned={}))


def test_auto_is_the_faster_one_of_both(measured):
    made, choice = measured
    assert made.settings == [False, True]
    times = choice.details["step_s"]
    assert times.keys() == {"true", "false"}
    assert choice.setting == (times["true"] < times["false"])
    assert choice.details["chosen"] == choice.setting == choice.tuned["jit_compile"]
    assert choice.details["batch_size"] == 32


@pytest.mark.parametrize("asked", [True, False])
def test_a_requested_setting_is_not_measured(tensorflow, untold, asked):
    made = Made(tensorflow)
    choice = _chosen(made, untold, asked)
    assert (made.settings, choice.setting, choice.details["how"]) == ([], asked, "as requested")


@pytest.mark.parametrize("first", [True, False])
def test_later_runs_do_as_the_first(tensorflow, context, first):
    made = Made(tensorflow)
    choice = _chosen(made, replace(context(), tuned={"jit_compile": first}))
    assert (made.settings, choice.setting, choice.details["how"]) == ([], first, "as in the first run")


def test_over_replicas_jit_is_off_without_measuring(tensorflow, untold):
    made = Made(tensorflow)
    assert not _chosen(made, replace(untold, replicas=8)).setting
    assert made.settings == []


class Renamed(TensorFlow):
    """The real framework under another name: the choice depends only on the name."""

    def __init__(self, sound, name):
        super().__init__()
        self._tf, self._keras, self.name = sound._tf, sound._keras, name


@pytest.mark.parametrize(("name", "setting"), [("jax", True), ("torch", False)])
def test_frameworks_with_one_way_only_are_not_measured(tensorflow, untold, name, setting):
    made = Made(tensorflow)
    assert _chosen(made, replace(untold, framework=Renamed(tensorflow, name))).setting == setting
    assert made.settings == []


@pytest.mark.parametrize(
    ("name", "asked", "how"),
    [
        ("jax", False, "requested false; JAX compiles every step"),
        ("jax", True, "JAX compiles every step"),
        ("torch", True, "requested true; PyTorch's step is not compiled"),
        ("torch", False, "PyTorch's step is not compiled"),
    ],
)
def test_a_framework_with_a_single_setting_reports_it(tensorflow, untold, name, asked, how):
    choice = _chosen(Made(tensorflow), replace(untold, framework=Renamed(tensorflow, name)), asked)
    assert (choice.setting, choice.details) == (name == "jax", {"chosen": name == "jax", "how": how})


@pytest.mark.parametrize(
    ("kind", "emulated", "size"), [pytest.param("gpu", True, 32, marks=pytest.mark.verify), ("gpu", False, 48)]
)
def test_an_accelerator_is_measured_at_the_full_batch(tensorflow, untold, device, kind, emulated, size):
    on = device.model_copy(update={"kind": kind, "emulated": emulated})
    assert _chosen(Made(tensorflow), replace(untold, device=on)).details["batch_size"] == size


IN_A_GRAPH = """Graph execution error:

Detected at node train_step defined at (most recent call last):
  File "/home/someone/train.py", line 3, in <module>

no such kernel
\t [[{{node train_step}}]] [Op:__inference_step_1]"""


class FailsLater(Renamed):
    """The compiled step takes no time in the first round and fails in the second."""

    def __init__(self, sound):
        super().__init__(sound, sound.name)
        self.turns: list[bool] = []

    def trainer(self, model, samples, batch_size, seed, steps_per_execution=1):
        trainer = super().trainer(model, samples, batch_size, seed, steps_per_execution)
        sound, compiled = trainer.steps, trainer.jit_compile

        def steps(count):
            if self.turns[-1:] != [compiled]:
                self.turns.append(compiled)
            if self.turns == [False, True, False, True]:
                raise RuntimeError(IN_A_GRAPH)
            return 0.0 if compiled else sound(count)

        trainer.steps = steps
        return trainer


@pytest.mark.verify
def test_xla_that_failed_in_a_later_round_is_not_chosen(tensorflow, untold):
    choice = _chosen(Made(tensorflow), replace(untold, framework=FailsLater(tensorflow)))
    assert not choice.setting
    assert choice.details["how"] == "XLA failed: RuntimeError"
    assert choice.details["xla_error"] == "RuntimeError: no such kernel"
    assert str(choice.details["step_s"]).startswith("{'false'")


@pytest.mark.verify
def test_what_xla_can_not_compile_is_not_compiled(tensorflow, untold):
    import tensorflow as tf

    def unknown_to_xla(value):
        return tf.ensure_shape(tf.numpy_function(lambda array: array, [value], tf.float32), (None, 4))

    made = Made(tensorflow, tensorflow.keras.layers.Lambda(unknown_to_xla, output_shape=(4,)))
    choice = _chosen(made, untold)
    assert not choice.setting
    assert "XLA failed" in str(choice.details["how"])
    assert "PyFunc" in str(choice.details["xla_error"])


class Launches(Renamed):
    """A device on which steps queue: a call of plain steps takes 1 ms for each, one of compiled steps half of that and
    4 ms to start, which hides behind the steps before it in a long queue only.
    """

    def trainer(self, model, samples, batch_size, seed, steps_per_execution=1):
        trainer = super().trainer(model, samples, batch_size, seed, steps_per_execution)
        start_s, step_s = (4e-3, 5e-4) if trainer.jit_compile else (0.0, 1e-3)

        def steps(count):
            until_s = time.perf_counter() + start_s + count * step_s
            while time.perf_counter() < until_s:
                pass
            return 0.0

        trainer.steps = steps
        return trainer


@pytest.mark.verify
def test_steps_queue_in_the_measurement_as_they_do_in_samples(tensorflow, untold):
    """In one of three measurements: a pause of the machine at the wrong moment shortens the queue of one."""
    queued = replace(untold, framework=Launches(tensorflow, "tensorflow"))
    choices = (_chosen(Made(tensorflow), queued) for _ in range(3))
    choice = next(filter(lambda choice: choice.setting, choices), None)
    assert choice.details["how"] == "measured: the faster setting"


@pytest.mark.verify
def test_measuring_does_not_change_the_training(tensorflow, untold):
    def losses(context):
        context.framework.seed(context.seed)
        params = TrainingParams(epochs=2, batch_size=10)
        training = started(ModelTraining(params, Made(tensorflow).plan(), context))
        return [epoch.loss for epoch in training.complete(0.0, 0.0).epochs]

    # XLA, if it was chosen, sums in another order; other first weights change a loss by a tenth.
    assert losses(untold) == pytest.approx(losses(replace(untold, tuned={"jit_compile": False})), rel=1e-3)


@pytest.mark.verify
def test_the_choice_is_in_the_details_and_handed_on_and_its_time_is_the_build_s(tensorflow, untold):
    phases: list[str] = []

    def phase(name):
        phases.append(name)
        return nullcontext()

    training = ModelTraining(TrainingParams(batch_size=10), Made(tensorflow).plan(), replace(untold, phase=phase))
    assert phases == ["build"]
    found = training.verify()
    assert found.details["jit_compile_choice"]["chosen"] == found.details["jit_compile"] == found.tuned["jit_compile"]

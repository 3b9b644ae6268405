"""A training's epochs, validation, callbacks and trials, and their fields in the result."""

import itertools
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset, Trainer
from dyno.bench.measure import result_checks
from dyno.bench.registry import validate_params, workload
from dyno.bench.training.evaluation import evaluate
from dyno.bench.training.model_training import ModelTraining, Plan, TrainingOutcome
from dyno.bench.training.workload import TrainingParams
from dyno.errors import InvalidSpec, RunFailed
from dyno.models.result import DataOrigin
from tests.running import started, training_of
from tests.wrong_steps import StartedTensorFlow

ORIGIN = DataOrigin(name="line", kind="synthetic", train_samples=40, test_samples=0)
RATE = 1e-3
# The only weight grows by the learning rate in every step: the target is far above whatever is predicted.
TRAIN = Dataset(np.ones((40, 1), np.float32), np.full((40, 1), 1e3, np.float32))
# … and the more it grows, the larger the error here: the validation loss is lowest after the first epoch.
AWAY = Dataset(np.ones((4, 1), np.float32), np.full((4, 1), -1e3, np.float32))


def _line(keras, jit_compile, window=None, loss="mean_absolute_error"):
    shape = (1,) if window is None else (window, 1)
    start = keras.initializers.Zeros()
    model = keras.Sequential([keras.Input(shape), keras.layers.Dense(1, use_bias=False, kernel_initializer=start)])
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss=loss, jit_compile=jit_compile)
    return model


def _weight(model):
    return float(model.get_weights()[0][0, 0])


class Judge:
    """Records its arguments and returns `accuracies` in turn."""

    def __init__(self, accuracies=()):
        self.weights: list[float] = []
        self.model: Any = None
        self.trainer: Trainer | None = None
        self._accuracies = iter(accuracies)

    def __call__(self, model, trainer):
        self.model, self.trainer = model, trainer
        self.weights.append(_weight(model))
        accuracy = next(self._accuracies, None)
        return TrainingOutcome({} if accuracy is None else {"accuracy": accuracy, "wrong": round(10 * (1 - accuracy))})


def _plan(context, judge, train=TRAIN, **parts):
    keras = context.framework.keras
    return Plan(lambda jit_compile: _line(keras, jit_compile, train.window), train, ORIGIN, judge, **parts)


def _trained(context, judge, parts=None, **params):
    given = TrainingParams.model_validate(
        {"train": "full", "batch_size": 10, "learning_rate": RATE, "jit_compile": False} | params
    )
    return training_of(ModelTraining(given, _plan(context, judge, **(parts or {})), context))


def test_the_callbacks_act_on_a_validation_loss_that_rises(context):
    """Each epoch has four steps, and each step adds the learning rate to the weight."""
    judge = Judge()
    callbacks = {"early_stopping_patience": 3, "reduce_lr_patience": 1, "best_weights": True}
    training = _trained(context(), judge, {"validation": AWAY}, epochs=20, validation_share=0.1, **callbacks)
    assert [(event.epoch, event.callback) for event in training.callbacks] == [
        *((0, "checkpoint"), (1, "reduce_lr"), (2, "reduce_lr"), (3, "reduce_lr"), (3, "early_stopping")),
    ]
    rates = [RATE, RATE, RATE / 10, RATE / 100]
    assert [epoch.learning_rate for epoch in training.epochs] == pytest.approx(rates)
    # The validation loss is that of the model after the epoch, so it shows the rate of the compiled step.
    after = [1000 + 4 * sum(rates[: count + 1]) for count in range(4)]
    assert [epoch.validation_loss for epoch in training.epochs] == pytest.approx(after, abs=1.5e-4)  # of float32
    assert all(epoch.validation_s > 0 for epoch in training.epochs)
    assert training.best_epoch == 0
    assert judge.weights == pytest.approx([4 * RATE], rel=1e-4)  # of the best epoch


def test_a_validation_loss_that_falls_however_slowly_is_no_plateau(context):
    small = Dataset(np.full((40, 1), 0.01, np.float32), TRAIN.targets)  # the weight grows by a hundredth of the rate
    near = Dataset(np.ones((4, 1), np.float32), np.ones((4, 1), np.float32))
    parts = {"train": small, "validation": near}
    training = _trained(context(), Judge(), parts, epochs=4, validation_share=0.1, reduce_lr_patience=1)
    losses = [epoch.validation_loss or 0.0 for epoch in training.epochs]
    assert all(0 < before - after < 1e-4 for before, after in itertools.pairwise(losses))
    assert training.callbacks == []


def test_the_learning_rate_is_reported_without_validation_too(context):
    epochs = _trained(context(), Judge(), epochs=2).epochs
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([RATE, RATE])
    assert [epoch.validation_loss for epoch in epochs] == [None, None]


@pytest.mark.parametrize("several", [*(pytest.param(each, marks=pytest.mark.verify) for each in (1, 4)), 3])
def test_an_execution_of_several_steps_never_goes_past_the_end_of_an_epoch(context, several):
    judge = Judge()
    given = TrainingParams(batch_size=10, learning_rate=RATE, jit_compile=False, steps_per_execution=several, epochs=2)
    ready = context()
    training = ModelTraining(given, _plan(ready, judge), ready)
    assert training.work == 10 * several
    started(training)
    training.complete(0.0, 0.0)
    assert judge.weights == pytest.approx([8 * RATE], rel=1e-4)
    assert training.verify().details["steps_per_execution"] == several


def test_more_steps_than_the_epochs_of_the_data_found_fail_with_the_number(context):
    with pytest.raises(
        RunFailed, match="5 steps per execution are more than the 4 of an epoch of 40 samples"
    ) as failed:
        _trained(context(), Judge(), steps_per_execution=5)
    assert (failed.value.failure_class, failed.value.reason) == ("benchmark", "too_many_steps")


def test_the_held_out_share_is_used_for_validation_only(context):
    given = TrainingParams(batch_size=4, jit_compile=False, validation_share=0.25)
    training = started(ModelTraining(given, _plan(context(), Judge()), context()))
    assert training.complete(0.0, 0.0).epochs[0].validation_loss is not None
    found = training.verify()
    assert (found.amounts["epoch"], found.details["validation_samples"]) == (30.0, 10)
    assert found.details["trained_samples"] == 30


def test_windows_are_validated_too(context):
    series = np.ones((60, 1), np.float32)
    windows = Dataset(series, series, window=10, starts=np.arange(50, dtype=np.int32))
    training = _trained(context(), Judge(), {"train": windows}, batch_size=5, validation_share=0.2)
    # each output is a few learning rates, each target 1
    assert training.epochs[0].validation_loss == pytest.approx(1, abs=0.05)


@pytest.mark.verify
def test_trials_give_the_mean_accuracy_with_students_t_over_their_seeds(context):
    training = _trained(context(), Judge([0.8, 0.9, 0.7]), trials=3)
    assert [trial.seed for trial in training.trials] == [5, 6, 7]
    assert [trial.accuracy for trial in training.trials] == [0.7, 0.8, 0.9]  # the first is judged last
    assert training.accuracy == pytest.approx(0.8)
    half = 4.302653 * 0.1 / 3**0.5  # t of 2 degrees of freedom, 97.5 %
    assert training.accuracy_low == pytest.approx(0.8 - half)
    assert training.accuracy_high == 1.0
    # beside a mean it would be that of one of them
    assert (training.wrong, [trial.wrong for trial in training.trials]) == (None, [3, 2, 1])


@pytest.mark.verify
def test_a_trial_equals_a_job_with_its_seed(context):
    mnist = workload("mnist_cnn")
    asked = {"data": "sample", "jit_compile": False, "batch_size": 32, "train_samples": 128, "test_samples": 64}

    def trained(seed, trials):
        ready = replace(context(), seed=seed)
        ready.framework.seed(seed)
        return training_of(mnist.build(validate_params(mnist, asked | {"epochs": 1, "trials": trials}), ready))

    first, second = trained(11, 2).trials
    assert second.loss == pytest.approx(trained(12, 1).epochs[0].loss, rel=1e-3)
    assert second.loss != pytest.approx(first.loss, rel=1e-3)


def _of_digits(context, **params):
    mnist = workload("mnist_cnn")
    asked = {"data": "sample", "jit_compile": False, "batch_size": 32, "train_samples": 512, "test_samples": 128}
    context.framework.seed(context.seed)
    training = started(mnist.build(validate_params(mnist, asked | params), context))
    return training.complete(0.5, 0.25)


@pytest.mark.verify
def test_the_time_to_an_accuracy_is_that_of_the_epochs_until_it_is_reached(context):
    training = _of_digits(context(), epochs=4, trials=2, target_accuracy=0.4)
    assert training.target_accuracy == 0.4
    first, second = training.trials
    tested = [epoch.test_accuracy for epoch in training.epochs]
    assert None not in tested
    assert tested[-1] == pytest.approx(first.accuracy)
    count = next(number for number, accuracy in enumerate(tested, 1) if (accuracy or 0.0) >= 0.4)
    assert first.epochs_to_accuracy == count
    assert first.time_to_accuracy_s == pytest.approx(sum(epoch.time_s for epoch in training.epochs[:count]))
    assert first.time_to_accuracy_s >= 0.75  # compiling and the first execution count
    assert second.epochs_to_accuracy in (1, 2, 3, 4)


@pytest.mark.verify
def test_testing_each_epoch_does_not_change_the_training_and_an_accuracy_not_reached_has_no_time(context):
    tested, plain = (_of_digits(context(), epochs=2, **given) for given in ({"target_accuracy": 1.0}, {}))
    assert [epoch.loss for epoch in tested.epochs] == pytest.approx([epoch.loss for epoch in plain.epochs], rel=1e-3)
    [trial] = tested.trials
    assert (trial.epochs_to_accuracy, trial.time_to_accuracy_s) == (None, None)
    assert None not in [epoch.test_accuracy for epoch in tested.epochs]
    assert (plain.trials, plain.target_accuracy) == ([], None)
    assert [epoch.test_accuracy for epoch in plain.epochs] == [None, None]


@pytest.mark.parametrize("name", ["early_stopping_patience", "reduce_lr_patience", "best_weights"])
def test_fields_that_use_the_validation_loss_need_a_validation(name):
    value = True if name == "best_weights" else 2
    with pytest.raises(InvalidSpec, match="validation_share above 0"):
        validate_params(workload("mnist_cnn"), {name: value})
    validate_params(workload("mnist_cnn"), {name: value, "validation_share": 0.1})


def test_a_training_saves_a_plot_and_a_model_that_loads_elsewhere(context, tmp_path):
    judge = Judge()
    ready = replace(context(), artifacts=tmp_path)
    _trained(ready, judge, export="saved_model")
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.keras",
        "model.saved_model.zip",
        "model.weights.h5",
        "training.png",
    }
    keras = ready.framework.keras
    assert _weight(keras.models.load_model(tmp_path / "model.keras")) == judge.weights[0]
    fresh = _line(keras, False)
    fresh.load_weights(tmp_path / "model.weights.h5")
    assert _weight(fresh) == judge.weights[0]
    with zipfile.ZipFile(tmp_path / "model.saved_model.zip") as archive:
        archive.extractall(tmp_path / "served")
    served = keras.layers.TFSMLayer(str(tmp_path / "served"), call_endpoint="serve")
    assert float(served(np.ones((1, 1), np.float32))[0, 0]) == pytest.approx(judge.weights[0])


def test_a_training_starts_from_another_job_s_weights(context, tmp_path):
    first, second = Judge(), Judge()
    _trained(replace(context(), artifacts=tmp_path), first)
    _trained(replace(context(), weights=tmp_path / "model.weights.h5"), second)
    assert second.weights == pytest.approx([2 * first.weights[0]], rel=1e-4)


def test_the_model_is_evaluated_over_samples_that_make_no_whole_batches(tensorflow, context):
    judge = Judge()
    _trained(context(), judge)
    uneven = Dataset(np.arange(13, dtype=np.float32)[:, np.newaxis], np.zeros((13, 1), np.float32))
    found = evaluate(tensorflow.keras, judge.model, judge.trainer, uneven)
    assert found == {"loss": pytest.approx(6 * judge.weights[0], rel=1e-5)}


# With these the error grows two thousandfold in every step, past what float32 holds after a few.
LARGE = np.linspace(990.0, 1010.0, 40, dtype=np.float32)[:, np.newaxis]
EXPLODING = Dataset(LARGE, LARGE)


def _exploding(context, steps_per_execution=1):
    def make(jit_compile):
        return _line(context.framework.keras, jit_compile, loss="mean_squared_error")

    params = TrainingParams(train="full", batch_size=10, jit_compile=False, steps_per_execution=steps_per_execution)
    training = ModelTraining(params, replace(_plan(context, Judge(), EXPLODING), make=make), context)
    training.compile()
    return training


@pytest.mark.provokes("LOSS_NONFINITE")
@pytest.mark.silent("LOSS_NONFINITE")
def test_a_finished_training_survives_a_nonfinite_loss_in_the_timing(context):
    training = _exploding(context())
    training.execute(1)
    assert len(training.complete(0.0, 0.0).epochs) == 1
    assert training.verify().warnings == []
    training.execute(50)
    raised = {each.code: each.severity for each in training.verify().warnings}
    assert raised == {"LOSS_NONFINITE": "A", "OUTPUT_NONFINITE": "A"}


def test_a_timing_run_warns_of_a_nonfinite_loss(context):
    training = _exploding(context(run=1))
    training.execute(50)
    assert [raised.code for raised in training.verify().warnings] == ["LOSS_NONFINITE", "OUTPUT_NONFINITE"]


def test_a_training_run_fails_with_a_nonfinite_loss(context):
    training = _exploding(context())
    with pytest.raises(RunFailed) as failed:
        training.execute(50)
    assert failed.value.reason == "nonfinite_loss"


def _diverging(context, learning_rate, **params):
    """A network of two layers, on random data: a learning rate of 10 makes the loss explode, but not overflow."""
    random, keras = np.random.default_rng(2), context.framework.keras

    def make(jit_compile):
        layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(4, activation="softmax")]
        model = keras.Sequential([keras.Input((6,)), *layers])
        model.compile(keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", jit_compile=jit_compile)
        return model

    samples = Dataset(random.standard_normal((256, 6), np.float32), random.integers(0, 4, 256, np.int32))
    plan = Plan(make, samples, ORIGIN, lambda model, trainer: TrainingOutcome())
    given = TrainingParams.model_validate({"train": "full", "batch_size": 64, "jit_compile": False} | params)
    return ModelTraining(given, plan, context)


@pytest.mark.verify
@pytest.mark.parametrize("run", [0, 1])
@pytest.mark.provokes("LOSS_RISING")
@pytest.mark.silent("LOSS_RISING")
def test_steps_that_diverge_in_the_timing_raise_a_warning_in_every_run(context, run):
    def raised(learning_rate):
        training = started(_diverging(context(run=run), learning_rate))
        if run == 0:
            training._model.optimizer.learning_rate = 0.0
            training.complete(0.0, 0.0)
            training._model.optimizer.learning_rate = learning_rate
        training.execute(20)
        return [each.code for each in training.verify().warnings]

    assert raised(1e-6) == []
    assert raised(10.0) == ["LOSS_RISING"]


@pytest.mark.verify
def test_the_loss_before_the_first_step_is_reported_for_every_trial(context):
    training = started(_diverging(context(), 1e-6, trials=2))
    found = training.complete(0.0, 0.0)
    starts = [trial.start_loss for trial in found.trials]
    assert starts[0] == found.start_loss
    assert starts == pytest.approx([trial.loss for trial in found.trials], rel=0.5)
    assert [trial.highest_loss for trial in found.trials] == [trial.loss for trial in found.trials]


@pytest.mark.verify
def test_a_small_batch_or_another_job_s_weights_do_not_tell_where_a_training_starts(context, tmp_path):
    first = started(_diverging(replace(context(), artifacts=tmp_path), 1e-6, batch_size=16))
    assert first.complete(0.0, 0.0).start_loss is None
    second = started(_diverging(replace(context(), weights=tmp_path / "model.weights.h5"), 1e-6))
    assert second.complete(0.0, 0.0).start_loss is None


def _verified(context, learning_rate, **params):
    training = started(_diverging(context, learning_rate, **params))
    found = training.complete(0.0, 0.0)
    assert found.start_loss is None
    assert result_checks.loss_rising(found) is None
    return training.verify()


@pytest.mark.parametrize(
    "how",
    [
        {"batch_size": 16},
        pytest.param({"batch_size": 1, "trials": 2}, marks=pytest.mark.verify),
        pytest.param({"steps_per_execution": 2}, marks=pytest.mark.verify),
    ],
)
@pytest.mark.provokes("LOSS_RISING")
@pytest.mark.silent("LOSS_RISING")
def test_a_training_whose_first_step_does_not_tell_is_held_against_new_weights(context, how):
    assert _verified(context(), 1e-6, **how).warnings == []
    [raised] = _verified(context(), 10.0, **how).warnings
    assert raised.code == "LOSS_RISING"
    assert raised.evidence["start"] == pytest.approx(1.5, abs=0.7)


@pytest.mark.verify
def test_a_training_from_another_job_s_weights_is_held_against_new_ones(context, tmp_path):
    first = replace(context(), artifacts=tmp_path)
    _verified(first, 1e-6, batch_size=16)
    further = replace(context(), weights=tmp_path / "model.weights.h5")
    assert _verified(further, 1e-6).warnings == []
    assert [each.code for each in _verified(further, 10.0).warnings] == ["LOSS_RISING"]


def test_new_weights_that_can_not_be_judged_leave_the_check_unmade(context):
    training = started(_diverging(context(), 1e-6, batch_size=16))
    training.complete(0.0, 0.0)

    def broken(jit_compile):
        raise MemoryError("no room")

    training._new_model = broken
    found = training.verify()
    assert found.warnings == []
    assert found.unchecked["LOSS_RISING"] == "the loss of new weights isn't known: MemoryError: no room"


def test_a_validation_loss_that_is_not_finite_is_none_and_raises_a_warning(context):
    beyond = Dataset(np.full((4, 1), 1e30, np.float32), np.full((4, 1), np.inf, np.float32))
    training = _trained(context(), Judge(), {"validation": beyond}, validation_share=0.1)
    assert (training.epochs[0].validation_loss, training.epochs[0].validation_s is None) == (None, False)
    raised = result_checks.loss_rising(training)
    assert (raised.code, raised.evidence) == ("LOSS_RISING", {"epochs": [0]})
    assert result_checks.loss_rising(_trained(context(), Judge(), {"validation": AWAY}, validation_share=0.1)) is None


class StepByStep(StartedTensorFlow):
    """The real framework with one step per call, like JAX on a CPU."""

    def trainer(self, model, samples, batch_size, seed, steps_per_execution=1):
        return super().trainer(model, samples, batch_size, seed, 1)


def test_steps_that_a_framework_makes_in_separate_calls_only_fail(tensorflow, context):
    with pytest.raises(RunFailed, match="tensorflow makes each step in a separate call") as failed:
        _exploding(context(StepByStep(tensorflow)), steps_per_execution=3)
    assert (failed.value.failure_class, failed.value.reason) == ("unsupported", "steps_unsupported")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("imdb_lstm", {"data": "synthetic", "train_samples": 40, "test_samples": 10, "length": 5}),
        pytest.param("weather_gru", {"data": "synthetic", "window": 5, "warmup_steps": 1}, marks=pytest.mark.verify),
        pytest.param("shakespeare_lstm", {"window": 5, "embedding": 4}, marks=pytest.mark.verify),
    ],
)
def test_only_steps_made_count_as_work(tensorflow, context, name, params):
    small = {"units": 4, "batch_size": 10, "steps_per_execution": 3, "jit_compile": False}
    asked = validate_params(workload(name), params | small)
    in_turn = workload(name).build(asked, context(tensorflow))
    assert in_turn.work == 30
    assert in_turn.verify().flops == workload(name).flops(asked)

"""Forecast the next day's weather from the last eight weeks of 20 hourly signals.

The model is the GRU of the reference article.

The signals come from five stations. GRU 512 that returns sequences, Dense 3 sigmoid (temperature, wind speed and
pressure of one station), windows of 1344 hours, targets 24 hours ahead, all scaled to the range of the training hours;
RMSprop, mean squared error without the first 50 steps. Windows may start at any training hour and take
no further memory. The evaluation uses forecasts of held-out hours.

A training sample, one window, takes 6.6 GFLOP (2 for a multiply-add): 3 · window · (6·units·(signals + units) +
2·units·3). Two thirds are for the gradients. By convention the count includes the gradient with respect to the signals
(1.3 %), although a framework may skip it. It omits biases, element-wise operations and the optimiser.

Nearly all memory holds the values that a step keeps for its backward pass. At the defaults a step needs 7.2e9 bytes in
total with TensorFlow on a CPU and about 1.4e10 with JAX (derived from steps of 8 and 32 windows). Smaller `batch_size`,
`window` and `units` reduce it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from dyno.bench.contract import BuildContext
from dyno.bench.datasets import weather
from dyno.bench.datasets.weather import HOURS, SIGNALS, TRAIN_HOURS
from dyno.bench.frameworks.interface import Dataset, JitCompile, Trainer
from dyno.bench.references import CPU, GPU, HARNESS, TPU
from dyno.bench.training import cost, evaluation, model_training, plots, recurrent, workload
from dyno.errors import FieldError
from dyno.settings import Settings

QUANTITIES = {"temp": "°C", "wind_speed": "m/s", "pressure": "hPa"}  # forecast quantities and their units
_PLOTTED = 1000  # hours, as in the reference
_BLOCK_H = 168  # a week, because the weather of neighbouring days is alike


@dataclass(frozen=True)
class Series:
    """`inputs` (hours, signals) and, `horizon` hours later, `targets` (hours, 3). Both are in units of their range.

    0 to 1 is the range over the first `train` hours; later values may lie outside. `low` and `span` describe the range
    of the targets in physical units. The targets of the training hours don't reach into the held-out hours.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]
    columns: tuple[int, ...]  # input columns of the target quantities
    low: NDArray[np.float32]
    span: NDArray[np.float32]
    train: int
    station: str


def series(data: weather.Weather, horizon: int) -> Series:
    """Scale the data and build inputs and targets; the targets belong to the first station."""
    station = data.signals[0].split()[0]
    columns = tuple(data.signals.index(f"{station} {quantity}") for quantity in QUANTITIES)
    training_values = data.values[: data.origin.train_samples]
    low, span = training_values.min(axis=0), np.ptp(training_values, axis=0)
    span[span == 0] = 1.0
    scaled = (data.values - low) / span
    return Series(
        inputs=scaled[:-horizon],
        targets=scaled[horizon:, columns],
        columns=columns,
        low=low[list(columns)],
        span=span[list(columns)],
        train=len(training_values) - horizon,
        station=station,
    )


def loss_after(keras: Any, warmup_steps: int) -> Any:
    """The mean squared error without the first steps of each window, where the model has seen little input.

    A saved model's configuration calls it `dyno>MseAfterWarmup`.
    """

    class MseAfterWarmup(keras.losses.Loss):  # type: ignore[misc] # only runners import Keras, so it is Any
        def __init__(self, warmup_steps: int, name: str = "mse_after_warmup", **options: Any) -> None:
            super().__init__(name=name, **options)
            self.warmup_steps = warmup_steps

        def call(self, y_true: Any, y_pred: Any) -> Any:
            return keras.ops.mean(keras.ops.square(y_pred - y_true)[:, self.warmup_steps :], axis=-1)

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "warmup_steps": self.warmup_steps}

    return keras.saving.register_keras_serializable("dyno")(MseAfterWarmup)(warmup_steps)


def weather_model(keras: Any, signals: int, params: WeatherGruParams, jit_compile: JitCompile) -> Any:
    """The network, compiled for training."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((params.window, signals)),
            layers.GRU(params.units, return_sequences=True, **recurrent.layer_options(params.recurrence)),
            layers.Dense(len(QUANTITIES), activation="sigmoid"),
        ]
    )
    model.compile(
        optimizer=workload.new_optimizer(keras, params.optimizer, params.learning_rate),
        loss=loss_after(keras, params.warmup_steps),
        jit_compile=jit_compile,
    )
    return model


def windows(hours: Series, first: int, last: int, params: WeatherGruParams) -> Dataset:
    """Windows over the hours from `first` up to `last`. They forecast every hour after the first window's warm-up.

    The last window may overlap its predecessor by more than the warm-up. At least one window must fit: see
    `WeatherGruParams.conflicts`.
    """
    starts = np.arange(first, last - params.window, params.window - params.warmup_steps, dtype=np.int32)
    starts = np.append(starts, np.int32(last - params.window))
    return Dataset(hours.inputs, hours.targets, params.window, starts)


def plan(params: WeatherGruParams, context: BuildContext) -> model_training.Plan:
    """Train on windows that start at any hour; validate on the last hours before the test hours."""
    with context.phase("data"):
        data = weather.load(Settings(data_dir=context.data_dir), params.data)
        hours = series(data, params.horizon_h)
    validated = params.validated_hours
    trained = hours.train - validated - (params.horizon_h if validated else 0)
    starts = np.arange(trained - params.window + 1, dtype=np.int32)
    test = windows(hours, hours.train + params.horizon_h, len(hours.inputs), params)
    keras, signals = context.framework.keras, hours.inputs.shape[1]
    return model_training.Plan(
        make=lambda jit_compile: weather_model(keras, signals, params, jit_compile),
        train=Dataset(hours.inputs, hours.targets, params.window, starts),
        validation=windows(hours, hours.train - validated, hours.train, params) if validated else None,
        data=data.origin,
        params={"data": data.origin.kind},
        judge=lambda model, trainer: _judged(params, hours, test, trainer, context),
        steps_per_epoch=params.steps_per_epoch,
        jit_unmeasured=recurrent.jit_unmeasured(params.recurrence, context.device),
    )


def _judged(
    params: WeatherGruParams, hours: Series, test: Dataset, trainer: Trainer, context: BuildContext
) -> model_training.TrainingOutcome:
    """Evaluate each hour once, except the first window's warm-up. Errors are in units of the range, like the loss."""
    assert test.starts is not None
    context.report("evaluation", 0, len(test), "samples")
    first = int(test.starts[0])
    predicted = _series_of(test, trainer, params.warmup_steps)
    judged = slice(first + params.warmup_steps, first + params.warmup_steps + len(predicted))
    true, last = hours.targets[judged], hours.inputs[judged][:, list(hours.columns)]
    mean = hours.targets[: hours.train].mean(axis=0)
    model_errors = _errors(predicted, true)
    untrained = {"last_value_mse": _errors(last, true), "training_mean_mse": _errors(mean, true)}
    training = {
        "test": {"mse": float(model_errors.mean())},
        "baselines": {name: float(errors.mean()) for name, errors in untrained.items()},
    }
    _draw(hours, predicted, true, params.horizon_h, context)
    details: dict[str, JsonValue] = {
        "signals": [_signal(hours, number, predicted, true, last) for number in range(len(QUANTITIES))],
        "forecast_hours": len(predicted),
        "rnn_kernel": recurrent.rnn_kernel(context, params.recurrence, "gru"),
    }
    return model_training.TrainingOutcome(training, details, evaluation.margins(model_errors, untrained, _BLOCK_H))


def _series_of(test: Dataset, trainer: Trainer, warmup_steps: int) -> NDArray[np.float32]:
    """(hours, 3): the predictions after each window's warm-up, in order. Later windows overwrite earlier ones."""
    assert test.starts is not None
    assert test.window is not None
    first = test.starts[0] + warmup_steps
    forecast = np.empty((test.starts[-1] + test.window - first, len(QUANTITIES)), np.float32)
    parts = [trainer.predict(inputs, trainer.batch_size) for inputs, _ in evaluation.batches(test, trainer.batch_size)]
    for start, window in zip(test.starts + warmup_steps - first, np.concatenate(parts), strict=True):
        forecast[start : start + test.window - warmup_steps] = window[warmup_steps:]
    return forecast


def _draw(
    hours: Series, predicted: NDArray[np.float32], true: NDArray[np.float32], horizon_h: int, context: BuildContext
) -> None:
    """Plot the first held-out hours in physical units, one picture per signal."""
    for column, (quantity, unit) in enumerate(QUANTITIES.items()):
        low, span = hours.low[column], hours.span[column]
        shown, really = low + span * predicted[:_PLOTTED, column], low + span * true[:_PLOTTED, column]
        title = f"{hours.station}: {quantity} {horizon_h} hours ahead, held-out hours"
        plots.plot_forecast(context.artifacts, f"forecast_{quantity}.png", shown, really, title, unit)


def _signal(
    hours: Series, column: int, predicted: NDArray[np.float32], true: NDArray[np.float32], last: NDArray[np.float32]
) -> JsonValue:
    """Root mean squared errors in physical units. A sigmoid can't reach values outside the training range."""
    quantity, unit = list(QUANTITIES.items())[column]
    span, truth = float(hours.span[column]), true[:, column]
    return {
        "signal": f"{hours.station} {quantity}",
        "unit": unit,
        "rmse": span * _mse(predicted[:, column], truth) ** 0.5,
        "last_value_rmse": span * _mse(last[:, column], truth) ** 0.5,
        "outside_training_range": float(np.mean((truth < 0) | (truth > 1))),
    }


def _errors(predicted: NDArray[np.float32], true: NDArray[np.float32]) -> NDArray[np.float64]:
    """The squared error of each hour, averaged over the signals."""
    return np.asarray(np.square(predicted.astype(np.float64) - true).mean(axis=-1))


def _mse(predicted: NDArray[np.float32], true: NDArray[np.float32]) -> float:
    return float(np.mean(np.square(predicted.astype(np.float64) - true)))


_SERIES_BYTES = HOURS * (len(SIGNALS) + len(QUANTITIES)) * 4  # one copy: as read, scaled, or on a device
_READING_BYTES = 50_000_000  # the file as text


class WeatherGruParams(recurrent.RecurrentParams):
    batch_size: Annotated[int, Field(ge=1, le=8192)] = 256
    epochs: workload.EpochCount = 10
    steps_per_epoch: Annotated[int, Field(ge=1, le=10_000)] = 10
    optimizer: workload.OptimizerName = "rmsprop"
    learning_rate: workload.LearningRate = 1e-3
    window: Annotated[int, Field(ge=2, le=8192)] = Field(1344, description="Hours per sample; 1344 are eight weeks")
    warmup_steps: Annotated[int, Field(ge=0, le=8191)] = Field(
        50, description="First steps of each window, excluded from the loss"
    )
    horizon_h: Annotated[int, Field(ge=1, le=720)] = Field(24, description="Hours to forecast ahead")
    units: recurrent.Units = 512
    validation_share: Annotated[float, Field(ge=0, le=0.5)] = Field(
        0.1, description="Share of the training hours held out for validation, from the end"
    )
    early_stopping_patience: workload.EpochCount | None = 5
    reduce_lr_patience: workload.EpochCount | None = 1
    best_weights: bool = True

    def conflicts(self) -> list[FieldError]:
        errors = [*super().conflicts(), *self.unrolled_too_far(self.window, "/window")]
        if self.warmup_steps >= self.window:
            errors.append(
                FieldError("/warmup_steps", "no-steps-left", f"must be less than the window of {self.window} steps")
            )
        if (tested := HOURS - TRAIN_HOURS - self.horizon_h) < self.window:
            detail = f"at most {tested}: that many held-out hours have a target {self.horizon_h} hours ahead"
            errors.append(FieldError("/window", "too-few-hours", detail))
        if 0 < (validated := self.validated_hours) < self.window:
            detail = f"{validated} validation hours are too few for a window of {self.window}"
            errors.append(FieldError("/validation_share", "too-few-hours", detail))
        return errors

    @property
    def epoch_steps(self) -> int:
        return self.steps_per_epoch

    @property
    def validated_hours(self) -> int:
        """The number of validation hours at the end of the training part. The training targets end before them."""
        return evaluation.held_out_count(TRAIN_HOURS - self.horizon_h, self.validation_share)


def flops_per_sample(params: WeatherGruParams) -> float:
    """6.6 GFLOP at the defaults."""
    return 3.0 * params.window * (recurrent.gru_flops(len(SIGNALS), params.units) + 2 * params.units * len(QUANTITIES))


def _cost(params: WeatherGruParams) -> recurrent.RecurrentCost:
    """Memory of the hours and of one step's states, which dominate at the defaults."""
    weights = 3 * params.units * (len(SIGNALS) + params.units)
    counted = params.window - params.warmup_steps  # new hours in each further window
    return recurrent.RecurrentCost(
        counts=cost.counts_of_steps(
            params,
            params.steps_per_epoch,
            validated=math.ceil(params.validated_hours / counted),
            tested=math.ceil((HOURS - TRAIN_HOURS) / counted),
        ),
        flops_per_sample=flops_per_sample(params),
        steps=params.window,
        units=params.units,
        weights=weights,
        all_weights=weights + params.units * len(QUANTITIES),
        host_bytes=2 * _SERIES_BYTES + _READING_BYTES,
        data_bytes=_SERIES_BYTES,
        sample_bytes=params.window * (len(SIGNALS) + len(QUANTITIES)) * 4 * 2,
    )


_UNFUSED = (
    "6.6 GFLOP per window, 2560 windows per epoch: 0.4 TFLOP/s. The GPU probably didn't run its fused GRU kernel."
)
_RISING = (
    "The loss rose from epoch 1 to 5 (0.0115 to 0.0376), and neither early stopping nor checkpoints could trigger."
)
_NO_VALIDATION = "Without a validation loss, early stopping, checkpoints and learning-rate reduction couldn't trigger."


REFERENCES = (
    HARNESS.figure(GPU, "epoch_time", 42.0, "s", f"{_UNFUSED} {_NO_VALIDATION}"),
    HARNESS.figure(GPU, "epoch_time", 44.0, "s", f"{_UNFUSED} {_NO_VALIDATION}"),
    HARNESS.figure(GPU, "training_time", 432.0, "s", _NO_VALIDATION),
    HARNESS.figure(TPU, "first_epoch_time", 14.0, "s", "According to the article, compiling took 3.39 s of it."),
    HARNESS.figure(TPU, "epoch_time", 5.0, "s", _RISING),
    HARNESS.figure(TPU, "training_time", 66.0, "s", _RISING),
    HARNESS.figure(CPU, "epoch_time", None, "s", "It ran out of memory."),
)

TRAINING = recurrent.RecurrentTraining(plan, _cost)
WORKLOAD = workload.training_workload(
    TRAINING,
    "weather_gru",
    "Training a GRU that forecasts temperature, wind and pressure a day ahead",
    WeatherGruParams,
    "weather",
    REFERENCES,
    smoke=workload.training_smoke(
        {"batch_size": 8, "steps_per_epoch": 2, "window": 60, "units": 8},
        {"rnn_kernel", "signals"},
        {"forecast_temp.png", "forecast_wind_speed.png", "forecast_pressure.png"},
    ),
    bench={"window": 336, "units": 128, "batch_size": 64, "epochs": 3},
    options="eight weeks of hourly weather at a time; plots the forecasts beside the real weather",
)

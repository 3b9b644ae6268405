"""The training of `weather_gru`: the model, windows over the hours, what it forecasts for hours it hasn't seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.datasets import weather
from dyno.frameworks.contract import JitCompile, Samples, Trainer
from dyno.settings import Settings
from dyno.workloads._evaluation import batches
from dyno.workloads._margins import margins
from dyno.workloads._optimizers import made
from dyno.workloads._plots import forecast
from dyno.workloads._recurrent import jit_unmeasured, layer_options, rnn_kernel
from dyno.workloads._training import Outcome, Plan
from dyno.workloads.contract import BuildContext

if TYPE_CHECKING:
    from dyno.workloads.weather_gru import WeatherGruParams

QUANTITIES = {"temp": "°C", "wind_speed": "m/s", "pressure": "hPa"}  # what is forecast, and its unit
_PLOTTED = 1000  # hours, as in the reference
_BLOCK_H = 168  # a week: the weather of neighbouring days is alike


@dataclass(frozen=True)
class Series:
    """`inputs` (hours, signals) and `targets` (hours, 3), the same `horizon` hours later, in units of their range.

    0 to 1 is the range over the `train` first hours; later ones may lie outside. `low` and `span` are that of the
    targets, in physical units. No hour of training has a target among those held out.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]
    columns: tuple[int, ...]  # of the inputs, where the targets come from
    low: NDArray[np.float32]
    span: NDArray[np.float32]
    train: int
    station: str


def series(data: weather.Weather, horizon: int) -> Series:
    """The targets are those of the first station."""
    station = data.signals[0].split()[0]
    columns = tuple(data.signals.index(f"{station} {quantity}") for quantity in QUANTITIES)
    known = data.values[: data.origin.train_samples]
    low, span = known.min(axis=0), np.ptp(known, axis=0)
    span[span == 0] = 1.0
    scaled = (data.values - low) / span
    return Series(
        inputs=scaled[:-horizon],
        targets=scaled[horizon:, columns],
        columns=columns,
        low=low[list(columns)],
        span=span[list(columns)],
        train=len(known) - horizon,
        station=station,
    )


def loss_after(keras: Any, warmup_steps: int) -> Any:
    """The mean squared error, but for the first steps of each window, at which the model has seen next to nothing.

    A saved model's configuration names it as `dyno>MseAfterWarmup`.
    """

    class MseAfterWarmup(keras.losses.Loss):  # type: ignore[misc] # Keras is imported by runners only, so it is Any
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
            layers.GRU(params.units, return_sequences=True, **layer_options(params.recurrence)),
            layers.Dense(len(QUANTITIES), activation="sigmoid"),
        ]
    )
    model.compile(
        optimizer=made(keras, params.optimizer, params.learning_rate),
        loss=loss_after(keras, params.warmup_steps),
        jit_compile=jit_compile,
    )
    return model


def windows(hours: Series, first: int, last: int, params: WeatherGruParams) -> Samples:
    """Windows over the hours from `first` to before `last` that forecast each once the warm-up of the first is over.

    The last one may overlap more than the warm-up. At least one must fit: see `WeatherGruParams.conflicts`.
    """
    starts = np.arange(first, last - params.window, params.window - params.warmup_steps, dtype=np.int32)
    starts = np.append(starts, np.int32(last - params.window))
    return Samples(hours.inputs, hours.targets, params.window, starts)


def plan(params: WeatherGruParams, context: BuildContext) -> Plan:
    """Train on windows that begin at any hour, validate on the last hours before those held out for the test."""
    with context.phase("data"):
        data = weather.load(Settings(data_dir=context.data_dir), params.data)
        hours = series(data, params.horizon_h)
    validated = params.validated_hours
    trained = hours.train - validated - (params.horizon_h if validated else 0)
    starts = np.arange(trained - params.window + 1, dtype=np.int32)
    test = windows(hours, hours.train + params.horizon_h, len(hours.inputs), params)
    keras, signals = context.framework.keras, hours.inputs.shape[1]
    return Plan(
        make=lambda jit_compile: weather_model(keras, signals, params, jit_compile),
        train=Samples(hours.inputs, hours.targets, params.window, starts),
        validation=windows(hours, hours.train - validated, hours.train, params) if validated else None,
        data=data.origin,
        judge=lambda model, trainer: _judged(params, hours, test, trainer, context),
        steps_per_epoch=params.steps_per_epoch,
        jit_unmeasured=jit_unmeasured(params.recurrence, context.device),
    )


def _judged(params: WeatherGruParams, hours: Series, test: Samples, trainer: Trainer, context: BuildContext) -> Outcome:
    """Each hour once, those of the first window's warm-up apart. Errors in units of the range, as the loss is."""
    assert test.starts is not None
    context.report("evaluation", 0, len(test), "samples")
    first = int(test.starts[0])
    predicted = _series_of(test, trainer, params.warmup_steps)
    known = slice(first + params.warmup_steps, first + params.warmup_steps + len(predicted))
    true, now = hours.targets[known], hours.inputs[known][:, list(hours.columns)]
    mean = hours.targets[: hours.train].mean(axis=0)
    own = _errors(predicted, true)
    untrained = {"last_value_mse": _errors(now, true), "training_mean_mse": _errors(mean, true)}
    training = {
        "test": {"mse": float(own.mean())},
        "baselines": {name: float(errors.mean()) for name, errors in untrained.items()},
    }
    _draw(hours, predicted, true, params.horizon_h, context)
    details: dict[str, JsonValue] = {
        "signals": [_signal(hours, place, predicted, true, now) for place in range(len(QUANTITIES))],
        "forecast_hours": len(predicted),
        "rnn_kernel": rnn_kernel(context, params.recurrence, "gru"),
    }
    return Outcome(training, details, margins(own, untrained, _BLOCK_H))


def _series_of(test: Samples, trainer: Trainer, warmup_steps: int) -> NDArray[np.float32]:
    """(hours, 3): of each window what follows its warm-up, in the order of the hours. A later window counts."""
    assert test.starts is not None
    assert test.window is not None
    first = test.starts[0] + warmup_steps
    found = np.empty((test.starts[-1] + test.window - first, len(QUANTITIES)), np.float32)
    parts = [trainer.predict(inputs, trainer.batch_size) for inputs, _ in batches(test, trainer.batch_size)]
    for start, window in zip(test.starts + warmup_steps - first, np.concatenate(parts), strict=True):
        found[start : start + test.window - warmup_steps] = window[warmup_steps:]
    return found


def _draw(
    hours: Series, predicted: NDArray[np.float32], true: NDArray[np.float32], horizon_h: int, context: BuildContext
) -> None:
    """The first hours held out, a picture a signal, in physical units."""
    for place, (quantity, unit) in enumerate(QUANTITIES.items()):
        low, span = hours.low[place], hours.span[place]
        shown, really = low + span * predicted[:_PLOTTED, place], low + span * true[:_PLOTTED, place]
        title = f"{hours.station}: {quantity} {horizon_h} hours ahead, on hours held out"
        forecast(context.artifacts, f"forecast_{quantity}.png", shown, really, title, unit)


def _signal(
    hours: Series, place: int, predicted: NDArray[np.float32], true: NDArray[np.float32], now: NDArray[np.float32]
) -> JsonValue:
    """Root mean squared errors in physical units. Outside the range of training no sigmoid can reach the true value."""
    quantity, unit = list(QUANTITIES.items())[place]
    span, truth = float(hours.span[place]), true[:, place]
    return {
        "signal": f"{hours.station} {quantity}",
        "unit": unit,
        "rmse": span * _mse(predicted[:, place], truth) ** 0.5,
        "last_value_rmse": span * _mse(now[:, place], truth) ** 0.5,
        "outside_training_range": float(np.mean((truth < 0) | (truth > 1))),
    }


def _errors(predicted: NDArray[np.float32], true: NDArray[np.float32]) -> NDArray[np.float64]:
    """Squared, of each hour: the mean over the signals."""
    return np.asarray(np.square(predicted.astype(np.float64) - true).mean(axis=-1))


def _mse(predicted: NDArray[np.float32], true: NDArray[np.float32]) -> float:
    return float(np.mean(np.square(predicted.astype(np.float64) - true)))

"""Tomorrow's weather from the last eight weeks: the reference's GRU over 20 signals of five stations, hour by hour.

GRU 512 with its sequences returned, Dense 3 sigmoid (temperature, wind speed and pressure of one station), windows of
1344 hours, targets 24 hours ahead, all in units of the training hours' range; RMSprop, mean squared error without the
first 50 steps. A window starts at any hour of training and takes no memory of its own.

FLOP per training sample (a window), multiply-add = 2: 3 · window · (6·units·(signals + units) + 2·units·3), the
forward pass and twice as much for the gradients; 6.6 GFLOP. Convention counts the gradient with respect to the signals
too (1.3 %), which a framework may skip. Biases, gates and the optimiser are left out.

What a step keeps for its way back is nearly all of the memory: at the defaults 7.2e9 bytes in all with TensorFlow on a
CPU, about 1.4e10 with JAX (by steps of 8 and 32 windows). `batch_size`, `window` and `units` make it less.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from dyno.datasets.weather_signals import HOURS, SIGNALS, TRAIN_HOURS
from dyno.errors import FieldError
from dyno.workloads._articles import CPU, GPU, HARNESS, TPU
from dyno.workloads._forecast import QUANTITIES, plan
from dyno.workloads._holdout import held_out_count
from dyno.workloads._optimizers import DESCRIPTION as OPTIMIZERS
from dyno.workloads._optimizers import Optimizer
from dyno.workloads._recurrent import RecurrentParams, gru_flops
from dyno.workloads._recurrent_cost import Cost
from dyno.workloads._recurrent_training import RecurrentTraining
from dyno.workloads._schedule import of_steps
from dyno.workloads._training_workload import training_workload

_SERIES_BYTES = HOURS * (len(SIGNALS) + len(QUANTITIES)) * 4  # as read, as scaled, and as on each device
_READING_BYTES = 50_000_000  # the file as text


class WeatherGruParams(RecurrentParams):
    batch_size: Annotated[int, Field(ge=1, le=8192)] = 256
    epochs: Annotated[int, Field(ge=1, le=1000)] = 10
    steps_per_epoch: Annotated[int, Field(ge=1, le=10_000)] = 10
    optimizer: Optimizer = Field("rmsprop", description=OPTIMIZERS)
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-3, description="The optimiser's")
    window: Annotated[int, Field(ge=2, le=8192)] = Field(1344, description="Hours of a sample; 1344 are eight weeks")
    warmup_steps: Annotated[int, Field(ge=0, le=8191)] = Field(50, description="Of each window, left out of the loss")
    horizon_h: Annotated[int, Field(ge=1, le=720)] = Field(24, description="How many hours ahead to forecast")
    units: Annotated[int, Field(ge=1, le=8192)] = 512
    validation_share: Annotated[float, Field(ge=0, le=0.5)] = Field(0.1, description="Of the training hours, the last")
    early_stopping_patience: Annotated[int, Field(ge=1, le=1000)] | None = 5
    reduce_lr_patience: Annotated[int, Field(ge=1, le=1000)] | None = 1
    best_weights: bool = True

    def conflicts(self) -> list[FieldError]:
        found = [*super().conflicts(), *self.unrolled_too_far(self.window, "/window")]
        if self.warmup_steps >= self.window:
            found.append(FieldError("/warmup_steps", "no-steps-left", f"a window has {self.window} steps"))
        if (tested := HOURS - TRAIN_HOURS - self.horizon_h) < self.window:
            detail = f"{tested} hours are held out that have a forecast {self.horizon_h} hours ahead"
            found.append(FieldError("/window", "too-few-hours", detail))
        if 0 < (validated := self.validated_hours) < self.window:
            detail = f"{validated} hours of validation hold no window of {self.window}"
            found.append(FieldError("/validation_share", "too-few-hours", detail))
        return found

    @property
    def validated_hours(self) -> int:
        """The last of those of training; the targets of the training hours end before them."""
        return held_out_count(TRAIN_HOURS - self.horizon_h, self.validation_share)


def flops_per_sample(params: WeatherGruParams) -> float:
    """6.6 GFLOP at the defaults."""
    return 3.0 * params.window * (gru_flops(len(SIGNALS), params.units) + 2 * params.units * len(QUANTITIES))


def _cost(params: WeatherGruParams) -> Cost:
    """The hours, and one step's states at once: at the defaults those are nearly all of it."""
    weights = 3 * params.units * (len(SIGNALS) + params.units)
    counted = params.window - params.warmup_steps  # hours that each further window adds
    return Cost(
        schedule=of_steps(
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


_UNFUSED = "6.6 GFLOP a window, 2560 windows an epoch: 0.4 TFLOP/s. The GPU hardly ran its fused GRU kernel."
_RISING = "Its loss rose from epoch 1 to 5 (0.0115 to 0.0376), and neither stopping nor checkpoint could fire."
_NO_VALIDATION = "Neither stopping, checkpoint nor a lower rate could fire: there was no validation loss."


REFERENCES = (
    HARNESS.figure(GPU, "epoch_time", 42.0, "s", f"{_UNFUSED} {_NO_VALIDATION}"),
    HARNESS.figure(GPU, "epoch_time", 44.0, "s", f"{_UNFUSED} {_NO_VALIDATION}"),
    HARNESS.figure(GPU, "training_time", 432.0, "s", _NO_VALIDATION),
    HARNESS.figure(TPU, "first_epoch_time", 14.0, "s", "3.39 s of it were compiling, it says."),
    HARNESS.figure(TPU, "epoch_time", 5.0, "s", _RISING),
    HARNESS.figure(TPU, "training_time", 66.0, "s", _RISING),
    HARNESS.figure(CPU, "epoch_time", None, "s", "It ran out of memory."),
)

TRAINING = RecurrentTraining(plan, _cost)
WORKLOAD = training_workload(
    TRAINING,
    "weather_gru",
    "Training a GRU that forecasts temperature, wind and pressure a day ahead",
    WeatherGruParams,
    "weather",
    REFERENCES,
)

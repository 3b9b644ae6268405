"""Is a film review for or against? The reference's LSTM on the 25,000 + 25,000 reviews of the IMDB set.

Embedding 32, LSTM 100, Dense 1 sigmoid over reviews of 250 words out of 15,000; Adam, binary cross-entropy.

FLOP per training sample, multiply-add = 2: 3 · (length · 8·units·(embedding + units) + 2·units), the forward pass and
twice as much for the gradients; 79 MFLOP. Looking words up is no arithmetic; biases, gates and the optimiser are left
out.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.result import Reference
from dyno.workloads._holdout import held_out_count
from dyno.workloads._recurrent import Cost, RecurrentParams, Size, lint, lstm_flops
from dyno.workloads._recurrent import estimate as recurrent_estimate
from dyno.workloads._reviews import plan
from dyno.workloads._training import ModelTraining
from dyno.workloads._training_details import TRAINING_METRICS
from dyno.workloads.contract import BuildContext, Built, Estimate, Workload

REVIEWS = 25_000  # to train on, and as many to test on
_DATA_BYTES_PER_WORD = 4 + 4  # of a padded review: as loaded, and on the device
_TOKENS_BYTES = 150_000_000  # the set's words, while they are read


class ImdbLstmParams(RecurrentParams):
    batch_size: Annotated[int, Field(ge=1, le=REVIEWS)] = 64
    epochs: Annotated[int, Field(ge=1, le=1000)] = 20
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-3, description="Adam's")
    words: Annotated[int, Field(ge=10, le=88_587)] = Field(15_000, description="The most frequent; others are unknown")
    length: Annotated[int, Field(ge=1, le=2500)] = Field(250, description="Words of a review: its last ones, or padded")
    embedding: Size = 32
    units: Annotated[int, Field(ge=1, le=8192)] = 100
    train_samples: Annotated[int, Field(ge=2, le=REVIEWS)] | None = Field(None, description="null: all there are")
    test_samples: Annotated[int, Field(ge=1, le=REVIEWS)] | None = Field(None, description="null: all there are")

    def conflicts(self) -> list[FieldError]:
        return [*super().conflicts(), *self.unrolled_too_far(self.length, "/length")]


def flops_per_sample(params: ImdbLstmParams) -> float:
    """79 MFLOP at the defaults."""
    return 3.0 * (params.length * lstm_flops(params.embedding, params.units) + 2 * params.units)


def flops(params: ImdbLstmParams) -> float:
    """Of one execution: `steps_per_execution` training steps on full batches, never past the end of an epoch."""
    return flops_per_sample(params) * _batch(params) * _steps(params)


def estimate(params: ImdbLstmParams, device: Device) -> Estimate:
    """The reviews, and one step's states at once."""
    train, test = params.train_samples or REVIEWS, params.test_samples or REVIEWS
    recurrent = 4 * params.units * (params.embedding + params.units)
    words = params.words * params.embedding
    cost = Cost(
        batch=_batch(params),
        flops_per_sample=flops_per_sample(params),
        batches=_steps(params),
        steps=params.length,
        units=params.units,
        weights=recurrent,
        all_weights=recurrent + words,
        data_bytes=(train + test) * params.length * _DATA_BYTES_PER_WORD + _TOKENS_BYTES,
        trained=params.trials * params.epochs * _trained(params),
        evaluated=params.trials * (test + params.epochs * (train - _trained(params))),
        batch_bytes=params.length * params.embedding * 4 * 3,
        unrolled=params.recurrence == "unrolled",
    )
    return recurrent_estimate(cost, device)


def _trained(params: ImdbLstmParams) -> int:
    """Reviews of an epoch: all but those held out for validation."""
    train = params.train_samples or REVIEWS
    return train - held_out_count(train, params.validation_share)


def _batch(params: ImdbLstmParams) -> int:
    return min(params.batch_size, _trained(params))


def _steps(params: ImdbLstmParams) -> int:
    return min(params.steps_per_execution, _trained(params) // _batch(params))


def build(params: ImdbLstmParams, context: BuildContext) -> Built:
    return ModelTraining(params, plan(params, context), context)


_TITLE = "An introduction to Google Colab TPUs with the IMDB reviews"
_UNFUSED = (
    "17 times slower than the TPU beside it: the GPU hardly ran its fused LSTM kernel. 25,000 samples would be 300 s."
)
_PROGRESS_BAR = "Read off Keras' progress bar, which may or may not take in the validation after each epoch."
_OWN_TEST = "The test set stood in as validation after every epoch, in one training with one seed."


def _reference(hardware: str, metric: str, value: float, unit: str, doubt: str) -> Reference:
    return Reference(title=_TITLE, year="2019", hardware=hardware, metric=metric, value=value, unit=unit, doubt=doubt)


REFERENCES = (
    _reference(
        "TPU v2 board (Colab)",
        "time_per_sample",
        680e-6,
        "s",
        _PROGRESS_BAR,
    ),
    _reference("TPU v2 board (Colab)", "epoch_time", 17.0, "s", "As Keras printed it, rounded to a second."),
    _reference(
        "TPU v2 board (Colab)", "training_time", 300.0, "s", "Less than that, it says; its 20 epochs of 17 s are 340."
    ),
    _reference("TPU v2 board (Colab)", "accuracy", 0.830, "1", _OWN_TEST),
    _reference("GPU (Colab)", "time_per_sample", 12e-3, "s", _UNFUSED),
    _reference("GPU (Colab)", "training_time", 9000.0, "s", "About; its 20 epochs of 300 s are 6000."),
    _reference("GPU (Colab)", "accuracy", 0.845, "1", _OWN_TEST),
)

WORKLOAD = Workload(
    name="imdb_lstm",
    description="Training an LSTM that tells film reviews for and against apart",
    params=ImdbLstmParams,
    metrics=TRAINING_METRICS,
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=REFERENCES,
    datasets=("imdb",),
    replicable=True,
    executions=lambda params: f"{_steps(params)} training step(s) on a full batch of {_batch(params)} reviews",
)

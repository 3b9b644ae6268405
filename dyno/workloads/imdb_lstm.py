"""Is a film review for or against? The reference's LSTM on the 25,000 + 25,000 reviews of the IMDB set.

Embedding 32, LSTM 100, Dense 1 sigmoid over reviews of 250 words out of 15,000; Adam, binary cross-entropy.

FLOP per training sample, multiply-add = 2: 3 · (length · 8·units·(embedding + units) + 2·units), the forward pass and
twice as much for the gradients; 79 MFLOP. Looking words up is no arithmetic; biases, gates and the optimiser are left
out.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dyno.datasets.kinds import UNSAMPLED, UnsampledKind
from dyno.errors import FieldError
from dyno.workloads._articles import CPU, GPU, INTRODUCTION, TPU
from dyno.workloads._recurrent import RecurrentParams, Width, lstm_flops
from dyno.workloads._recurrent_cost import Cost
from dyno.workloads._recurrent_training import RecurrentTraining
from dyno.workloads._reviews import plan
from dyno.workloads._schedule import of_set
from dyno.workloads._training_workload import training_workload

REVIEWS = 25_000  # to train on, and as many to test on
_TOKENS_BYTES = 150_000_000  # the set's words, while they are read


class ImdbLstmParams(RecurrentParams):
    batch_size: Annotated[int, Field(ge=1, le=REVIEWS)] = 64
    epochs: Annotated[int, Field(ge=1, le=1000)] = 20
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-3, description="the optimizer's")
    words: Annotated[int, Field(ge=10, le=88_587)] = Field(15_000, description="The most frequent; others are unknown")
    length: Annotated[int, Field(ge=1, le=2500)] = Field(250, description="Words of a review: its last ones, or padded")
    embedding: Width = 32
    units: Annotated[int, Field(ge=1, le=8192)] = 100
    train_samples: Annotated[int, Field(ge=1, le=REVIEWS)] | None = Field(None, description="null: all there are")
    test_samples: Annotated[int, Field(ge=1, le=REVIEWS)] | None = Field(None, description="null: all there are")

    data: UnsampledKind = Field("auto", description=UNSAMPLED)

    @property
    def samples_asked_for(self) -> tuple[str, int] | None:
        return None if self.train_samples is None else ("train_samples", self.train_samples)

    def conflicts(self) -> list[FieldError]:
        return [*super().conflicts(), *self.unrolled_too_far(self.length, "/length")]


def flops_per_sample(params: ImdbLstmParams) -> float:
    """79 MFLOP at the defaults."""
    return 3.0 * (params.length * lstm_flops(params.embedding, params.units) + 2 * params.units)


def _cost(params: ImdbLstmParams) -> Cost:
    """The reviews, and one step's states at once."""
    train, test = params.train_samples or REVIEWS, params.test_samples or REVIEWS
    recurrent = 4 * params.units * (params.embedding + params.units)
    review_bytes = params.length * 4
    return Cost(
        schedule=of_set(params, train, test),
        flops_per_sample=flops_per_sample(params),
        steps=params.length,
        units=params.units,
        weights=recurrent,
        all_weights=recurrent + params.words * params.embedding,
        host_bytes=(train + 2 * test) * review_bytes + _TOKENS_BYTES,
        data_bytes=train * review_bytes,
        sample_bytes=params.length * params.embedding * 4 * 3,
    )


_UNFUSED = (
    "17 times slower than the TPU beside it: the GPU hardly ran its fused LSTM kernel. 25,000 samples would be 300 s."
)
_PROGRESS_BAR = "As Keras prints it at the end of an epoch: the validation on 25,000 reviews is part of it."
_OWN_TEST = "The test set stood in as validation after every epoch, in one training with one seed."


REFERENCES = (
    INTRODUCTION.figure(TPU, "time_per_sample", 680e-6, "s", _PROGRESS_BAR),
    INTRODUCTION.figure(TPU, "epoch_time", 17.0, "s", "As Keras printed it, rounded to a second."),
    INTRODUCTION.figure(TPU, "training_time", 300.0, "s", "Less than that, it says; its 20 epochs of 17 s are 340."),
    INTRODUCTION.figure(TPU, "accuracy", 0.830, "1", _OWN_TEST),
    INTRODUCTION.figure(GPU, "time_per_sample", 12e-3, "s", _UNFUSED),
    INTRODUCTION.figure(GPU, "training_time", 9000.0, "s", "About; its 20 epochs of 300 s are 6000."),
    INTRODUCTION.figure(GPU, "accuracy", 0.845, "1", _OWN_TEST),
    INTRODUCTION.figure(CPU, "time_per_sample", None, "s", "Never run."),
)

TRAINING = RecurrentTraining(plan, _cost)
WORKLOAD = training_workload(
    TRAINING,
    "imdb_lstm",
    "Training an LSTM that tells film reviews for and against apart",
    ImdbLstmParams,
    "imdb",
    REFERENCES,
)

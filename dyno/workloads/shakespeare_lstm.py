"""A character model of Shakespeare: the reference's two LSTMs, which then write a passage of their own.

Characters are bytes. Embedding 256 to 512, two LSTM 512 with their sequences returned, Dense 256 softmax, windows of
100 characters whose targets are the next ones; RMSprop, sparse categorical cross-entropy.

FLOP per training sample (a window), multiply-add = 2: 3 · window · (8·units·(embedding + units) + 8·units·(2·units)
+ 2·units·256), the forward pass and twice as much for the gradients; 2.6 GFLOP. Looking characters up is no arithmetic;
biases, gates and the optimiser are left out.

The reference's learning rate of 1e-2 starts badly with Keras 3's RMSprop: over the first 10 steps the loss averaged
6.4, more than 5.5 for knowing nothing; after 40 steps it was 3.7. At 1e-3 it was 3.4 after 30. It stays the default.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from dyno.datasets.shakespeare import CHARACTERS, TRAIN_CHARACTERS
from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.workloads._characters import plan
from dyno.workloads._holdout import held_out_count
from dyno.workloads._optimizers import DESCRIPTION as OPTIMIZERS
from dyno.workloads._optimizers import Optimizer
from dyno.workloads._passage import ALPHABET
from dyno.workloads._recurrent import RecurrentParams, Width, lstm_flops
from dyno.workloads._recurrent_cost import Cost
from dyno.workloads._recurrent_training import RecurrentTraining
from dyno.workloads._schedule import of_steps
from dyno.workloads._training_details import TRAINING_METRICS
from dyno.workloads._training_workload import training_workload
from dyno.workloads.contract import MetricSpec

_LAYERS = 2
_CHARACTER_BYTES = 3 * 4  # characters, targets and starts as int32
_READ_S = {"cpu": 5e-3, "gpu": 2e-3, "tpu": 5e-3}  # one character of the passage, beside its products


class ShakespeareLstmParams(RecurrentParams):
    untimed: ClassVar[frozenset[str]] = RecurrentParams.untimed | {"generate", "prompt", "temperature", "generate_seed"}

    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(
        128, description="Of all replicas together; where it isn't given 128 for each, as the reference's"
    )
    epochs: Annotated[int, Field(ge=1, le=1000)] = 10
    steps_per_epoch: Annotated[int, Field(ge=1, le=10_000)] = 100
    optimizer: Optimizer = Field("rmsprop", description=OPTIMIZERS)
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-2, description="The optimiser's")
    window: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="Characters of a sample")
    embedding: Width = 512
    units: Annotated[int, Field(ge=1, le=8192)] = 512
    test_samples: Annotated[int, Field(ge=1)] | None = Field(None, description="Windows held out; null: all there are")
    generate: Annotated[int, Field(ge=0, le=100_000)] = Field(1000, description="Characters to write after training")
    prompt: Annotated[str, Field(min_length=1, max_length=200)] = Field("ROMEO:", description="What they go on from")
    temperature: Annotated[float, Field(ge=0.01, le=10)] = Field(
        1.0, description="Below 1: likelier characters more often"
    )
    generate_seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @classmethod
    def defaults_over(cls, replicas: int) -> dict[str, object]:
        return {"batch_size": 128 * replicas}

    def conflicts(self) -> list[FieldError]:
        found = [*super().conflicts(), *self.unrolled_too_far(self.window, "/window")]
        if 0 < self.validated_characters <= self.window:
            detail = f"{self.validated_characters} characters hold no window of {self.window} and the one after it"
            found.append(FieldError("/validation_share", "too-few-characters", detail))
        return found

    @property
    def validated_characters(self) -> int:
        """The last of those of training."""
        return held_out_count(TRAIN_CHARACTERS, self.validation_share)


def flops_per_sample(params: ShakespeareLstmParams) -> float:
    """2.6 GFLOP at the defaults."""
    layers = lstm_flops(params.embedding, params.units) + lstm_flops(params.units, params.units)
    return 3.0 * params.window * (layers + 2 * params.units * ALPHABET)


def _passage_s(params: ShakespeareLstmParams, device: Device) -> float:
    return params.generate * (_READ_S[device.driven_as] + _layer_weights(params) * 1e-9)


def _layer_weights(params: ShakespeareLstmParams) -> int:
    return 4 * params.units * (params.embedding + params.units)


def _cost(params: ShakespeareLstmParams) -> Cost:
    """The text, and one step's states at once."""
    weights = _layer_weights(params)
    tested = params.test_samples or (CHARACTERS - TRAIN_CHARACTERS) // params.window
    validated = params.validated_characters // params.window
    return Cost(
        schedule=of_steps(params, params.steps_per_epoch, validated, tested),
        flops_per_sample=flops_per_sample(params),
        steps=_LAYERS * params.window,
        units=params.units,
        weights=weights,
        all_weights=_LAYERS * weights + ALPHABET * (params.embedding + params.units),
        host_bytes=CHARACTERS * (1 + _CHARACTER_BYTES),
        data_bytes=CHARACTERS * _CHARACTER_BYTES,
        sample_bytes=params.window * (params.embedding + 2 * ALPHABET) * 4 * 2,
    )


_METRICS = (
    *TRAINING_METRICS,
    MetricSpec("time_per_character", "s", "lower", "Training time of one character of a window", amount="character"),
)
TRAINING = RecurrentTraining(plan, _cost, after_s=_passage_s, real_sample=True)
WORKLOAD = training_workload(
    TRAINING,
    "shakespeare_lstm",
    "Training two LSTMs on Shakespeare's plays, character by character, and writing a passage",
    ShakespeareLstmParams,
    "shakespeare",
    metrics=_METRICS,
)

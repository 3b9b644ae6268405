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

from typing import Annotated

from pydantic import Field

from dyno.datasets.shakespeare import CHARACTERS
from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.result import ResultWarning
from dyno.workloads._characters import plan
from dyno.workloads._passage import ALPHABET
from dyno.workloads._recurrent import Cost, RecurrentParams, Size, lint, lstm_flops
from dyno.workloads._recurrent import estimate as recurrent_estimate
from dyno.workloads._training import ModelTraining
from dyno.workloads._training_details import TRAINING_METRICS
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Workload

_LAYERS = 2
_TEXT_BYTES = CHARACTERS * (1 + 3 * 4 * 2)  # as bytes; characters, targets and starts as int32, on host and device
_READ_S = {"cpu": 5e-3, "gpu": 2e-3, "tpu": 5e-3}  # one character of the passage, beside its products


class ShakespeareLstmParams(RecurrentParams):
    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(
        128, description="Of all replicas; the reference: 128 each"
    )
    epochs: Annotated[int, Field(ge=1, le=1000)] = 10
    steps_per_epoch: Annotated[int, Field(ge=1, le=10_000)] = 100
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-2, description="RMSprop's")
    window: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="Characters of a sample")
    embedding: Size = 512
    units: Annotated[int, Field(ge=1, le=8192)] = 512
    test_samples: Annotated[int, Field(ge=1)] | None = Field(None, description="Windows held out; null: all there are")
    generate: Annotated[int, Field(ge=0, le=100_000)] = Field(1000, description="Characters to write after training")
    prompt: Annotated[str, Field(min_length=1, max_length=200)] = Field("ROMEO:", description="What they go on from")
    temperature: Annotated[float, Field(ge=0.01, le=10)] = Field(
        1.0, description="Below 1: likelier characters more often"
    )
    generate_seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    def conflicts(self) -> list[FieldError]:
        return [*super().conflicts(), *self.unrolled_too_far(self.window, "/window")]


def flops_per_sample(params: ShakespeareLstmParams) -> float:
    """2.6 GFLOP at the defaults."""
    layers = lstm_flops(params.embedding, params.units) + lstm_flops(params.units, params.units)
    return 3.0 * params.window * (layers + 2 * params.units * ALPHABET)


def flops(params: ShakespeareLstmParams) -> float:
    """Of one execution: `steps_per_execution` training steps on full batches."""
    return flops_per_sample(params) * params.batch_size * _steps(params)


def estimate(params: ShakespeareLstmParams, device: Device) -> Estimate:
    """The text, and one step's states at once; then the passage."""
    weights = 4 * params.units * (params.embedding + params.units)
    tested = params.test_samples or CHARACTERS // 10 // params.window
    validated = params.epochs * params.validation_share * CHARACTERS // params.window
    cost = Cost(
        batch=params.batch_size,
        batches=_steps(params),
        flops_per_sample=flops_per_sample(params),
        steps=_LAYERS * params.window,
        units=params.units,
        weights=weights,
        all_weights=_LAYERS * weights + ALPHABET * (params.embedding + params.units),
        data_bytes=_TEXT_BYTES,
        trained=params.trials * params.epochs * params.steps_per_epoch * params.batch_size,
        evaluated=params.trials * (tested + int(validated)),
        batch_bytes=params.window * (params.embedding + 2 * ALPHABET) * 4 * 2,
        unrolled=params.recurrence == "unrolled",
    )
    found = recurrent_estimate(cost, device)
    passage_s = params.trials * params.generate * (_READ_S[device.kind] + weights * 1e-9)
    return Estimate(found.time_s, found.memory_bytes, found.train_s + passage_s)


def _steps(params: ShakespeareLstmParams) -> int:
    return min(params.steps_per_execution, params.steps_per_epoch)


def build(params: ShakespeareLstmParams, context: BuildContext) -> Built:
    return ModelTraining(params, plan(params, context), context)


def _lint(params: ShakespeareLstmParams) -> list[ResultWarning]:
    """The text that ships is the real one."""
    return lint(params) if params.data == "synthetic" else []


WORKLOAD = Workload(
    name="shakespeare_lstm",
    description="Training two LSTMs on Shakespeare's plays, character by character, and writing a passage",
    params=ShakespeareLstmParams,
    metrics=(
        *TRAINING_METRICS,
        MetricSpec(
            "time_per_character", "s", "lower", "Training time of one character of a window", amount="character"
        ),
    ),
    flops=flops,
    estimate=estimate,
    build=build,
    lint=_lint,
    datasets=("shakespeare",),
    replicable=True,
    executions=lambda params: (
        f"{_steps(params)} training step(s) on {params.batch_size} windows of {params.window} characters"
    ),
)

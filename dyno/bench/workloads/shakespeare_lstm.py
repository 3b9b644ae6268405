"""Train a character model of Shakespeare's plays, which writes a passage after training.

The model has the two LSTMs of the reference article.

Characters are bytes. Embedding 256 to 512, two LSTM 512 that return sequences, Dense 256 softmax, windows of 100
characters whose targets are the following characters; RMSprop, sparse categorical cross-entropy. Accuracy is
measured on held-out text.

The model reads whole windows. To write, `CharacterReader` compiles one step of the layers and carries their states from
character to character. Predicting a whole window for each character would cost 100 times as much. Each character is
drawn from the model's probabilities.

A training sample, one window, takes 2.6 GFLOP (2 for a multiply-add): 3 · window · (8·units·(embedding + units) +
8·units·(2·units) + 2·units·256). Two thirds are for the gradients. The count omits character lookups, biases,
element-wise operations and the optimiser.

At the reference article's learning rate of 1e-2, a training with Keras 3's RMSprop starts badly. The mean loss of the
first 10 steps was 6.4, more than the 5.5 of a uniform guess; after 40 steps the loss was 3.7. At 1e-3 it was 3.4 after
30 steps. 1e-2 remains the default.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from dyno.bench.contract import BuildContext, MetricSpec
from dyno.bench.datasets import shakespeare
from dyno.bench.frameworks.interface import Dataset, JitCompile, Trainer
from dyno.bench.training import cost, model_training, recurrent, workload
from dyno.bench.training.text import (
    ALPHABET,
    judge,
    nats_of_probabilities,
    parts,
    too_few_characters,
    validated_characters,
)
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.settings import Settings


def write_passage(model: Any, context: BuildContext, prompt: str, count: int, temperature: float, seed: int) -> str:
    """Return the prompt followed by `count` characters. Invalid UTF-8 is replaced with U+FFFD.

    `temperature` 1 uses the model's probabilities; a value near 0 always picks the most likely character.
    """
    random = np.random.default_rng(seed)
    written = list(prompt.encode())
    reader = CharacterReader(model, context)
    for character in written[:-1]:
        reader.read(character)
    for number in range(count):
        context.report("generation", number, count, "characters")
        chances = apply_temperature(reader.read(written[-1]), temperature)
        written.append(int(random.choice(ALPHABET, p=chances)))
    return bytes(written).decode(errors="replace")


def apply_temperature(chances: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """chances ** (1 / temperature), normalised to a sum of 1."""
    logits = np.log(chances.astype(np.float64) + 1e-30) / temperature
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


class CharacterReader:
    """Reads one character at a time and predicts the next."""

    def __init__(self, model: Any, context: BuildContext) -> None:
        self._framework = context.framework
        embedding, *cells, dense = model.layers
        self._state = self._framework.array(np.zeros((2 * len(cells), 1, cells[0].units), np.float32), "float32")
        ops = self._framework.keras.ops

        def step(character: Any, states: Any) -> tuple[Any, Any]:
            value, after = embedding(character), []
            for number, layer in enumerate(cells):
                value, states_of_layer = layer.cell(value, [states[2 * number], states[2 * number + 1]])
                after += states_of_layer
            return dense(value), ops.stack(after)

        self._step = self._framework.compile(step, self._character(0), self._state)

    def read(self, character: int) -> NDArray[np.float32]:
        """The probability of each next character, (256,)."""
        chances, self._state = self._step(self._character(character), self._state)
        probabilities: NDArray[np.float32] = self._framework.numpy(chances)[0]
        return probabilities

    def _character(self, character: int) -> Any:
        return self._framework.array(np.array([character], np.int32), "int32")


GENERATED = "generated.txt"
_SHOWN = 500  # characters of the passage in the details


def character_model(keras: Any, params: ShakespeareLstmParams, jit_compile: JitCompile) -> Any:
    """The network, compiled for training."""
    layers, options = keras.layers, recurrent.layer_options(params.recurrence)
    model = keras.Sequential(
        [
            keras.Input((params.window,), dtype="int32"),
            layers.Embedding(ALPHABET, params.embedding),
            layers.LSTM(params.units, return_sequences=True, **options),
            layers.LSTM(params.units, return_sequences=True, **options),
            layers.Dense(ALPHABET, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=workload.new_optimizer(keras, params.optimizer, params.learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    return model


def plan(params: ShakespeareLstmParams, context: BuildContext) -> model_training.Plan:
    with context.phase("data"):
        text = shakespeare.load(Settings(data_dir=context.data_dir), params.data)
    train, validation, test = parts(text, params.validation_share, params.window, params.test_samples)
    keras = context.framework.keras
    return model_training.Plan(
        make=lambda jit_compile: character_model(keras, params, jit_compile),
        train=train,
        validation=validation,
        data=text.origin,
        params={"data": text.origin.kind, "test_samples": len(test)},
        judge=lambda model, trainer: _judged(params, text, test, model, trainer, context),
        steps_per_epoch=params.steps_per_epoch,
        amounts={"character": 1 / params.window},
        jit_unmeasured=recurrent.jit_unmeasured(params.recurrence, context.device),
    )


def _judged(
    params: ShakespeareLstmParams,
    text: shakespeare.Text,
    test: Dataset,
    model: Any,
    trainer: Trainer,
    context: BuildContext,
) -> model_training.TrainingOutcome:
    outcome = judge(text, test, trainer, nats_of_probabilities, context.report)
    passage = write_passage(model, context, params.prompt, params.generate, params.temperature, params.generate_seed)
    if context.artifacts is not None:
        (context.artifacts / GENERATED).write_text(passage, encoding="utf-8")
    details: dict[str, JsonValue] = {
        "generated": passage[:_SHOWN],
        "rnn_kernel": recurrent.rnn_kernel(context, params.recurrence, "lstm"),
    }
    return replace(outcome, details=outcome.details | details)


_LAYERS = 2
_CHARACTER_BYTES = 3 * 4  # characters, targets and starts as int32
_READ_S = {"cpu": 5e-3, "gpu": 2e-3, "tpu": 5e-3}  # time per character of the passage, without its matrix products


class ShakespeareLstmParams(recurrent.RecurrentParams):
    untimed: ClassVar[frozenset[str]] = recurrent.RecurrentParams.untimed | {
        "generate",
        "prompt",
        "temperature",
        "generate_seed",
    }

    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(
        128, description="Total over all replicas; default: 128 per replica, as in the reference"
    )
    epochs: workload.EpochCount = 10
    steps_per_epoch: Annotated[int, Field(ge=1, le=10_000)] = 100
    optimizer: workload.OptimizerName = "rmsprop"
    learning_rate: workload.LearningRate = 1e-2
    window: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="Characters per sample")
    embedding: recurrent.Width = 512
    units: recurrent.Units = 512
    test_samples: Annotated[int, Field(ge=1)] | None = Field(None, description="Maximum test windows; null: all")
    generate: Annotated[int, Field(ge=0, le=100_000)] = Field(1000, description="Characters to write after training")
    prompt: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        "ROMEO:", description="Beginning of the passage"
    )
    temperature: Annotated[float, Field(ge=0.01, le=10)] = Field(
        1.0, description="Values below 1 favour likely characters"
    )
    generate_seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @classmethod
    def defaults_over(cls, replicas: int) -> dict[str, object]:
        return {"batch_size": 128 * replicas}

    def conflicts(self) -> list[FieldError]:
        errors = [*super().conflicts(), *self.unrolled_too_far(self.window, "/window")]
        errors += too_few_characters(self.validation_share, self.window)
        if (self.test_samples or 0) > (limit := self.most_test_samples):
            errors.append(FieldError("/test_samples", "too-many-samples", f"at most {limit}, each of {self.window}"))
        return errors

    @property
    def most_test_samples(self) -> int:
        """The number of test windows in the held-out text."""
        return math.ceil((shakespeare.CHARACTERS - shakespeare.TRAIN_CHARACTERS) / self.window) - 1

    @property
    def epoch_steps(self) -> int:
        return self.steps_per_epoch


def flops_per_sample(params: ShakespeareLstmParams) -> float:
    """2.6 GFLOP at the defaults."""
    layers = recurrent.lstm_flops(params.embedding, params.units) + recurrent.lstm_flops(params.units, params.units)
    return 3.0 * params.window * (layers + 2 * params.units * ALPHABET)


def _passage_s(params: ShakespeareLstmParams, device: Device) -> float:
    return params.generate * (_READ_S[device.driven_as] + _layer_weights(params) * 1e-9)


def _layer_weights(params: ShakespeareLstmParams) -> int:
    return 4 * params.units * (params.embedding + params.units)


def _cost(params: ShakespeareLstmParams) -> recurrent.RecurrentCost:
    """Memory of the text and of one step's states."""
    weights = _layer_weights(params)
    tested = params.test_samples or (shakespeare.CHARACTERS - shakespeare.TRAIN_CHARACTERS) // params.window
    validated = validated_characters(params.validation_share) // params.window
    return recurrent.RecurrentCost(
        counts=cost.counts_of_steps(params, params.steps_per_epoch, validated, tested),
        flops_per_sample=flops_per_sample(params),
        steps=_LAYERS * params.window,
        units=params.units,
        weights=weights,
        all_weights=_LAYERS * weights + ALPHABET * (params.embedding + params.units),
        host_bytes=shakespeare.CHARACTERS * (1 + _CHARACTER_BYTES),
        data_bytes=shakespeare.CHARACTERS * _CHARACTER_BYTES,
        sample_bytes=params.window * (params.embedding + 2 * ALPHABET) * 4 * 2,
    )


_METRICS = (
    *workload.TRAINING_METRICS,
    MetricSpec("time_per_character", "s", "lower", "Training time of one character of a window", amount="character"),
    MetricSpec("token_rate", "tokens/s", "higher", "Characters, the model's tokens, per second", amount="character"),
)
TRAINING = recurrent.RecurrentTraining(plan, _cost, after_s=_passage_s)
WORKLOAD = workload.training_workload(
    TRAINING,
    "shakespeare_lstm",
    "Training two LSTMs on Shakespeare's plays, character by character, and writing a passage",
    ShakespeareLstmParams,
    "shakespeare",
    metrics=_METRICS,
    smoke=workload.training_smoke(
        {
            "batch_size": 8,
            "steps_per_epoch": 2,
            "window": 10,
            "units": 8,
            "embedding": 8,
            "test_samples": 20,
            "generate": 20,
        },
        {"rnn_kernel", "generated"},
        {"generated.txt"},
    ),
    bench={"units": 256, "embedding": 128, "batch_size": 64, "epochs": 3, "steps_per_epoch": 50},
    options="the passage that it writes",
)

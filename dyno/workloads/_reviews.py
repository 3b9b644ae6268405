"""The training of `imdb_lstm`: the model, its test on reviews it hasn't seen, a few of them one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.datasets import imdb
from dyno.frameworks.contract import JitCompile, Samples, Trainer
from dyno.measure.statistics import wilson_interval
from dyno.settings import Settings
from dyno.workloads._evaluation import MAJORITY
from dyno.workloads._optimizers import made
from dyno.workloads._recurrent import jit_unmeasured, layer_options, rnn_kernel
from dyno.workloads._training import Outcome, Plan
from dyno.workloads.contract import BuildContext

if TYPE_CHECKING:
    from dyno.workloads.imdb_lstm import ImdbLstmParams

_EVALUATION_BATCH = 128  # of one replica, as in the reference
_SHOWN = 6  # a number that 8 replicas don't divide, on which the reference's prediction failed


def review_model(keras: Any, params: ImdbLstmParams, jit_compile: JitCompile) -> Any:
    """The network, compiled for training."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((params.length,), dtype="int32"),
            layers.Embedding(params.words, params.embedding),
            layers.LSTM(params.units, **layer_options(params.recurrence)),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(
        optimizer=made(keras, params.optimizer, params.learning_rate),
        loss="binary_crossentropy",
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    return model


def plan(params: ImdbLstmParams, context: BuildContext) -> Plan:
    """Train on the reviews, and judge by those of the test set."""
    with context.phase("data"):
        settings = Settings(data_dir=context.data_dir)
        data = imdb.load(settings, params.data, words=params.words, length=params.length)
        train = _samples(data.train, data.train_labels, params.train_samples)
        test = _samples(data.test, data.test_labels, params.test_samples)
    keras = context.framework.keras
    return Plan(
        make=lambda jit_compile: review_model(keras, params, jit_compile),
        train=train,
        data=data.origin.model_copy(update={"train_samples": len(train), "test_samples": len(test)}),
        judge=lambda model, trainer: _judged(params, test, trainer, context),
        jit_unmeasured=jit_unmeasured(params.recurrence, context.device),
    )


def _samples(reviews: NDArray[np.int32], labels: NDArray[np.uint8], count: int | None) -> Samples:
    """The first `count`; the labels (n, 1) as the model answers."""
    return Samples(reviews[:count], labels[:count, np.newaxis].astype(np.float32))


def _judged(params: ImdbLstmParams, test: Samples, trainer: Trainer, context: BuildContext) -> Outcome:
    context.report("evaluation", 0, len(test), "samples")
    batch_size = _EVALUATION_BATCH * trainer.replicas
    for_it = trainer.predict(test.inputs, batch_size).reshape(-1)
    label = test.targets.reshape(-1)
    right = int(np.sum((for_it > 0.5) == (label > 0.5)))
    accuracy = wilson_interval(right, len(label))
    training = {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "wrong": len(label) - right,
        "test": {"loss": _cross_entropy(label, for_it)},
        "baselines": {MAJORITY: float(max(label.mean(), 1 - label.mean()))},
    }
    few = trainer.predict(test.inputs[:_SHOWN], batch_size).reshape(-1)
    shown: list[JsonValue] = [
        {"index": index, "label": int(label[index]), "probability": float(probability)}
        for index, probability in enumerate(few)
    ]
    details: dict[str, JsonValue] = {
        "predicted_samples": shown,
        "evaluation_batch_size": batch_size,
        "rnn_kernel": rnn_kernel(context, params.recurrence, "lstm"),
    }
    return Outcome(training, details)


def _cross_entropy(label: NDArray[np.float32], probability: NDArray[np.float32]) -> float:
    """Mean over the reviews, in nats; probabilities kept off 0 and 1 as Keras does."""
    chance = np.clip(probability.astype(np.float64), 1e-7, 1 - 1e-7)
    return float(-np.mean(label * np.log(chance) + (1 - label) * np.log1p(-chance)))

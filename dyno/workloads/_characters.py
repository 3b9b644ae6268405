"""The training of `shakespeare_lstm`: the model, the loss on text it hasn't read, and a passage that it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.datasets import shakespeare
from dyno.frameworks.contract import JitCompile, Samples, Trainer
from dyno.settings import Settings
from dyno.workloads._evaluation import batches
from dyno.workloads._margins import margins
from dyno.workloads._optimizers import made
from dyno.workloads._passage import ALPHABET, write
from dyno.workloads._recurrent import jit_unmeasured, layer_options, rnn_kernel
from dyno.workloads._training import Outcome, Plan
from dyno.workloads.contract import BuildContext

if TYPE_CHECKING:
    from dyno.workloads.shakespeare_lstm import ShakespeareLstmParams

GENERATED = "generated.txt"
_SHOWN = 500  # characters of it in the details
_BLOCK = 500  # characters: a few speeches, as one speaker's words are alike
_LEAST = 1e-7  # probability, as Keras clips it in a loss


def character_model(keras: Any, params: ShakespeareLstmParams, jit_compile: JitCompile) -> Any:
    """The network, compiled for training."""
    layers, options = keras.layers, layer_options(params.recurrence)
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
        optimizer=made(keras, params.optimizer, params.learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    return model


def windows(text: shakespeare.Text, first: int, last: int, stride: int, window: int) -> Samples:
    """Windows that begin every `stride` characters and end, with the character after them, before `last`.

    Each character's target is the one after it. One window must fit at least: see `ShakespeareLstmParams.conflicts`.
    """
    ids = text.ids.astype(np.int32)
    return Samples(ids[:-1], ids[1:], window, np.arange(first, last - window, stride, dtype=np.int32))


def plan(params: ShakespeareLstmParams, context: BuildContext) -> Plan:
    """Train on windows that begin anywhere; validate on the end of the training part, judge by what comes after it."""
    with context.phase("data"):
        text = shakespeare.load(Settings(data_dir=context.data_dir), params.data)
    end = text.train_count
    kept = end - params.validated_characters
    train = windows(text, 0, kept, 1, params.window)
    whole = windows(text, end, len(text.ids), params.window, params.window)
    test = replace(whole, starts=_starts(whole)[: params.test_samples])
    keras = context.framework.keras
    return Plan(
        make=lambda jit_compile: character_model(keras, params, jit_compile),
        train=train,
        validation=windows(text, kept, end, params.window, params.window) if kept < end else None,
        data=text.origin,
        judge=lambda model, trainer: _judged(params, text, test, model, trainer, context),
        steps_per_epoch=params.steps_per_epoch,
        amounts={"character": 1 / params.window},
        jit_unmeasured=jit_unmeasured(params.recurrence, context.device),
    )


def _starts(samples: Samples) -> NDArray[np.int32]:
    assert samples.starts is not None
    return samples.starts


def _judged(
    params: ShakespeareLstmParams,
    text: shakespeare.Text,
    test: Samples,
    model: Any,
    trainer: Trainer,
    context: BuildContext,
) -> Outcome:
    context.report("evaluation", 0, len(test), "samples")
    nats, right = _read(test, trainer)
    rows = _starts(test)[:, np.newaxis] + np.arange(params.window)
    unigram, bigram = baselines(text.ids[: text.train_count], test.inputs[rows], test.targets[rows])
    untrained = {"unigram_nats_per_character": unigram, "bigram_nats_per_character": bigram}
    passage = write(model, context, params.prompt, params.generate, params.temperature, params.generate_seed)
    if context.artifacts is not None:
        (context.artifacts / GENERATED).write_text(passage, encoding="utf-8")
    training = {
        "test": {"nats_per_character": float(nats.mean()), "accuracy": float(right.mean())},
        "baselines": {name: float(each.mean()) for name, each in untrained.items()},
    }
    details: dict[str, JsonValue] = {
        "generated": passage[:_SHOWN],
        "test_characters": int(rows.size),
        "rnn_kernel": rnn_kernel(context, params.recurrence, "lstm"),
    }
    return Outcome(training, details, margins(nats, untrained, _BLOCK))


def _read(test: Samples, trainer: Trainer) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Of each character held out, in the order of the text: its nats, and whether it was the likeliest."""
    nats, right = [], []
    for inputs, targets in batches(test, trainer.batch_size):
        chances = trainer.predict(inputs, trainer.batch_size)
        of_targets = np.take_along_axis(chances, targets[..., np.newaxis], axis=-1).reshape(-1)
        nats.append(-np.log(np.clip(of_targets.astype(np.float64), _LEAST, 1.0)))
        right.append((chances.argmax(axis=-1) == targets).reshape(-1))
    return np.concatenate(nats), np.concatenate(right)


def baselines(
    known: NDArray[np.uint8], before: NDArray[np.int32], after: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(unigram, bigram) nats of each character of `after`, which follow those of `before`.

    By the frequencies in the text `known`, each count one higher (Laplace), so that nothing is impossible.
    """
    pairs = known[:-1].astype(np.int64) * ALPHABET + known[1:]
    together = np.bincount(pairs, minlength=ALPHABET**2).reshape(ALPHABET, ALPHABET) + 1.0
    alone = np.bincount(known, minlength=ALPHABET) + 1.0
    bigram = np.log(together / together.sum(axis=1, keepdims=True))[before, after]
    unigram = np.log(alone / alone.sum())[after]
    return -unigram.reshape(-1), -bigram.reshape(-1)

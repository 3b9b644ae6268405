"""Shakespeare's plays as windows of characters, and the evaluation of a model that predicts the next character."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dyno.bench.datasets import shakespeare
from dyno.bench.frameworks.interface import Dataset, Trainer
from dyno.bench.training import evaluation
from dyno.bench.training.model_training import TrainingOutcome
from dyno.errors import FieldError

ALPHABET = 256  # characters are bytes
_BLOCK = 500  # characters: a few speeches, because the words of one speaker are alike
_LEAST = 1e-7  # Keras' losses replace smaller probabilities with this value


def validated_characters(share: float) -> int:
    """The number of validation characters for `validation_share`, taken from the end of the training part."""
    return evaluation.held_out_count(shakespeare.TRAIN_CHARACTERS, share)


def too_few_characters(share: float, window: int) -> list[FieldError]:
    """An error if the validation characters are too few for a window and its target."""
    if not 0 < (count := validated_characters(share)) <= window:
        return []
    detail = f"{count} characters are too few for a window of {window} and its target"
    return [FieldError("/validation_share", "too-few-characters", detail)]


Nats = Callable[[NDArray[np.float32], NDArray[Any]], NDArray[np.float64]]  # (outputs, targets) to nats per target


class Parts(NamedTuple):
    """Windows of one length. Training windows start at every character, the others one after the other."""

    train: Dataset
    validation: Dataset | None  # the end of the text's training part; None without a validation share
    test: Dataset  # the rest of the text


def parts(text: shakespeare.Text, validation_share: float, window: int, tested: int | None) -> Parts:
    """`tested`: the maximum number of test windows; None for all. See `too_few_characters`."""
    end = text.train_count
    kept = end - validated_characters(validation_share)
    test = _windows(text, end, len(text.ids), window, window)
    return Parts(
        train=_windows(text, 0, kept, 1, window),
        validation=_windows(text, kept, end, window, window) if kept < end else None,
        test=replace(test, starts=_starts(test)[:tested]),
    )


def _windows(text: shakespeare.Text, first: int, last: int, stride: int, window: int) -> Dataset:
    """Windows that start every `stride` characters; each window and the character after it end before `last`.

    Each character's target is the next character. At least one window must fit.
    """
    ids = text.ids.astype(np.int32)
    return Dataset(ids[:-1], ids[1:], window, np.arange(first, last - window, stride, dtype=np.int32))


def _starts(samples: Dataset) -> NDArray[np.int32]:
    assert samples.starts is not None
    return samples.starts


def nats_of_probabilities(outputs: NDArray[np.float32], targets: NDArray[Any]) -> NDArray[np.float64]:
    """-ln of each target's probability."""
    chosen = np.take_along_axis(outputs, targets[..., np.newaxis], axis=-1)[..., 0].astype(np.float64)
    return np.asarray(-np.log(np.clip(chosen, _LEAST, 1.0)))


def nats_of_logits(outputs: NDArray[np.float32], targets: NDArray[Any]) -> NDArray[np.float64]:
    """-ln of each target's probability, which is the softmax of the outputs."""
    logits = outputs.astype(np.float64) - outputs.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(logits, targets[..., np.newaxis], axis=-1)[..., 0]
    return np.asarray(np.log(np.exp(logits).sum(axis=-1)) - chosen)


def judge(
    text: shakespeare.Text, test: Dataset, trainer: Trainer, nats_of: Nats, report: Callable[..., None]
) -> TrainingOutcome:
    """Nats and accuracy of the characters of `test`, beside predictors that know the character before, or none."""
    nats, right = [], []
    for number, (inputs, targets) in enumerate(evaluation.batches(test, trainer.batch_size)):
        report("evaluation", number * trainer.batch_size, len(test), "samples")
        outputs = trainer.predict(inputs, trainer.batch_size)
        nats.append(nats_of(outputs, targets).reshape(-1))
        right.append((outputs.argmax(axis=-1) == targets).reshape(-1))
    of_model = np.concatenate(nats)
    rows = _starts(test)[:, np.newaxis] + np.arange(test.window or 0)
    unigram, bigram = baselines(text.ids[: text.train_count], test.inputs[rows], test.targets[rows])
    untrained = {"unigram_nats_per_character": unigram, "bigram_nats_per_character": bigram}
    training = {
        "test": {"nats_per_character": float(of_model.mean()), "accuracy": float(np.concatenate(right).mean())},
        "baselines": {name: float(values.mean()) for name, values in untrained.items()},
    }
    margins = evaluation.margins(of_model, untrained, _BLOCK)
    return TrainingOutcome(training, {"test_characters": int(of_model.size)}, margins)


def baselines(
    known: NDArray[np.uint8], before: NDArray[np.int32], after: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(unigram, bigram) nats of each character of `after`, which follows the character of `before`.

    Frequencies come from the text `known`, with 1 added to each count (Laplace) so that no probability is 0.
    """
    pairs = known[:-1].astype(np.int64) * ALPHABET + known[1:]
    together = np.bincount(pairs, minlength=ALPHABET**2).reshape(ALPHABET, ALPHABET) + 1.0
    alone = np.bincount(known, minlength=ALPHABET) + 1.0
    bigram = np.log(together / together.sum(axis=1, keepdims=True))[before, after]
    unigram = np.log(alone / alone.sum())[after]
    return -unigram.reshape(-1), -bigram.reshape(-1)

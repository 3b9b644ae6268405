"""What a trained model makes of the images of the test set: how many are wrong, which, and as a picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.datasets.images import Images
from dyno.frameworks.contract import Trainer
from dyno.measure.statistics import wilson_interval
from dyno.workloads._evaluation import MAJORITY
from dyno.workloads._plots import gallery
from dyno.workloads._training import Outcome
from dyno.workloads.contract import BuildContext

_WRONG_TOLD, _DRAWN = 32, 60
_LEAST = 1e-7  # probability, as Keras clips it in a loss


def judged(data: Images, noun: str, trainer: Trainer, context: BuildContext, recognise: int | None) -> Outcome:
    """Accuracy with its Wilson interval, the wrong ones, `wrong.png`; the probabilities of one image if asked for.

    `noun` is what the images are, in the plural: "digits".
    """
    context.report("evaluation", 0, len(data.test_labels), "samples")
    probabilities = trainer.predict(data.test_images, trainer.batch_size)
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != data.test_labels)
    _draw(data, predicted, wrong, context)
    accuracy = wilson_interval(len(predicted) - len(wrong), len(predicted))
    of_labels = probabilities[np.arange(len(predicted)), data.test_labels].astype(np.float64)
    training = {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "wrong": len(wrong),
        "test": {"loss": float(-np.log(np.clip(of_labels, _LEAST, 1.0)).mean())},
        "baselines": {MAJORITY: float(np.bincount(data.test_labels).max() / len(predicted))},
    }
    told: list[JsonValue] = [_told(data, probabilities, int(index)) for index in wrong[:_WRONG_TOLD]]
    details: dict[str, JsonValue] = {f"wrong_{noun}": told}
    if recognise is not None:
        details["recognised"] = recognised(data, probabilities, recognise)
    return Outcome(training, details)


def _told(data: Images, probabilities: NDArray[np.float32], index: int) -> dict[str, JsonValue]:
    """Classes by number and by name; `probability` is that of what was predicted."""
    label, best = int(data.test_labels[index]), int(probabilities[index].argmax())
    return {
        "index": index,
        "label": label,
        "label_name": data.classes[label],
        "predicted": best,
        "predicted_name": data.classes[best],
        "probability": float(probabilities[index, best]),
    }


def recognised(data: Images, probabilities: NDArray[np.float32], asked: int) -> dict[str, JsonValue]:
    """What a model makes of test image `asked`; beyond the last one of the last, and then `asked` is told beside it.

    `probabilities`: (images, classes), of the whole test set.
    """
    index = min(asked, len(probabilities) - 1)
    by_class = zip(data.classes, probabilities[index], strict=True)
    every: dict[str, JsonValue] = {name: float(probability) for name, probability in by_class}
    clamped: dict[str, JsonValue] = {"asked": asked} if index < asked else {}
    return {**_told(data, probabilities, index), "probabilities": every, **clamped}


def _draw(data: Images, predicted: NDArray[np.intp], wrong: NDArray[np.intp], context: BuildContext) -> None:
    """As many as fit, the wrong ones before those that are right."""
    if context.artifacts is None:
        return
    right = np.setdiff1d(np.arange(len(predicted)), wrong, assume_unique=True)
    chosen = np.concatenate([wrong, right])[:_DRAWN]
    is_wrong = [bool(predicted[index] != data.test_labels[index]) for index in chosen]
    titles = [_title(data, int(predicted[index]), int(data.test_labels[index])) for index in chosen]
    gallery(context.artifacts, data.test_images[chosen], titles, is_wrong)


def _title(data: Images, predicted: int, label: int) -> str:
    names = data.classes
    return names[predicted] if predicted == label else f"{names[predicted]}\nis {names[label]}"

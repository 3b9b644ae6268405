"""Are the timed steps the training that they are taken for? What they changed, and what they taught, tells.

A step without gradients, or with those of wrong targets, teaches no more than what can be said without any training.
Where nothing more was learned there may have been too little time for it: that is a reason, and no sign of a fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.result import Training
from dyno.workloads._margins import Margin

HALF = 0.5  # of what there is to be learned; a step on wrong targets comes above a little of it by chance
MAJORITY = "majority_accuracy"  # among a training's baselines: of always naming the test set's most frequent class
OTHERS = "the training started from another job's weights, so what it knows may be theirs"


@dataclass(frozen=True)
class Learned:
    """What run 0's training leaves to judge the steps by.

    `before`: the fingerprints of its weights before the first step; None where those were another job's. `loss`: the
    mean of all steps since the training ended, where samples can only be learned by heart.
    """

    training: Training
    before: Sequence[bytes] | None
    margins: Sequence[Margin] = field(default=())
    loss: float | None = None


def fingerprints(model: Any) -> list[bytes]:
    """Of each array of weights that is trained, in the model's order."""
    return [hashlib.blake2b(each.numpy().tobytes()).digest() for each in model.trainable_variables]


def unshown(learned: Learned, model: Any, targets: NDArray[Any]) -> str | None:
    """Why what was learned doesn't show that the steps are right; None where it does."""
    if learned.before is None:
        return OTHERS
    pairs = zip(learned.before, fingerprints(model), model.trainable_variables, strict=True)
    if still := [each.path for before, after, each in pairs if before == after]:
        return f"{len(still)} of {len(learned.before)} arrays of weights haven't changed since the start: {still[0]}"
    if learned.loss is not None:
        return _not_by_heart(learned.loss, targets)
    if learned.margins:
        return next((_unsure(each) for each in learned.margins if not each.sure), None)
    return _not_accurate(learned.training)


def entropy(targets: NDArray[Any]) -> float:
    """Of classes, in nats: the mean loss of the best answer that doesn't look at the inputs. By number, or one-hot."""
    one_hot = targets.ndim > 1 and targets.shape[-1] > 1
    classes = targets.reshape(-1, targets.shape[-1]).argmax(-1) if one_hot else targets
    shares = np.unique(classes, return_counts=True)[1] / classes.size
    return float(-np.sum(shares * np.log(shares)))


def _not_by_heart(loss: float, targets: NDArray[Any]) -> str | None:
    limit = HALF * entropy(targets)
    if loss < limit:
        return None
    return f"the timed steps learned no samples by heart: their mean loss is {loss:.3g}, not below {limit:.3g}"


def _unsure(margin: Margin) -> str:
    found = margin.by
    if found.low is None or found.high is None:
        return f"whether it is better than {margin.baseline} can't be told: {found.reason}"
    span = f"by {found.value:.3g}, which may be {found.low:.3g} to {found.high:.3g}"
    return f"it isn't surely better than {margin.baseline}: {span}"


def _not_accurate(training: Training) -> str | None:
    """Held against the classes it was tested on: there one may be more frequent than among those of the training."""
    share = training.baselines.get(MAJORITY)
    if training.accuracy_low is None or share is None:
        return "nothing that was learned can be held against what needs no training"
    limit = share + HALF * (1 - share)
    if training.accuracy_low > limit:
        return None
    told = f"its accuracy may be as low as {training.accuracy_low:.1%}, not above {limit:.1%}"
    return f"{told}, halfway from always naming the most frequent class"

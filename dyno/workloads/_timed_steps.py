"""Were the timed steps made, all of them? The optimiser counts its own, and the weights tell whether they did anything.

A step that is counted and not made, or made on a copy, is faster than any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dyno.measure.execution_checks import steps_mismatch
from dyno.models.result import ResultWarning

# Keras' dynamic loss scale begins at 2^15, is halved by each step that it leaves out, and doubled every 2000 steps.
_SKIPPED, _SKIPPED_SHARE = 32, 1e-3


@dataclass
class TimedSteps:
    """Of one model from now on. `asked`: the steps that the figure counts, for the caller to add to.

    The model must hold what was trained (`Trainer.sync`) whenever this looks at it.
    """

    made_before: int
    weights_before: Sequence[bytes]
    asked: int = 0

    @classmethod
    def of(cls, model: Any) -> TimedSteps:
        return cls(_made(model), fingerprints(model))

    def miscounted(self, model: Any) -> ResultWarning | None:
        """The optimiser made more or fewer steps. Steps left out for infinite gradients are no fault."""
        made = _made(model) - self.made_before
        scaled = hasattr(model.optimizer, "inner_optimizer")
        skipped = _SKIPPED + int(_SKIPPED_SHARE * self.asked) if scaled else 0
        return steps_mismatch(self.asked, made, skipped)

    def idle(self, model: Any) -> str | None:
        """Why the steps can't be told from none: no array of weights is another one than before them."""
        if self.asked == 0 or list(self.weights_before) != fingerprints(model):
            return None
        return f"timed steps that changed no weight: {self.asked}"


def fingerprints(model: Any) -> list[bytes]:
    """Of each array of weights that is trained, in the model's order."""
    return [hashlib.blake2b(each.numpy().tobytes()).digest() for each in model.trainable_variables]


def _made(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())

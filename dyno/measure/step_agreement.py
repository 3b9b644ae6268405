"""Is a training step the one that was asked for? It is held against the same step made the plain way in float32.

Both start from the same weights, optimiser and seeds, on the same batch. How far an honest step may lie from the plain
one depends on the model as much as on the precision: some gradients pass rounding errors on, others grow them. So the
plain step is made twice, the second time in the precision asked for and with each weight off by one rounding, at
random; how far that moves the change of an array of weights is what rounding can do to it. Four times that is allowed.

A rounding is the unit roundoff of the precision. In float32 it is that of a sum of 65,536 terms with an error in each
addition, sqrt(65536) u = 2^-16: batches and images are summed over, and libraries differ in the order. Measured on
TensorFlow, JAX and PyTorch with AVX2 and AVX-512, honest float32 steps come to less than a hundredth of the allowance;
a step without gradients errs by 1, relative to the change of the weights, and one on other targets by more.

Where rounding alone could move the change of an array by half, nothing can be told from it. That is so of biases in
front of a batch normalisation, whose gradient is zero but for rounding, and of deep networks in bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.measure.verify import UNIT_ROUNDOFF
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning

ALLOWED = 4.0  # times what one rounding of each weight does
LARGEST_BOUND = 0.5  # of the change of an array; a step without gradients errs by 1
LEAST_COMPARED = 0.5  # of all weights
_SUMMED = 2.0**-16

Arrays = Sequence[NDArray[np.generic]]


def rounding(precision: str) -> float:
    """By how much, relative to it, one weight is off in the second plain step."""
    return max(UNIT_ROUNDOFF[precision], _SUMMED)


@dataclass(frozen=True)
class Step:
    """One step: its loss, where it is known, and the trainable weights after it."""

    loss: float | None
    weights: Arrays


@dataclass(frozen=True)
class Agreement:
    """Of one timed step with the plain one.

    `compared`: the share of all weights of which it can be told. `rel_error` and `bound`: of the array that lies
    furthest from the plain step, by its bound, both relative to the array's change; `array` is its place. `agrees` is
    None where too little can be compared.
    """

    compared: float
    rel_error: float
    bound: float
    array: int | None
    loss: float | None
    plain_loss: float
    loss_bound: float

    @property
    def agrees(self) -> bool | None:
        if not math.isfinite(self.plain_loss):
            return None
        if self.loss is not None and not abs(self.loss - self.plain_loss) <= self.loss_bound:
            return False
        if self.array is not None and not self.rel_error <= self.bound:
            return False
        return True if self.compared >= LEAST_COMPARED else None

    def details(self) -> dict[str, JsonValue]:
        return {
            "compared_weights": self.compared,
            "rel_error": _finite(self.rel_error),
            "bound": _finite(self.bound),
            "loss": None if self.loss is None else _finite(self.loss),
            "plain_loss": _finite(self.plain_loss),
            "loss_bound": _finite(self.loss_bound),
        }


def agreement(before: Arrays, timed: Step, plain: Step, rounded: Step, precision: str) -> Agreement:
    """`before`: the weights that all three steps began with. `rounded`: the second plain step."""
    found = [_compared(*arrays) for arrays in zip(before, timed.weights, plain.weights, rounded.weights, strict=True)]
    sizes = [each.size for each in before]
    told = [place for place, (_, bound) in enumerate(found) if bound <= LARGEST_BOUND]
    worst = max(told, key=lambda place: _nan_last(found[place][0] / found[place][1]), default=None)
    rel_error, bound = found[worst] if worst is not None else (math.nan, math.nan)
    assert plain.loss is not None
    assert rounded.loss is not None
    return Agreement(
        compared=sum(sizes[place] for place in told) / sum(sizes),
        rel_error=rel_error,
        bound=bound,
        array=worst,
        loss=timed.loss,
        plain_loss=plain.loss,
        loss_bound=ALLOWED * max(abs(rounded.loss - plain.loss), rounding(precision) * max(1.0, abs(plain.loss))),
    )


def step_incorrect(found: Agreement, array: str | None, looks: int) -> ResultWarning:
    """None of so many steps agreed; `found` is of the last one."""
    return warning(
        "RESULT_INCORRECT",
        "A training step isn't the one that the same weights and batch give in float32.",
        array=array,
        steps=looks,
        **found.details(),
    )


def _compared(
    before: NDArray[np.generic], timed: NDArray[np.generic], plain: NDArray[np.generic], rounded: NDArray[np.generic]
) -> tuple[float, float]:
    """(error, bound), both relative to the change of the array in the plain step; infinite where that is nothing."""
    start, one, other, again = (each.astype(np.float64) for each in (before, timed, plain, rounded))
    change = float(np.linalg.norm(other - start))
    # The weights themselves are rounded, before and after.
    stored = _stored(before) * float(np.linalg.norm(start) + np.linalg.norm(other))
    bound = ALLOWED * (float(np.linalg.norm(again - other)) + stored)
    if change == 0.0:
        return math.inf, math.inf
    return float(np.linalg.norm(one - other)) / change, bound / change


def _stored(array: NDArray[np.generic]) -> float:
    """The unit roundoff of the array's own dtype."""
    return UNIT_ROUNDOFF.get(array.dtype.name, UNIT_ROUNDOFF["float32"])


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

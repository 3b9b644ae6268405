"""Does a pipeline deliver images, and others each time? A batch that stays is learned by heart, so no loss tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.measure.result_checks import constant_data
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning

LOOKED_AT = 3  # batches in a row: where an epoch has two or more, two of these are of one epoch


def unfed(batches: Sequence[tuple[NDArray[Any], ...]], samples: int) -> ResultWarning | None:
    """`batches` in a row, inputs and targets of each, as the step took them: constant ones, or the same all over again.

    Silent on the second where the `samples` are too few for two whole batches.
    """
    first = batches[0]
    if (constant := constant_data({"batches": np.stack([inputs for inputs, *_ in batches])})) is not None:
        return constant
    repeated = all((part == other).all() for batch in batches[1:] for part, other in zip(first, batch, strict=True))
    if not repeated or samples < 2 * len(first[0]):
        return None
    return warning("RESULT_INCORRECT", "The pipeline delivers one batch again and again.", batches=len(batches))

"""Is the timed step the training that it is taken for? What its data, its weights and what it learned tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.frameworks.contract import Samples, Trainer
from dyno.measure.checks import constant_data, output_nonfinite
from dyno.measure.verify import freivalds, precision_fingerprint
from dyno.result import Precision, ResultWarning, Training
from dyno.workloads.contract import BuildContext

_SIDE = 128  # of the product whose rounding is looked at


@dataclass
class Checked:
    """`verified`: the codes that were looked for, whether or not any was raised."""

    warnings: list[ResultWarning] = field(default_factory=list)
    verified: set[str] = field(default_factory=set)
    precision: Precision | None = None


def checked(context: BuildContext, model: Any, trainer: Trainer, train: Samples, training: Training | None) -> Checked:
    """After the timed steps. `training`: what run 0 learned in full, None in the other runs.

    That the steps are right shows in what they teach: an accuracy on unseen data whose interval lies above that of
    always naming the most frequent class. A training too short for that leaves RESULT_INCORRECT unverified; it is no
    sign of a fault.
    """
    trainer.sync()
    weights = [np.asarray(each) for each in model.get_weights()]
    nonfinite = sum(int(each.size - np.isfinite(each.astype(np.float32)).sum()) for each in weights)
    raised = (
        constant_data({"inputs": train.inputs, "targets": train.targets}),
        output_nonfinite(nonfinite, sum(each.size for each in weights)),
    )
    found = Checked([each for each in raised if each is not None], {"DEGENERATE_DATA", "OUTPUT_NONFINITE"})
    if training is not None and (training.accuracy_low or 0.0) > _most_frequent(train.targets):
        found.verified.add("RESULT_INCORRECT")
    if context.device is not None and context.device.driven_as == "cpu":
        found.precision = _precision(context, str(model.compute_dtype))
    return found


def _most_frequent(targets: NDArray[Any]) -> float:
    """Its share of the targets, which are classes: by number, or one-hot."""
    one_hot = targets.ndim > 1 and targets.shape[-1] > 1
    if one_hot:
        return float(targets.reshape(-1, targets.shape[-1]).mean(axis=0).max())
    return float(np.unique(targets, return_counts=True)[1].max() / targets.size)


def _precision(context: BuildContext, dtype: str) -> Precision:
    """Of one product in the dtype of the layers, by Keras as it computes them: a CPU has one way to round each dtype.

    A GPU's convolutions and products may differ in theirs, so nothing is concluded from one for the other there.
    """
    framework, random = context.framework, np.random.default_rng(context.seed)
    a, b = (framework.array(random.standard_normal((_SIDE, _SIDE), np.float32), dtype) for _ in range(2))
    product = framework.numpy(framework.keras.ops.matmul(a, b))
    rel_error = freivalds(framework.numpy(a), framework.numpy(b), product, dtype=dtype, seed=context.seed).rel_error
    return Precision(
        requested=dtype, observed=precision_fingerprint(rel_error, requested=dtype), rel_error=float(rel_error)
    )

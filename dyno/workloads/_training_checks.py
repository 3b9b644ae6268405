"""Is the timed step the training that it is taken for? Its data, its weights and a plain step tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import JsonValue

from dyno.frameworks.contract import FedStep, Samples, Trainer
from dyno.measure.correctness import freivalds, precision_fingerprint
from dyno.measure.result_checks import constant_data, output_nonfinite
from dyno.models.result import Precision, ResultWarning
from dyno.workloads._reference_step import FLOAT32, Timed, compared
from dyno.workloads._timed_steps import TimedSteps
from dyno.workloads.contract import BuildContext

_SIDE = 128  # of the product whose rounding is looked at


@dataclass
class Checked:
    """`verified`: the codes that were looked for, whether or not any was raised. `unchecked`: why others weren't."""

    warnings: list[ResultWarning] = field(default_factory=list)
    verified: set[str] = field(default_factory=set)
    unchecked: dict[str, str] = field(default_factory=dict)
    precision: Precision | None = None
    details: dict[str, JsonValue] = field(default_factory=dict)


def checked(
    context: BuildContext,
    model: Any,
    trainer: Trainer | FedStep,
    train: Samples,
    timed: TimedSteps,
    step: Timed | None,
    requested: str = FLOAT32,
) -> Checked:
    """After the steps that were `timed`, in the precision `requested`. `step`: None in all runs but the first."""
    trainer.sync()
    weights = [np.asarray(each) for each in model.get_weights()]
    nonfinite = sum(int(each.size - np.isfinite(each.astype(np.float32)).sum()) for each in weights)
    raised = (
        constant_data({"inputs": train.inputs, "targets": train.targets}),
        output_nonfinite(nonfinite, sum(each.size for each in weights)),
        timed.miscounted(model),
    )
    found = Checked([each for each in raised if each is not None], {"DEGENERATE_DATA", "OUTPUT_NONFINITE"})
    if why := timed.idle(model):
        found.unchecked["RESULT_INCORRECT"] = why
    elif step is not None:
        _hold_against_a_plain_one(context, step, requested, found)
    if context.device is not None and context.device.driven_as == "cpu":
        found.precision = _precision(context, _computed_in(model, requested), requested)
    return found


def _hold_against_a_plain_one(context: BuildContext, step: Timed, requested: str, found: Checked) -> None:
    finding = compared(context, step, requested)
    found.details |= finding.details
    if finding.unchecked is not None:
        found.unchecked["RESULT_INCORRECT"] = finding.unchecked
        return
    found.verified.add("RESULT_INCORRECT")
    if finding.raised is not None:
        found.warnings.append(finding.raised)


def _computed_in(model: Any, requested: str) -> str:
    """The dtype of the layers: another than `requested` where all have it, or any has it that was to be in float32."""
    dtypes = {str(layer.compute_dtype) for layer in model.layers if layer.weights}
    others = sorted(dtypes - {requested})
    return others[0] if others and (requested == FLOAT32 or requested not in dtypes) else requested


def _precision(context: BuildContext, dtype: str, requested: str) -> Precision:
    """Of one product in the `dtype` of the layers, by Keras as it computes them: a CPU has one way to round each dtype.

    A GPU's convolutions and products may differ in theirs, so nothing is concluded from one for the other there.
    """
    framework, random = context.framework, np.random.default_rng(context.seed)
    a, b = (framework.array(random.standard_normal((_SIDE, _SIDE), np.float32), dtype) for _ in range(2))
    product = framework.numpy(framework.keras.ops.matmul(a, b))
    rel_error = freivalds(framework.numpy(a), framework.numpy(b), product, dtype=dtype, seed=context.seed).rel_error
    observed = precision_fingerprint(rel_error, requested=dtype)
    return Precision(requested=requested, observed=observed, rel_error=float(rel_error))

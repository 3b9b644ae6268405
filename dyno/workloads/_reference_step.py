"""Holds timed training steps against plain ones (see `dyno.measure.correctness`)."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.frameworks.plain_step import Arrays, PlainStep, arrays_of, put_state, state_of
from dyno.measure.correctness import MIN_COMPARED, Agreement, TrainingStep, agreement, rounding, step_incorrect
from dyno.models.result import ResultWarning
from dyno.settings import Settings
from dyno.workloads.contract import BuildContext

LOOKS = 3  # steps; a step that disagrees is confirmed by others before anything is raised
FLOAT32 = "float32"
_STEPS = 3  # a look makes: the timed one, the plain one and the rounded one
_GROWS = 2


@dataclass(frozen=True)
class Timed:
    """The model as it is trained and its compiled step: `step` makes one and gives its (inputs, targets, loss).

    The batch is that of the data the training was asked for, whatever the step took; the loss None where it isn't told.
    `make` gives a new compiled model, `parts` is as in a `Trainer`.
    """

    model: Any
    make: Callable[[], Any]
    step: Callable[[], tuple[NDArray[Any], NDArray[Any], float | None]]
    sync: Callable[[], None]
    parts: int = 1


@dataclass(frozen=True)
class Finding:
    """`unchecked`: why nothing can be said; else `raised` says whether the steps are wrong."""

    raised: ResultWarning | None = None
    unchecked: str | None = None
    details: dict[str, JsonValue] = field(default_factory=dict)


def compared(context: BuildContext, timed: Timed, requested: str) -> Finding:
    """Makes one timed step and two plain ones, up to three times over where they disagree."""
    if (reason := _no_room(context)) is not None:
        return Finding(unchecked=reason)
    try:
        return _compared(context, timed, _precision(context, requested))
    except Exception as error:  # noqa: BLE001 - what was measured isn't lost with what would confirm it
        return Finding(unchecked=f"the plain step failed: {type(error).__name__}: {error}"[:500])


def _compared(context: BuildContext, timed: Timed, precision: str) -> Finding:
    model = timed.make()
    model.optimizer.build(model.trainable_variables)
    framework = context.framework
    exact = framework.plain_step(model, exact=True)
    same = precision == FLOAT32
    rounded = exact if same else framework.plain_step(model, exact=False)
    for look in range(1, LOOKS + 1):
        found = _one(context, timed, model, exact, rounded, precision, look)
        if found.agrees is not False:
            break
    details: dict[str, JsonValue] = {"plain_step": {"precision": precision, "steps": look, **found.details()}}
    if found.agrees is False:
        path = None if found.array is None else str(model.trainable_variables[found.array].path)
        return Finding(step_incorrect(found, path, LOOKS), details=details)
    if found.agrees is None:
        if not math.isfinite(found.plain_loss):
            return Finding(unchecked="the plain step's loss isn't finite either", details=details)
        share = f"{found.compared:.0%} of the weights, less than {MIN_COMPARED:.0%}"
        return Finding(
            unchecked=f"rounding in {precision} leaves a plain step to compare with in {share}", details=details
        )
    return Finding(details=details)


def _one(
    context: BuildContext, timed: Timed, model: Any, exact: PlainStep, rounded: PlainStep, precision: str, look: int
) -> Agreement:
    def begin(made: int) -> None:
        # Before each step: a silent run counts as stalled, and PyTorch's dropout draws from the process' own generator.
        context.report("verify", _STEPS * (look - 1) + made, _STEPS * LOOKS, "steps")
        context.framework.seed(context.seed)

    timed.sync()
    put_state(model, state_of(timed.model))
    before = arrays_of(model.trainable_variables)
    begin(0)
    inputs, targets, loss = timed.step()
    timed.sync()
    made = TrainingStep(loss, arrays_of(timed.model.trainable_variables))
    begin(1)
    plain = TrainingStep(*exact(inputs, targets, parts=timed.parts))
    begin(2)
    off = TrainingStep(*rounded(inputs, targets, at=_off(before, precision, context.seed), parts=timed.parts))
    return agreement(before, made, plain, off, precision)


def _no_room(context: BuildContext) -> str | None:
    """A plain step keeps all that the compiled one fuses away: 1.2 to 1.8 times the process' peak was measured.

    On an accelerator it fails in the framework, and that is a reason too; on the host the kernel would end the run.
    """
    if context.device is None or context.device.driven_as != "cpu":
        return None
    limit_bytes = min(context.device.memory_bytes, Settings().runner_memory_bytes or context.device.memory_bytes)
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if _GROWS * peak_bytes <= limit_bytes:
        return None
    return f"a plain step may take {_GROWS * peak_bytes / 1e9:.1f} GB of memory; there are {limit_bytes / 1e9:.1f} GB"


def _off(weights: Arrays, precision: str, seed: int) -> Arrays:
    random, size = np.random.default_rng(seed), rounding(precision)
    return [(each * (1 + size * random.standard_normal(each.shape))).astype(each.dtype) for each in weights]


def _precision(context: BuildContext, requested: str) -> str:
    """What products are rounded to: TensorFlow and cuDNN take TF32 for float32 on a GPU, JAX bfloat16 on a TPU."""
    kind = "cpu" if context.device is None else context.device.driven_as
    return requested if requested != FLOAT32 else {"gpu": "tf32", "tpu": "bfloat16"}.get(kind, FLOAT32)

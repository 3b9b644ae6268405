"""Check that the timed steps are real training steps.

The checks compare the optimiser's step counter with the number of timed steps and verify that the weights changed,
because skipped steps, or steps on a copy, seem fast. Run 0 also compares timed steps with plain steps
(`dyno.bench.measure.correctness`). Further checks: the data isn't constant, the weights are finite, and the steps
used the requested precision.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.bench.contract import BuildContext
from dyno.bench.frameworks.interface import Dataset, FedStep, Trainer
from dyno.bench.frameworks.plain_step import Arrays, PlainStep, arrays_of, put_state, state_of
from dyno.bench.measure import correctness, execution_checks, result_checks
from dyno.bench.measure.peak_fraction import FLOAT32_DEFAULTS
from dyno.models.result import Precision, ResultWarning
from dyno.processes import host_peak_bytes
from dyno.settings import Settings

# Steps that may be skipped: a fixed number and a share of all steps. Keras' dynamic loss scale starts at 2^15, halves
# at each skipped step and doubles every 2000 steps.
_SKIPPED, _SKIPPED_SHARE = 32, 1e-3


@dataclass
class StepCounter:
    """Counts the steps of one model. `counted`: the number of timed steps; the caller increases it.

    Call `Trainer.sync` before any method, so that the model holds the trained weights.
    """

    made_before: int
    weights_before: Sequence[bytes]
    counted: int = 0

    @classmethod
    def of(cls, model: Any) -> Self:
        return cls(_made(model), fingerprints(model))

    def miscounted(self, model: Any) -> ResultWarning | None:
        """A warning if the optimiser's steps differ from `counted`, except for steps skipped for infinite gradients."""
        made = _made(model) - self.made_before
        scaled = hasattr(model.optimizer, "inner_optimizer")
        skipped = _SKIPPED + int(_SKIPPED_SHARE * self.counted) if scaled else 0
        return execution_checks.steps_mismatch(self.counted, made, skipped)

    def idle(self, model: Any) -> str | None:
        """The reason why the steps can't be verified, if no weight changed."""
        if self.counted == 0 or list(self.weights_before) != fingerprints(model):
            return None
        return f"none of the {self.counted} timed steps changed a weight"


class StepLosses:
    """The running losses of a model's steps. `trained`: whether the model began with another job's weights.

    `start`: the loss before the first step; None if the first call made several steps, if the batch is small, or if the
    model is `trained`: then a batch's loss comes mostly from a few wrong samples.
    """

    def __init__(self, batch_size: int, *, trained: bool = False) -> None:
        self.start: float | None = None
        self._telling, self._calls = batch_size >= result_checks.LEAST_STARTING and not trained, 0
        self._highest, self._nonfinite = -math.inf, 0.0

    def add(self, loss: float, steps: int) -> None:
        if self._calls == 0 and steps == 1 and self._telling:
            self.start = loss
        self._calls += 1
        if math.isfinite(loss):
            self._highest = max(self._highest, loss)
        else:
            self._nonfinite = loss

    def restart(self) -> None:
        """Forget all losses except `start`: the epochs record their own losses."""
        self._highest, self._nonfinite = -math.inf, 0.0

    def warnings(self) -> list[ResultWarning]:
        """LOSS_NONFINITE, or else LOSS_RISING, if the steps diverged."""
        if (nonfinite := result_checks.loss_nonfinite(self._nonfinite)) is not None:
            return [nonfinite]
        return [rising for rising in (result_checks.loss_diverged(self.start, self.highest),) if rising is not None]

    @property
    def highest(self) -> float:
        """The highest finite loss; 0 if no loss is finite."""
        return self._highest if math.isfinite(self._highest) else 0.0


def fingerprints(model: Any) -> list[bytes]:
    """The hash of each trainable weight array, in the model's order."""
    return [hashlib.blake2b(array.numpy().tobytes()).digest() for array in model.trainable_variables]


def _made(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


MAX_COMPARISONS = 3  # steps; further steps must confirm a disagreement before it raises a warning
FLOAT32 = "float32"
_STEPS = 3  # per comparison: the timed, the plain and the rounded step
_GROWS = 2


@dataclass(frozen=True)
class CompiledStep:
    """A model in training and its compiled step: `step` makes one step and returns its (inputs, targets, loss).

    The batch is the data that the step should use, even if the step used other data. The loss is None if unknown.
    `make` returns a new compiled model. `parts`: see `Trainer`.
    """

    model: Any
    make: Callable[[], Any]
    step: Callable[[], tuple[NDArray[Any], NDArray[Any], float | None]]
    sync: Callable[[], None]
    parts: int = 1


@dataclass(frozen=True)
class StepFinding:
    """`unchecked`: why the steps couldn't be checked. Otherwise `raised` is the warning if the steps are wrong."""

    raised: ResultWarning | None = None
    unchecked: str | None = None
    details: dict[str, JsonValue] = field(default_factory=dict)


def compare_step(context: BuildContext, timed: CompiledStep, requested: str) -> StepFinding:
    """Compare one timed step with two plain steps; make up to three comparisons if they disagree."""
    if (reason := _memory_shortage(context)) is not None:
        return StepFinding(unchecked=reason)
    try:
        return _compared(context, timed, _rounding_precision(context, requested))
    except Exception as error:  # noqa: BLE001 - a failed confirmation must not lose the measurement
        return StepFinding(unchecked=f"the plain step failed: {type(error).__name__}: {error}"[:500])


def _compared(context: BuildContext, timed: CompiledStep, precision: str) -> StepFinding:
    model = timed.make()
    model.optimizer.build(model.trainable_variables)
    framework = context.framework
    exact = framework.plain_step(model, exact=True)
    same = precision == FLOAT32
    rounded = exact if same else framework.plain_step(model, exact=False)
    for look in range(1, MAX_COMPARISONS + 1):
        agreement = _one(context, timed, model, exact, rounded, precision, look)
        if agreement.agrees is not False:
            break
    details: dict[str, JsonValue] = {"plain_step": {"precision": precision, "steps": look, **agreement.details()}}
    if agreement.agrees is False:
        path = None if agreement.array is None else str(model.trainable_variables[agreement.array].path)
        return StepFinding(correctness.step_incorrect(agreement, path, MAX_COMPARISONS), details=details)
    if agreement.agrees is None:
        if not math.isfinite(agreement.plain_loss):
            return StepFinding(unchecked="the loss of the plain step isn't finite either", details=details)
        share = f"only {agreement.compared:.0%} of the weights, less than {correctness.MIN_COMPARED:.0%}"
        return StepFinding(
            unchecked=f"because of rounding in {precision}, a plain step allows comparing {share}", details=details
        )
    return StepFinding(details=details)


def _one(
    context: BuildContext,
    timed: CompiledStep,
    model: Any,
    exact: PlainStep,
    rounded: PlainStep,
    precision: str,
    look: int,
) -> correctness.Agreement:
    def begin(made: int) -> None:
        # Report progress so that the run doesn't count as stalled. Seed because PyTorch's dropout uses the process-wide
        # generator.
        context.report("verify", _STEPS * (look - 1) + made, _STEPS * MAX_COMPARISONS, "steps")
        context.framework.seed(context.seed)

    timed.sync()
    put_state(model, state_of(timed.model))
    before = arrays_of(model.trainable_variables)
    begin(0)
    inputs, targets, loss = timed.step()
    timed.sync()
    made = correctness.TrainingStep(loss, arrays_of(timed.model.trainable_variables))
    begin(1)
    plain = correctness.TrainingStep(*exact(inputs, targets, parts=timed.parts))
    begin(2)
    off = correctness.TrainingStep(
        *rounded(inputs, targets, at=_off(before, precision, context.seed), parts=timed.parts)
    )
    return correctness.agreement(before, made, plain, off, precision)


def _memory_shortage(context: BuildContext) -> str | None:
    """The reason to skip the plain step if host memory may run out.

    A plain step keeps intermediate values that a compiled step never stores: measured 1.2 to 1.8 times the process'
    peak. On an accelerator the framework raises an error, which also gives a reason; on the host the kernel would kill
    the run. `ru_maxrss` is unsuitable: a process inherits it from its parent, even through an exec.
    """
    if context.device is None or context.device.driven_as != "cpu":
        return None
    limit_bytes = min(context.device.memory_bytes, Settings().runner_memory_bytes or context.device.memory_bytes)
    peak_bytes = host_peak_bytes() or 0
    if _GROWS * peak_bytes <= limit_bytes:
        return None
    return (
        f"a plain step may need {_GROWS * peak_bytes / 1e9:.1f} GB of memory; the limit is {limit_bytes / 1e9:.1f} GB"
    )


def _off(weights: Arrays, precision: str, seed: int) -> Arrays:
    random, size = np.random.default_rng(seed), correctness.rounding(precision)
    return [(array * (1 + size * random.standard_normal(array.shape))).astype(array.dtype) for array in weights]


def _rounding_precision(context: BuildContext, requested: str) -> str:
    """The precision of products: for float32, TensorFlow and cuDNN use TF32 on a GPU, and JAX bfloat16 on a TPU."""
    kind = "cpu" if context.device is None else context.device.driven_as
    return requested if requested != FLOAT32 else FLOAT32_DEFAULTS.get(kind, FLOAT32)


_SIDE = 128  # side of the product that reveals the precision


@dataclass
class CheckedTraining:
    """`verified`: the codes that were checked, raised or not. `unchecked`: why other codes weren't checked.

    `tuned`: see `BuildContext.tuned`.
    """

    warnings: list[ResultWarning] = field(default_factory=list)
    verified: set[str] = field(default_factory=set)
    unchecked: dict[str, str] = field(default_factory=dict)
    precision: Precision | None = None
    details: dict[str, JsonValue] = field(default_factory=dict)
    tuned: dict[str, JsonValue] = field(default_factory=dict)


def check_training(
    context: BuildContext,
    model: Any,
    trainer: Trainer | FedStep,
    train: Dataset,
    timed: StepCounter,
    step: CompiledStep | None,
    requested: str = FLOAT32,
) -> CheckedTraining:
    """Check the `timed` steps against the `requested` precision. `step` is None in all runs except the first."""
    trainer.sync()
    weights = [np.asarray(array) for array in model.get_weights()]
    nonfinite = sum(int(array.size - np.isfinite(array.astype(np.float32)).sum()) for array in weights)
    warnings = (
        result_checks.constant_data({"inputs": train.inputs, "targets": train.targets}),
        result_checks.output_nonfinite(nonfinite, sum(array.size for array in weights)),
        timed.miscounted(model),
    )
    facts = CheckedTraining(
        [raised for raised in warnings if raised is not None], {"DEGENERATE_DATA", "OUTPUT_NONFINITE"}
    )
    if why := timed.idle(model):
        facts.unchecked["RESULT_INCORRECT"] = why
    elif step is not None:
        _compare_with_plain_step(context, step, requested, facts)
    observe_precision(context, model, requested, facts)
    return facts


def _compare_with_plain_step(context: BuildContext, step: CompiledStep, requested: str, facts: CheckedTraining) -> None:
    finding = compare_step(context, step, requested)
    facts.details |= finding.details
    if finding.unchecked is not None:
        facts.unchecked["RESULT_INCORRECT"] = finding.unchecked
        return
    facts.verified.add("RESULT_INCORRECT")
    if finding.raised is not None:
        facts.warnings.append(finding.raised)


def _computed_in(model: Any, requested: str) -> str:
    """The dtype of the layers.

    It differs from `requested` if no layer computes in `requested` or, for a requested float32, if any layer computes
    in another dtype.
    """
    dtypes = {str(layer.compute_dtype) for layer in model.layers if layer.weights}
    others = sorted(dtypes - {requested})
    return others[0] if others and (requested == FLOAT32 or requested not in dtypes) else requested


def observe_precision(context: BuildContext, model: Any, requested: str, facts: CheckedTraining) -> None:
    """Note the coarser precision of two Keras operations: a product and, if the model has convolutions, a convolution.

    Both run on the device in the layers' dtype, under the framework's settings for the training: a GPU may use TF32,
    a TPU bfloat16. Later runs execute the same kernels, so they reuse the errors that the first run measured.
    """
    dtype = _computed_in(model, requested)
    earlier = context.tuned.get(_ERRORS)
    errors: dict[str, float] = dict(earlier) if isinstance(earlier, dict) else _rounding_errors(context, model, dtype)  # type: ignore[arg-type]
    names = {kind: correctness.precision_fingerprint(error, requested=dtype) for kind, error in errors.items()}
    coarsest = max(errors, key=lambda kind: errors[kind])
    facts.precision = Precision(
        requested=requested,
        observed=names[coarsest],
        rel_error=errors[coarsest],
        by_default=dtype == requested and _is_default(context, requested, names),
    )
    facts.details["precision_by_operation"] = dict[str, JsonValue](names)
    facts.tuned[_ERRORS] = dict[str, JsonValue](errors)


def _is_default(context: BuildContext, requested: str, observed: Mapping[str, str | None]) -> bool:
    """Whether the framework's defaults alone explain a precision other than `requested`.

    `observed`: the precision by kind of operation. PyTorch uses TF32 for convolutions alone.
    """
    default = _rounding_precision(context, requested)
    others = [kind for kind, precision in observed.items() if precision != requested]
    exact = "product" if context.framework.name == "torch" else None
    return bool(others) and all(observed[kind] == default and kind != exact for kind in others)


_ERRORS = "precision_errors"
_KERNEL, _CHANNELS = 2, 32  # a convolution of 2 x 2 has no fast algorithm that adds errors of its own (Winograd)


def _rounding_errors(context: BuildContext, model: Any, dtype: str) -> dict[str, float]:
    """The relative error of each kind of operation against float64."""
    framework, random = context.framework, np.random.default_rng(context.seed)
    ops = framework.keras.ops
    a, b = (framework.array(random.standard_normal((_SIDE, _SIDE), np.float32), dtype) for _ in range(2))
    product = framework.numpy(ops.matmul(a, b))
    errors = {"product": _rel_error(context, framework.numpy(a), framework.numpy(b), product, dtype)}
    if not any("Conv" in type(layer).__name__ for layer in model._flatten_layers()):
        return errors
    side = _SIDE // 8 + _KERNEL - 1
    image = framework.array(random.standard_normal((1, side, side, _CHANNELS), np.float32), dtype)
    kernel = framework.array(random.standard_normal((_KERNEL, _KERNEL, _CHANNELS, _CHANNELS), np.float32), dtype)
    convolved = ops.conv(image, kernel, padding="valid", data_format="channels_last")
    sums = framework.numpy(convolved).reshape(-1, _CHANNELS)
    windows = np.lib.stride_tricks.sliding_window_view(framework.numpy(image)[0], (_KERNEL, _KERNEL), axis=(0, 1))
    patches = windows.transpose(0, 1, 3, 4, 2).reshape(len(sums), -1)  # (place, row x column x channel of the kernel)
    filters = framework.numpy(kernel).reshape(-1, _CHANNELS)
    return errors | {"convolution": _rel_error(context, patches, filters, sums, dtype)}


def _rel_error(context: BuildContext, a: Any, b: Any, product: Any, dtype: str) -> float:
    return float(correctness.freivalds(a, b, product, dtype=dtype, seed=context.seed).rel_error)

"""Which `jit_compile` a training gets: the one asked for, or with "auto" the faster one by measurement.

Measured is for TensorFlow alone: JAX compiles every step, PyTorch none, whatever was asked for. Run 0 of a job measures
on a model of its own; the other runs do the same as run 0. On a CPU a small batch is enough, so that XLA's compiling
and its slow convolutions cost seconds. The choice is that of a full batch: `mnist_cnn` on two cores of a Zen took 15 x
as long with XLA at batch 32 (23 and 345 ms a step), 11 x at 1024 (0.63 and 7.1 s). An accelerator gets the full batch:
it makes a small one in less time than the host needs to start the operations, which says nothing of a large one.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from dyno.frameworks.contract import Samples, Trainer
from dyno.measure.statistics import median
from dyno.workloads._training_params import TrainingParams
from dyno.workloads.contract import BuildContext

if TYPE_CHECKING:
    from dyno.workloads._training import Plan

_BATCH_ON_CPU = 32
_BATCHES = 8  # of the samples taken, so that drawing their order is spread over so many steps
_ROUNDS, _BUDGET_S = 5, 10.0
_ROUND_S = 0.02  # long against the clock and one call
_HOPELESS = 3.0  # times as long as without: no further round changes that
_SETTLED = {"jax": (True, "JAX compiles every step"), "torch": (False, "PyTorch's step is not compiled")}


@dataclass(frozen=True)
class JitChoice:
    """`setting` is what `Plan.make` gets; `details` say how it came about."""

    setting: bool
    details: dict[str, JsonValue]

    @property
    def tuned(self) -> dict[str, JsonValue]:
        """For the runs after this one, see `BuildContext.tuned`."""
        return {"jit_compile": self.setting}


def choose(params: TrainingParams, plan: Plan, context: BuildContext) -> JitChoice:
    """The setting for a model of `plan`. Leaves the seed as it was at the start of the run, whatever it did."""
    try:
        return _chosen(params, plan, context)
    finally:
        context.framework.seed(context.seed)


def _chosen(params: TrainingParams, plan: Plan, context: BuildContext) -> JitChoice:
    name, tuned, asked = context.framework.name, context.tuned.get("jit_compile"), params.jit_compile
    if name in _SETTLED:
        setting, how = _SETTLED[name]
        return _settled(setting, how if asked in ("auto", setting) else f"asked for {str(asked).lower()}; {how}")
    if asked != "auto":
        return _settled(asked, "as asked for")
    if isinstance(tuned, bool):
        return _settled(tuned, "as the first run")
    if context.replicas > 1:
        return _settled(False, "TensorFlow's XLA compiles no step over several replicas")
    if plan.jit_unmeasured is not None:
        return _settled(False, plan.jit_unmeasured)
    return _measured(_batch_size(params, context), plan, context)


def _batch_size(params: TrainingParams, context: BuildContext) -> int:
    on_cpu = context.device is None or context.device.driven_as == "cpu"
    return min(params.batch_size, _BATCH_ON_CPU) if on_cpu else params.batch_size


def _settled(setting: bool, how: str, details: Mapping[str, JsonValue] | None = None) -> JitChoice:
    return JitChoice(setting, {"chosen": setting, "how": how, **(details or {})})


def _measured(batch_size: int, plan: Plan, context: BuildContext) -> JitChoice:
    began_s = time.perf_counter()
    candidates = _Candidates(plan, context, batch_size)
    try:
        how = candidates.race(began_s + _BUDGET_S)
    finally:
        times = candidates.step_s
        del candidates
        gc.collect()  # graphs refer to themselves, and hold the data on the device
    faster = True in times and times[True] < times[False]
    details: dict[str, JsonValue] = {
        "step_s": {str(setting).lower(): seconds for setting, seconds in times.items()},
        "batch_size": batch_size,
        "took_s": time.perf_counter() - began_s,
    }
    return _settled(faster, how, details)


class _Candidates:
    """A model and a step for each setting, on the same few samples. `step_s`: the median time of a step."""

    def __init__(self, plan: Plan, context: BuildContext, batch_size: int) -> None:
        self._plan, self._context, self._batch_size = plan, context, batch_size
        self._samples = _few(plan.train, _BATCHES * batch_size)
        self._taken: dict[bool, list[float]] = {}

    @property
    def step_s(self) -> dict[bool, float]:
        return {setting: median(taken) for setting, taken in self._taken.items()}

    def race(self, until_s: float) -> str:
        """Time both in turn, at least once each; how that went, in words."""
        plain, compiled = self._ready(False), None
        for _ in range(_ROUNDS):
            self._time(False, plain)
            try:
                compiled = compiled or self._ready(True)
                if not compiled.jit_compile:
                    return "a layer of the model can't be compiled by XLA, says Keras"
                self._time(True, compiled)
            except Exception as error:  # noqa: BLE001 - an operation that XLA lacks shows as any of TensorFlow's errors
                self._taken.pop(True, None)  # however fast it was before it failed
                return f"XLA failed on it: {type(error).__name__}"
            if self.step_s[True] > _HOPELESS * self.step_s[False]:
                return f"measured; compiled by XLA a step takes more than {_HOPELESS:g} times as long"
            if time.perf_counter() > until_s:
                break
        return "the faster one, measured in turn"

    def _ready(self, setting: bool) -> Trainer:
        """Compiled, and its first step made."""
        framework = self._context.framework
        self._context.report("build", 0, None, "steps")
        model = self._plan.make(setting)
        trainer = framework.trainer(model, self._samples, self._batch_size, self._context.seed)
        trainer.steps(1)
        return trainer

    def _time(self, setting: bool, trainer: Trainer) -> None:
        self._context.report("build", 0, None, "steps")
        count, began_s = 0, time.perf_counter()
        while (spent_s := time.perf_counter() - began_s) < _ROUND_S:
            trainer.steps(1)
            count += 1
        self._taken.setdefault(setting, []).append(spent_s / count)


def _few(samples: Samples, count: int) -> Samples:
    """The first `count` samples. Windows keep the whole series: it takes little memory, and they lie anywhere in it."""
    if samples.starts is not None:
        return replace(samples, starts=samples.starts[:count])
    return replace(samples, inputs=samples.inputs[:count], targets=samples.targets[:count])

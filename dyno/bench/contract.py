"""The workload interface: the parts that every workload file must define.

A workload file defines a module-level `WORKLOAD = Workload(...)`. It imports a framework only inside `build`, which
only a runner calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field, JsonValue

from dyno.errors import FieldError
from dyno.models.result import Precision, Reference, ResultWarning, Training
from dyno.models.spec import FEW_SAMPLES, MOST_RUNS, MOST_SAMPLES, SAMPLES, FrameworkName, Measure, Model, Spec

if TYPE_CHECKING:
    from pathlib import Path

    from dyno.bench.frameworks.interface import Framework
    from dyno.models.device import Device


class Params(Model, strict=True):
    """Base class of every workload's params. Each field is validated alone; `conflicts` checks combinations of fields.

    Validation is strict: "4096", 1.0 and true aren't integers.
    """

    untimed: ClassVar[frozenset[str]] = frozenset()  # fields that don't change the work that a sample times
    how: ClassVar[frozenset[str]] = frozenset()  # fields that change how the work is done, not its amount

    @classmethod
    def defaults_over(cls, replicas: int) -> dict[str, object]:
        """Defaults that grow with the number of replicas. All other fields keep their own defaults."""
        return {}

    def fitted(self, replicas: int) -> dict[str, object]:
        """Defaults derived from other fields, for fields that the client left out."""
        return {}

    def conflicts(self) -> list[FieldError]:
        """Errors in combinations of fields, with pointers relative to the params ("/k"). See `validate_params`."""
        return []

    def conflicts_on(self, framework: FrameworkName, replicas: int) -> list[FieldError]:
        """Errors in params that the framework can't run with `replicas` on any device. Pointers: see `conflicts`."""
        return []

    def conflicts_with(self, framework: FrameworkName, device: Device) -> list[FieldError]:
        """Errors in params that the framework doesn't support on this device. Pointers: see `conflicts`."""
        return []

    @property
    def replicable(self) -> bool:
        """Whether a workload that is `Workload.replicable` can run on several devices with these params."""
        return True


_WARMUP = 1.25  # the time of warm-up and samples together, divided by the time of the samples
_CALIBRATION_S = 1.0  # additional time to calibrate the length of a sample
_SAMPLE_S = 0.1  # the minimum length of a sample
_ONCE_S = 2.0  # the maximum time of the first run's checks, which start and execute the work again
_CHECKED = 4  # number of executions in the first run's checks


def sampling_s(execution_s: float, measure: Measure) -> float:
    """The time to warm up and sample one case in one run, if the spec sets the sampling time of a run."""
    samples_s = _WARMUP * measure.least_samples * max(execution_s, _SAMPLE_S)
    return min(max(samples_s, measure.least_s + _CALIBRATION_S), measure.longest_s + execution_s)


@dataclass(frozen=True)
class Estimate:
    """Time and memory that admission needs before it queues a job. Usually accurate to a factor of about 3.

    `start_s`: the time of a run up to its first execution, without the framework's import. `train_s`: the time that a
    full training adds to the first run. `executions_s`: the time of one execution of each case.
    """

    start_s: float
    memory_bytes: int  # peak: of host memory on a CPU, else of device memory
    train_s: float = 0.0
    executions_s: tuple[float, ...] = ()

    def run_s(self, measure: Measure) -> float:
        """The time of one run, without a full training."""
        if not measure.is_divided:
            return max(
                self.start_s + math.fsum(sampling_s(time_s, measure) for time_s in self.executions_s), measure.least_s
            )
        least_s = self.start_s + self._samples_s(FEW_SAMPLES)
        samples = SAMPLES if measure.buys_runs else MOST_SAMPLES
        return max(least_s, min(self.start_s + self._samples_s(samples), measure.budget_s / measure.runs.min))

    def runs(self, measure: Measure) -> int:
        """The expected number of runs."""
        if not measure.buys_runs:
            return measure.runs.min
        return min(max(measure.runs.min, int(measure.budget_s / self.run_s(measure))), MOST_RUNS)

    def in_all_s(self, measure: Measure) -> float:
        """The time of all expected runs, with the full training and the checks of the first run."""
        checks_s = min(self.start_s + _CHECKED * math.fsum(self.executions_s), _ONCE_S)
        return self.runs(measure) * self.run_s(measure) + self.train_s + checks_s

    def _samples_s(self, samples: int) -> float:
        """The time of a calibration and `samples` samples, for every case."""
        return math.fsum((1 + samples) * max(time_s, _SAMPLE_S) for time_s in self.executions_s)


Loop = Literal["closed", "open"]
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def metric_name(loop: Loop, percentile: str, case: str = "") -> str:
    return f"latency_{loop}_{percentile}" + (f"_{case}" if case else "")


@dataclass(frozen=True)
class MetricSpec:
    """A metric computed from the time of one execution: value = work / time if higher is better, else time / work.

    `amount` names an amount of work in the run's `amounts`, which replaces the unit of work: a time has the value
    time / work x amounts[amount], and a rate has the reciprocal value.
    `loop`: every run times single calls in a closed or an open loop; see `LATENCIES`.
    `once`: only run 0 reports the figure, so the figure has no interval. `each_run`: every run reports it. Both kinds
    are in `figures`, under the metric's name. `against` names another case: the metric is the run's own time divided
    by the time of that case, for the same amount of work.
    """

    name: str
    unit: str
    better: Literal["higher", "lower"]
    description: str
    amount: str | None = None
    once: bool = False
    each_run: bool = False
    against: str | None = None
    loop: Loop | None = None

    @property
    def sampled(self) -> bool:
        """Whether each sample of every case yields a value of this metric."""
        return not (self.once or self.each_run or self.against or self.loop)


_LOOPS: dict[Loop, str] = {
    "closed": "one call after the other",
    "open": "calls that arrive at random, at `rate_per_s`, from their arrival on",
}
# Metrics of workloads in which a caller waits for each execution. Params of such workloads may have `rate_per_s`.
LATENCIES = tuple(
    MetricSpec(metric_name(loop, name), "s", "lower", f"Latency of a call, {name[1:]}th percentile: {how}", loop=loop)
    for loop, how in _LOOPS.items()
    for name in PERCENTILES
)
RATE = "Calls a second in the open loop of the latency; null: half of what the first run reaches one by one"
RatePerS = Annotated[float, Field(gt=0, le=1e6)]


@dataclass
class Verification:
    """The findings of the checks after sampling, and the inputs that metrics need in addition to the samples."""

    warnings: list[ResultWarning] = field(default_factory=list)
    verified: frozenset[str] = frozenset()  # the codes of dyno.bench.measure.warnings.OUTPUT_CODES that were checked
    unchecked: dict[str, str] = field(default_factory=dict)  # code that couldn't be checked -> reason
    precision: Precision | None = None
    details: dict[str, Any] = field(default_factory=dict)
    amounts: dict[str, float] = field(default_factory=dict)  # see MetricSpec.amount; in units of `work`
    figures: dict[str, float] = field(default_factory=dict)  # by metric name; see MetricSpec.once and each_run
    tuned: dict[str, JsonValue] = field(default_factory=dict)  # see BuildContext.tuned
    flops: float | None = None  # FLOP of one execution, if they don't follow from the params alone
    bytes: float | None = None  # compulsory traffic of one execution; see `Case.bytes`
    params: dict[str, JsonValue] = field(default_factory=dict)  # the values used for params that the spec left open


@dataclass(frozen=True)
class BuildContext:
    """The context of a run, passed to `build`. `phase(name)` times a block as a cold-start phase (`data`, `build`)."""

    framework: Framework
    seed: int
    run: int  # number of the run; a job's full training, if any, is in run 0
    cores: int
    phase: Callable[[str], Any]
    report: Callable[[str, int, int | None, str], None]  # phase, completed, total, unit; cheap enough to call often
    device: Device | None = None  # None: only `cores` is known
    data_dir: Path | None = None  # data sets are in <data_dir>/mnist/…
    replicas: int = 1
    artifacts: Path | None = None  # an empty folder: each file that run 0 writes there becomes an artifact of the job
    weights: Path | None = None  # the file that `params.weights` names, already downloaded and verified
    tuned: dict[str, JsonValue] = field(default_factory=dict)  # run 0's measured choices and findings, for later runs


class Built(Protocol):
    """A workload that is ready to be timed in this process."""

    work: float  # amount of work in one execution: FLOP (throughput workloads) or samples (training)

    def compile(self) -> None:
        """Trace into a graph without executing it (see `Framework.compile`)."""

    def execute(self, count: int) -> None:
        """Execute `count` times and drain the device's queue by reading a scalar back."""

    def complete(self, compile_s: float, first_execution_s: float) -> Training | None:
        """Do the full job (train to the last epoch, evaluate). Run 0 only, after the first execution."""

    def verify(self) -> Verification:
        """Check the timed output. Called once, after the last sample."""


# Takes a factor for the work in one execution. Returns a function like `execute`, or None if the work can't be scaled.
Grown = Callable[[float], Callable[[int], None] | None]


@runtime_checkable
class Growable(Protocol):
    """A `Built` that can compile more or less work. If a compiler removed the work, more work takes the same time."""

    def grown(self, times: float) -> Callable[[int], None] | None:
        """A newly compiled function like `execute`, not executed yet, with `times` times the work in each execution.

        A factor below 1 means less work. Returns None if the work can't be scaled by `times`.
        """


@runtime_checkable
class Countable(Protocol):
    """A `Built` whose operations the framework may count."""

    def counted_flops(self) -> float | None:
        """FLOP of one execution as the framework counts them in its trace; None if it can't count them."""


@runtime_checkable
class UnderLoad(Protocol):
    """A `Built` that also answers queries which arrive at random."""

    def answer_queries(self, most_s: float, seed: int) -> None:
        """Called once, after the last sample, with the time for it and a seed of the run. `verify` has the figures."""


@dataclass(frozen=True)
class Case:
    """One of several pieces of work that a run times in turn, such as a size or a model format.

    `name` is the suffix of its metrics ("throughput_512x512x512"). `flops` is per execution and is compared with the
    peak for `dtype`; work in several dtypes ("int8+float32") has no peak. The first case's dtype is the run's dtype.
    `bytes`: the compulsory traffic of an execution. Each weight and input is read once, each output written once.
    `amounts`: see `Verification`. `grown`: see `Growable`. `counted_flops`: see `Countable`. `counted_bytes`: the size
    of the arrays that an execution reads and writes, as the framework holds them. `over_link`: whether the bytes cross
    a link, such as PCIe, whose bandwidth limits the speed instead of the memory's.
    """

    name: str
    work: float
    flops: float
    dtype: str
    execute: Callable[[int], None]
    amounts: Mapping[str, float] = field(default_factory=dict)
    grown: Grown | None = None
    counted_flops: Callable[[], float | None] | None = None
    bytes: float | None = None
    counted_bytes: Callable[[], float] | None = None
    over_link: bool = False


@runtime_checkable
class HasCases(Protocol):
    """A `Built` with several `cases`. `execute` runs the first case; the other cases follow, each sampled in full."""

    cases: Sequence[Case]


class _Compiled(Protocol):
    def compile(self) -> None: ...


class CaseByCase:
    """The part of a `Built` with cases that all such workloads share: `parts` are compiled together, one per case."""

    def __init__(self, parts: Sequence[_Compiled], cases: Sequence[Case]) -> None:
        self._parts, self.cases, self.work = parts, cases, cases[0].work

    def compile(self) -> None:
        for part in self._parts:
            part.compile()

    def execute(self, count: int) -> None:
        """Run the first case."""
        self.cases[0].execute(count)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None


class Estimator(Protocol):
    """Estimates time and memory on the device, for `replicas` and a framework."""

    def __call__(
        self, params: Any, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow", /
    ) -> Estimate: ...


class Linter(Protocol):
    """Finds warnings before a job runs.

    Admission calls the linter before it queues a job, with the expected device. The assembly of the result calls the
    linter again, with the device that ran the job. Without a device, the linter checks only the params.
    """

    def __call__(self, params: Any, device: Device | None = None, replicas: int = 1, /) -> list[ResultWarning]: ...


@dataclass(frozen=True)
class Smoke:
    """A job of about a second, which tests run, and the minimum contents of its result."""

    params: Mapping[str, JsonValue] = field(default_factory=dict)
    on_jax: Mapping[str, JsonValue] = field(default_factory=dict)  # params that differ on JAX
    replicas: int = 1
    details: frozenset[str] = frozenset()  # required keys
    artifacts: frozenset[str] = frozenset()  # required names
    warnings: frozenset[str] = frozenset()  # required codes


@dataclass(frozen=True)
class Workload:
    """One kind of benchmark. `flops(params)`: the FLOP of one execution, by the formula in the workload's docstring.

    A result compares its FLOP/s with the peak for `params.dtype`, or for float32 if the params have no dtype.
    """

    name: str
    description: str
    params: type[Params]
    metrics: tuple[MetricSpec, ...]
    flops: Callable[[Any], float]
    estimate: Estimator
    build: Callable[[Any, BuildContext], Built]
    lint: Linter = lambda params, device=None, replicas=1: []
    references: tuple[Reference, ...] = ()
    frameworks: tuple[str, ...] = ("tensorflow", "jax", "torch")
    datasets: tuple[str, ...] = ()  # modules of dyno.bench.datasets for training or evaluation
    replicable: bool = False  # whether it can run on several devices; trainings share a batch evenly
    least_replicas: int = 1
    executions: Callable[[Any], str] = lambda params: "execution"  # describes an execution, if the run's details don't
    refuses: Callable[[Any, Device], list[FieldError]] = lambda params, device: []  # unsupported params on a device
    metrics_of: Callable[[Any], tuple[MetricSpec, ...]] | None = None  # if the metrics depend on the params
    cases_of: Callable[[Any], tuple[str, ...]] = lambda params: ()  # the names of a run's cases; see `HasCases`
    smoke: Smoke = field(default_factory=Smoke)
    # Params for `make workloads`. The job takes minutes on two cores; its time is stable, its accuracy above chance.
    bench: Mapping[str, JsonValue] = field(default_factory=dict)
    options: str = ""  # the workload's options and outputs, for the table in docs/workloads.md

    def metrics_for(self, params: Any) -> tuple[MetricSpec, ...]:
        """The metrics of a job with these params. Their names are in `metrics`."""
        return self.metrics if self.metrics_of is None else self.metrics_of(params)

    def sampled_for(self, params: Any) -> list[MetricSpec]:
        """The sampled metrics, then a copy of each for every case, named after the case."""
        specs = [spec for spec in self.metrics_for(params) if spec.sampled]
        return [
            *specs,
            *(replace(spec, name=f"{spec.name}_{case}") for case in self.cases_of(params) for spec in specs),
        ]

    def untimed_for(self, metric: str) -> frozenset[str]:
        """The params that don't change `metric` (its name may include a case); empty if the metric isn't sampled."""
        return self.params.untimed if self.samples(metric) else frozenset()

    def samples(self, metric: str) -> bool:
        """Whether `metric` (its name may include a case) is sampled."""
        candidates = [spec for spec in self.metrics if f"{metric}_".startswith(f"{spec.name}_")]
        longest = max(candidates, key=lambda spec: len(spec.name), default=None)
        return longest is not None and longest.sampled


@dataclass(frozen=True)
class ResolvedSpec:
    """A spec with all defaults filled in, its workload and its validated params; see `dyno.bench.registry.resolve`."""

    spec: Spec
    workload: Workload
    params: Params

    def estimate(self, device: Device) -> Estimate:
        """The estimate of one run on `device`."""
        return self.workload.estimate(self.params, device, self.spec.replicas, self.spec.framework)

    def check_units(self, device: Device) -> list[FieldError]:
        """An error (/replicas) if the device has fewer units than the spec has replicas."""
        replicas = self.spec.replicas
        if replicas <= device.units:
            return []
        detail = f"{device.full_id} takes up to {device.units} replicas, not {replicas}"
        return [FieldError("/replicas", "too-many-replicas", detail)]

    def refusals(self, device: Device) -> list[FieldError]:
        """Errors in params that the device, or the framework on it, doesn't support."""
        refused = self.workload.refuses(self.params, device)
        return [*refused, *self.params.conflicts_with(self.spec.framework, device)]

    def can_run(self, device: Device) -> bool:
        """Whether the device has enough units and memory, and the workload and the framework support the params on it.

        Ignores the estimated time, which is only accurate to a factor of about 3.
        """
        if self.check_units(device) or self.refusals(device):
            return False
        return self.estimate(device).memory_bytes <= device.memory_bytes

"""What a workload is: the parts that one file in this folder must bring.

A workload file defines a module-level `WORKLOAD = Workload(...)`. Nothing in it imports a framework, except
inside `build`, which only a runner calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import ConfigDict, JsonValue

from dyno.errors import FieldError
from dyno.models.result import Precision, Reference, ResultWarning, Training
from dyno.models.spec import FrameworkName, Measure, Model

if TYPE_CHECKING:
    from pathlib import Path

    from dyno.devices.device import Device
    from dyno.frameworks.contract import Framework


class Params(Model):
    """Base of every workload's params: each field checks itself, `conflicts` what they are together.

    Strict: "4096", 1.0 and true are no whole numbers.
    """

    model_config = ConfigDict(strict=True)
    untimed: ClassVar[frozenset[str]] = frozenset()  # fields that change nothing of what a sample times
    how: ClassVar[frozenset[str]] = frozenset()  # fields that change how the same work is done, not what it is

    @classmethod
    def defaults_over(cls, replicas: int) -> dict[str, object]:
        """Defaults that grow with the replicas; all others are those of the fields."""
        return {}

    def fitted(self, replicas: int) -> dict[str, object]:
        """Defaults that follow from other fields, for those that weren't given."""
        return {}

    def conflicts(self) -> list[FieldError]:
        """All that is wrong between fields, pointers relative to the params ("/k"). Asked for by `validate_params`."""
        return []

    def conflicts_on(self, framework: FrameworkName, replicas: int) -> list[FieldError]:
        """What that framework can't do, or not over so many replicas, whatever the device; as `conflicts`."""
        return []

    @property
    def replicable(self) -> bool:
        """Whether a `Workload.replicable` one can be copied to several devices with these params."""
        return True


@dataclass(frozen=True)
class Estimate:
    """What admission needs before a job is queued. Honest to a factor of about 3, never a promise."""

    time_s: float  # one run from build to the end of its steady samples, without the framework's import
    memory_bytes: int  # host memory on a CPU, device memory elsewhere: the peak of what is held at once
    train_s: float = 0.0  # what the first run needs on top (a full training)

    def in_all_s(self, measure: Measure) -> float:
        """All runs of a job together: the fewest there may be, each sampled for no less than it has to be."""
        return measure.processes.min * max(self.time_s, measure.min_s) + self.train_s


@dataclass(frozen=True)
class MetricSpec:
    """A metric computed from the time of one execution: value = work / time if better is higher, else time / work.

    `amount` names an entry of the run's `amounts` (how much work that is): value = time / work x amounts[amount].
    `once` is a figure that run 0 alone has, in its `figures` under the metric's name: no interval; `each_run` is one
    that every run has there. `against` names a further case: how many times as long as that one the run's own takes for
    as much work.
    """

    name: str
    unit: str
    better: Literal["higher", "lower"]
    description: str
    amount: str | None = None
    once: bool = False
    each_run: bool = False
    against: str | None = None

    @property
    def sampled(self) -> bool:
        """Whether each sample gives one, of every case."""
        return not (self.once or self.each_run or self.against)


@dataclass
class Verification:
    """What the checks after sampling found, and what the metrics need beside the samples."""

    warnings: list[ResultWarning] = field(default_factory=list)
    verified: frozenset[str] = frozenset()  # of dyno.measure.warnings.OUTPUT_CODES, those that were looked for
    unchecked: dict[str, str] = field(default_factory=dict)  # of those, which couldn't be, and why
    precision: Precision | None = None
    details: dict[str, Any] = field(default_factory=dict)
    amounts: dict[str, float] = field(default_factory=dict)  # see MetricSpec.amount; in units of `work`
    figures: dict[str, float] = field(default_factory=dict)  # see MetricSpec.once and each_run; by metric name
    tuned: dict[str, JsonValue] = field(default_factory=dict)  # see BuildContext.tuned
    flops: float | None = None  # of one execution as it was, where not the params alone decide


@dataclass(frozen=True)
class BuildContext:
    """What `build` is given. `phase(name)` times a block as a cold-start phase (`data`, `build`)."""

    framework: Framework
    seed: int
    run: int  # 0 is the run that trains in full
    cores: int
    phase: Callable[[str], Any]
    report: Callable[[str, int, int | None, str], None]  # phase, completed, total, unit; free to call often
    device: Device | None = None  # None: nothing is known of it but `cores`
    data_dir: Path | None = None  # where data sets lie: <data_dir>/mnist/…
    replicas: int = 1
    artifacts: Path | None = None  # an empty folder: each file that run 0 leaves in it becomes an artifact of the job
    weights: Path | None = None  # the file that `params.weights` names, fetched and checked
    tuned: dict[str, JsonValue] = field(default_factory=dict)  # what run 0 chose by measuring; later runs do the same


class Built(Protocol):
    """One workload, ready to be timed in this process."""

    work: float  # FLOP (throughput workloads) or samples (training) in one execution

    def compile(self) -> None:
        """Trace into a graph (see `Framework.compile`); execute nothing."""

    def execute(self, count: int) -> None:
        """Execute `count` times and drain the device's queue: a scalar is read back before returning."""

    def complete(self, compile_s: float, first_execution_s: float) -> Training | None:
        """Run 0 only, after the first execution: do in full what was asked for (train to the last epoch, evaluate)."""

    def verify(self) -> Verification:
        """Check the output of what was timed. Called once, after the last sample."""


# So many times the work in one execution -> how it is executed; None where it can't be had in that amount.
Grown = Callable[[float], Callable[[int], None] | None]


@runtime_checkable
class Growable(Protocol):
    """A `Built` that compiles its work in any amount: what a compiler removed takes no longer when it grows."""

    def grown(self, times: float) -> Callable[[int], None] | None:
        """As `execute`, with `times` the work in each execution, compiled anew; executes nothing yet.

        Below 1 it is less work; None where no such part of it can be had.
        """


@runtime_checkable
class Countable(Protocol):
    """A `Built` whose operations the framework may count."""

    def counted_flops(self) -> float | None:
        """FLOP of one execution by the framework's own count of what it traced; None where it can't tell."""


@dataclass(frozen=True)
class Case:
    """One of several pieces of work that a run times one after the other: a size, a model in another format.

    `name` ends the names of its metrics ("throughput_512x512x512"). `flops` is per execution and goes with the peak
    for `dtype`; work in several dtypes ("int8+float32") has no peak. The first case's dtype is the run's own. `amounts`
    as in `Verification`, `grown` and `counted_flops` as in `Growable` and `Countable`.
    """

    name: str
    work: float
    flops: float
    dtype: str
    execute: Callable[[int], None]
    amounts: Mapping[str, float] = field(default_factory=dict)
    grown: Grown | None = None
    counted_flops: Callable[[], float | None] | None = None


@runtime_checkable
class HasCases(Protocol):
    """A `Built` whose own execution is the first of `cases`; the further ones are sampled after it, each in full."""

    cases: Sequence[Case]


class Estimator(Protocol):
    """What so many replicas on that device take, trained by that framework."""

    def __call__(
        self, params: Any, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow", /
    ) -> Estimate: ...


class Linter(Protocol):
    """What is to be doubted before anything runs: asked before a job is queued, for the device that is expected to do
    it, and again for the result of the one that did it. Without a device, what the params alone tell."""

    def __call__(self, params: Any, device: Device | None = None, replicas: int = 1, /) -> list[ResultWarning]: ...


@dataclass(frozen=True)
class Workload:
    """One kind of benchmark. `flops(params)` is per execution; its formula is in the workload's docstring."""

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
    datasets: tuple[str, ...] = ()  # modules of dyno.datasets that it can be trained on or judged by
    replicable: bool = False  # whether a model can be copied to several devices, its batch split evenly
    executions: Callable[[Any], str] = lambda params: "execution"  # in words, where a run's details don't say it
    refuses: Callable[[Any, Device], list[FieldError]] = lambda params, device: []  # what it can't do; as `conflicts`
    metrics_of: Callable[[Any], tuple[MetricSpec, ...]] | None = None  # where params decide what is measured
    cases_of: Callable[[Any], tuple[str, ...]] = lambda params: ()  # the names of a run's cases, where it is `Several`

    def metrics_for(self, params: Any) -> tuple[MetricSpec, ...]:
        """The metrics of a job with these params; names as in `metrics`."""
        return self.metrics if self.metrics_of is None else self.metrics_of(params)

    def sampled_for(self, params: Any) -> list[MetricSpec]:
        """Those that are sampled, and each of every case once more under the case's name."""
        own = [spec for spec in self.metrics_for(params) if spec.sampled]
        return [*own, *(replace(spec, name=f"{spec.name}_{case}") for case in self.cases_of(params) for spec in own)]

"""The result of a job: metrics with their intervals, the readings behind them, and the warnings against them.

A figure that isn't known is null, never zero, and the field beside it says why.

`RunSamples` holds the raw samples of a run, `ResultRow` is one metric as a row of a flat table, and `Peer` is the
headline figure of an earlier result of the same work, which new results are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, RootModel

from dyno.models.job import Stored


class Cpu(Stored):
    """Processor time over the sampled window: user_s / wall_s is the number of cores kept busy."""

    wall_s: float
    user_s: float
    system_s: float


class CoreShares(Stored):
    """Who else was on a device's cores from the first warm-up to the last sample, as shares of those cores' time.

    `others`: other processes. `stolen`: other machines of the same hypervisor. `beside`: the hyperthreads beside these
    cores. `waited`: this process's own threads, ready to run and not running; null where the kernel doesn't count that.
    All of it is null in a run whose device has no cores, or whose system doesn't tell.
    """

    others: float
    stolen: float
    beside: float
    waited: float | None = None


class Memory(Stored):
    device_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    reason: str | None = None


class Sensors(Stored):
    """One sampled window of one run. Sensors are read between samples, never inside one; `looks` is how often.

    `reasons`: field -> why it is null. `energy_j` was used in `energy_s` seconds, the part of the window between its
    first and its last look, by what `energy_of` names. `temperature_c` is the highest seen, `clocks_hz` holds medians
    ("sm", "memory"), `throttle_reasons` all that were seen, in `throttled_share` of the looks; `throttle_events` counts
    how often a CPU lowered its clock. `other_processes` hold the device; `utilisation` is the share of time in which
    anything ran on it, by the device's own count (up to 1 s before the last look).
    """

    looks: int = 0
    energy_j: float | None = None
    energy_s: float | None = None
    energy_of: str | None = None
    temperature_c: float | None = None
    clocks_hz: dict[str, float] = {}
    throttle_reasons: list[str] | None = None
    throttled_share: float | None = None
    throttle_events: int | None = None
    other_processes: int | None = None
    utilisation: float | None = None
    reasons: dict[str, str] = {}


class Energy(Stored):
    """`joules` over the sampled windows of all runs together, `window_s` seconds; null with a reason.

    `joules_per_sample` is per training sample, image or whatever the throughput counts; null for pure arithmetic.
    `flop_per_joule` counts executed operations. `covers` says whose energy it is.
    """

    joules: float | None = None
    window_s: float | None = None
    joules_per_sample: float | None = None
    flop_per_joule: float | None = None
    covers: str | None = None
    reason: str | None = None


METHOD_VERSION = "1"


class Verdict(StrEnum):
    UNTRUSTED = "untrusted"
    INDICATIVE = "indicative"
    TRUSTED = "trusted"

    @property
    def rank(self) -> int:
        """0 for the least."""
        return list(Verdict).index(self)


class ResultWarning(Stored):
    """A reason against the number: class A (wrong), B (may not repeat) or C (read with care)."""

    code: str = Field(description="Its section in docs/warnings.md: what it means, how it was found, what to do")
    severity: Literal["A", "B", "C"]
    message: str
    evidence: dict[str, JsonValue] = Field({}, description="The figures that raised it")


class Metric(Stored):
    """A named figure. `value` is the mean of the runs' medians, `low`/`high` Student's t over them.

    One run gives no interval: `low` and `high` are null and `reason` says so.
    """

    name: str
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    better: Literal["higher", "lower"]
    runs: int
    samples: int
    reason: str | None = None
    by_run: list[float] = []  # one figure per run, in their order: `value` is their mean; none where it is taken once


class Phases(Stored):
    """How long each phase took, in seconds, once per process; null where it didn't happen.

    The interpreter's own start is in none of them. `import_s` is null in a forked runner (the zygote imported
    already). `compile_s` is tracing and building the graph; what a framework compiles or chooses only when a graph
    first runs (XLA, kernels) is in `first_execution_s`. `steady_s` is the sampling window.
    """

    import_s: float | None = None
    device_s: float | None = None
    data_s: float | None = None
    build_s: float | None = None
    compile_s: float | None = None
    first_execution_s: float | None = None
    warmup_s: float | None = None
    steady_s: float | None = None


class Peak(Stored):
    """What the used part of the device could do at most in `dtype`, the precision that ran.

    `provenance`: datasheet (`source` names it), measured clock or measured here.
    """

    value: float | None
    unit: str = "FLOP/s"
    dtype: str | None = None
    provenance: str | None = None
    source: str | None = None
    fraction: float | None = None
    reason: str | None = None


class Precision(Stored):
    """Requested against observed; `rel_error` is that of one single product against float64 (relative, Frobenius)."""

    requested: str
    observed: str | None
    rel_error: float | None = None


class RunSummary(Stored):
    """One runner process. Times are per execution, in seconds; nothing is dropped as an outlier.

    `clock_hz` is the device's: of a CPU measured after the samples, of a GPU the median over them.
    """

    process_start: Literal["forked", "spawned"]
    pid: int
    median: float | None
    low: float | None = None
    high: float | None = None
    q1: float | None = None
    q3: float | None = None
    min: float | None = None
    max: float | None = None
    mad: float | None = None
    samples: int
    executions_per_sample: int
    warmup_samples: int
    steady: bool
    stopped_because: str
    phases: Phases
    cpu: Cpu | None = None
    core_shares: CoreShares | None = None
    clock_hz: float | None = None
    sensors: Sensors | None = None
    started_at_s: float
    first_op_at_s: float | None = None


class Epoch(Stored):
    """One epoch of training; `time_s` without validation. The first one includes compiling.

    `loss` and `accuracy` are running means over the epoch, as Keras prints them.
    """

    index: int
    time_s: float
    loss: float
    accuracy: float | None = None
    includes_compile: bool = False
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    validation_s: float | None = None
    learning_rate: float | None = None


class CallbackEvent(Stored):
    """A callback that did something at the end of epoch `epoch` (from 0): early_stopping, checkpoint, reduce_lr."""

    epoch: int
    callback: str
    message: str


class Trial(Stored):
    """One of several full trainings that differ in their seed."""

    seed: int
    epochs: int
    loss: float
    accuracy: float | None = None
    wrong: int | None = None


class DataOrigin(Stored):
    """Where the data came from; sha256 per file. Accuracy on `sample` or `synthetic` data is no reference accuracy."""

    name: str
    kind: Literal["real", "sample", "synthetic"]
    sha256: dict[str, str] = {}
    train_samples: int
    test_samples: int
    note: str | None = None  # what of the set is missing, or was done to it


class Training(Stored):
    """The first run's full training. `accuracy` is on the test set, 0 to 1, with a 95 % Wilson interval.

    With several trials it is the mean over them, with Student's t over the seeds, and `wrong` is told by each trial
    alone; all else is of the first.
    `test` are figures on the test set by name; `baselines` what needs no training reaches there.
    """

    epochs: list[Epoch]
    seed: int
    data: DataOrigin
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    wrong: int | None = None
    trials: list[Trial] = []
    callbacks: list[CallbackEvent] = []
    best_epoch: int | None = None  # whose weights were kept
    test: dict[str, float] = {}
    baselines: dict[str, float] = {}


class Artifact(Stored):
    name: str
    bytes: int
    sha256: str
    url: str


class ArtifactList(Stored):
    data: list[Artifact]


class Reference(Stored):
    """A published figure for the same kind of work, with the doubts about it. History, never a pass mark."""

    title: str
    year: str
    hardware: str
    metric: str
    value: float | None = Field(description="Null where the article has none: `doubt` says why")
    unit: str
    doubt: str | None = None


class Result(Stored):
    """What a finished job answers."""

    job: str
    workload: str
    verdict: Verdict
    warnings: list[ResultWarning]
    unchecked: list[str] = Field(
        default=[],
        description="Checks of class A and B that were not made of this result, because this version doesn't make them "
        "or because there was nothing to check against; while there are any, no verdict is better than indicative.",
    )
    method_version: str = METHOD_VERSION
    metrics: list[Metric]
    phases: Phases
    runs: list[RunSummary]
    peak: Peak
    precision: Precision | None = None
    cpu: Cpu | None = None
    memory: Memory
    energy: Energy
    training: Training | None = None
    details: dict[str, JsonValue] = {}
    device: dict[str, Any]
    environment: dict[str, Any]
    hardware_id: str | None = None
    context_id: str | None = None
    artifacts: list[Artifact] = []
    reproduce: str | None = None
    reference: list[Reference] = []
    arms: list[Result] = Field(
        default=[],
        description="Where a job ran two specs in turns: what the second gave, and the control, which is the first "
        "once more. All else is of the first alone.",
    )


VariantName = Literal["first", "second", "control"]


class RunSamples(Stored):
    """One run, or one case of it. Seconds per execution, in the order they were taken; no outlier is dropped."""

    run: int = Field(description="From 0, as in the result's `runs`")
    case: str | None = Field(None, description="Which of several pieces of work, where the workload has several")
    arm: VariantName | None = Field(None, description="Of a job that ran two specs in turns")
    warmup: list[float] = Field(description="Readings before the steady state; in no figure")
    samples: list[float]
    sample_cpu_s: list[tuple[float, float]] = Field(
        description="Of each whole sample: processor time of this process in user and system mode, seconds"
    )
    executions_per_sample: int


class SampleList(Stored):
    data: list[RunSamples]


_EXAMPLE_ROW: dict[str, JsonValue] = {
    "time": "2026-11-22T04:04:28.587Z",
    "finished_at": "2026-11-22T04:04:40.1Z",
    "job": "job_01M80PT6VM78YWA14Q3XXHDWDJ",
    "workload": "matmul",
    "framework": "tensorflow",
    "device": "cpu:0-0@host",
    "device_model": "AMD EPYC 9474F",
    "hardware_id": "hw_0123456789ab",
    "arm": None,
    "metric": "throughput",
    "unit": "FLOP/s",
    "value": 2.51e11,
    "low": 2.48e11,
    "high": 2.54e11,
    "better": "higher",
    "verdict": "indicative",
    "label.commit": "abc",
    "param.n": 512,
}


class ResultRow(BaseModel):
    """One metric of one job. Beside these it has a `label.<name>` for each label and a `param.<name>` for each param:
    what is no text, number or boolean there is JSON as text."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_EXAMPLE_ROW]})
    __pydantic_extra__: dict[str, JsonValue]

    time: AwareDatetime = Field(description="When the job was submitted: by it rows are ordered and filtered")
    finished_at: AwareDatetime | None
    job: str
    workload: str
    framework: str
    device: str | None = Field(description="Its id, with its host")
    device_model: str | None
    hardware_id: str | None
    arm: VariantName | None = Field(description="Of a job that ran two specs in turns")
    metric: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    better: Literal["higher", "lower"]
    verdict: Verdict


class ResultRows(RootModel[list[ResultRow]]):
    """The table, or a page of it."""


class Peer(Stored):
    """The headline figure of one result: `value` in the unit of the series that it is in."""

    job: str
    value: float
    hardware_id: str | None = None
    context_id: str | None = None


@dataclass(frozen=True)
class Headline:
    """A new result's own figure, and the id of the series that it goes into."""

    series: str
    own: Peer

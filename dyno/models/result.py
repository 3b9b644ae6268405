"""The result of a job: metrics with their intervals, the readings behind them, and warnings.

An unknown figure is null, never zero, and the field beside it says why.

`ResultSummary` has the fields that lists need. `RunSamples` holds the raw samples of a run. New results are compared
with `Peer`, the headline figure of an earlier result of the same work.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, JsonValue

from dyno.models.job import BaselineOutcome, Stored


class Cpu(Stored):
    """Processor time over the sampled window: user_s / wall_s is the number of cores kept busy."""

    wall_s: float
    user_s: float
    system_s: float


class CoreShares(Stored):
    """Other users of a device's cores from the first to the last sample, as shares of those cores' time.

    `others`: other processes. `stolen`: other virtual machines on the host. `beside`: the sibling hyperthreads of these
    cores. `waited`: this process's own threads that were ready but not running; null if the kernel doesn't count it.
    `most_taken`: the share of the most disturbed core that other virtual machines, siblings and interrupts took.
    `most_waited`: the share of the time that the most delayed thread waited; null if `waited` is null. `package_busy`:
    the average number of busy cores among the package's other cores, of which there are `package_cores`.
    A run's `core_shares` is null if its device has no cores or the system doesn't report these times.
    """

    others: float
    stolen: float
    beside: float
    waited: float | None = None
    most_taken: float
    most_waited: float | None = None
    package_busy: float
    package_cores: int


class Memory(Stored):
    device_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    reason: str | None = None


class Sensors(Stored):
    """One sampled window of one run. Dyno reads sensors `looks` times, between samples and never inside one.

    `reasons`: field -> why it is null. `energy_j` is the energy that `energy_of` used in `energy_s` seconds. This
    time begins with the counter's reading at the start of the window, or the nearest reading before, and ends with the
    last reading. `temperature_c` is the highest reading, and `clocks_hz` holds medians ("sm", "memory").
    `throttle_reasons` lists all reasons that were read or counted. `throttled_s` is the time that the device counted
    for each reason between two such readings. `throttled_share` is the largest of these times as a share of the whole
    time; without counters, it is the share of readings that found a reason. `throttle_events` counts how often a CPU
    lowered its clock. `other_processes` counts other processes that use the device. `utilisation` is the share of time
    in which anything ran on the device; the device itself measures it, in up to 1 s before the last reading.
    """

    looks: int = 0
    energy_j: float | None = None
    energy_s: float | None = None
    energy_of: str | None = None
    temperature_c: float | None = None
    clocks_hz: dict[str, float] = {}
    throttle_reasons: list[str] | None = None
    throttled_share: float | None = None
    throttled_s: dict[str, float] | None = None
    throttle_events: int | None = None
    other_processes: int | None = None
    utilisation: float | None = None
    reasons: dict[str, str] = {}


class Energy(Stored):
    """Energy in the sampled windows of all runs, in total `window_s` seconds. If `joules` is null, `reason` says why.

    `joules_per_sample` is per unit of the throughput, such as a training sample or an image; null for pure arithmetic.
    `flop_per_joule` counts executed operations. `covers` names the hardware that used the energy.
    """

    joules: float | None = None
    window_s: float | None = None
    joules_per_sample: float | None = None
    flop_per_joule: float | None = None
    covers: str | None = None
    reason: str | None = None


METHOD_VERSION = "2"


class Verdict(StrEnum):
    UNTRUSTED = "untrusted"
    INDICATIVE = "indicative"
    TRUSTED = "trusted"

    @property
    def rank(self) -> int:
        """The order of trust: 0 for `untrusted`."""
        return list(Verdict).index(self)


class ResultWarning(Stored):
    """A reason to doubt the result: class A (wrong), B (may not repeat) or C (read with care)."""

    code: str = Field(
        description="A section of docs/warnings.md, with the meaning, how Dyno detects the problem, and what to do"
    )
    severity: Literal["A", "B", "C"]
    message: str
    evidence: dict[str, JsonValue] = Field({}, description="The figures that raised the warning")


class BasedOn(Stored):
    """The data behind a prediction: `runs` of this job, and `jobs`, the number of earlier results of its series."""

    runs: int
    jobs: int = 0


class Repeat(Stored):
    """The range of the next result of the same spec on this device, with a probability of 95 %.

    This includes the clock's usual changes from job to job. `clock_hz` is the clock of this result. To adjust a value
    from another clock to this clock, multiply it by (`clock_hz` / other clock)^`elasticity`. Both fields are null if
    the device's clock is unknown, and for figures that aren't adjusted.
    """

    low: float
    high: float
    based_on: BasedOn
    clock_hz: float | None = None
    elasticity: float | None = None
    elasticity_error: float | None = Field(None, description="The standard deviation of `elasticity`")


class PerCycle(Stored):
    """Work per cycle of the device's clock, the mean over the runs; `low` and `high` bound Student's t interval."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None


class Metric(Stored):
    """A named figure. `value` is the mean of the runs' medians; `low` and `high` bound Student's t interval over them.

    That interval describes only the period of these runs; `repeat` predicts the next result. A single run gives no
    interval: `low` and `high` are null, and `reason` says so. But percentiles of the latency then have an interval from
    order statistics.
    """

    name: str
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    repeat: Repeat | None = None
    repeat_reason: str | None = Field(None, description="Why `repeat` is null, if later results can have it")
    per_cycle: PerCycle | None = Field(None, description="Null for times, and if a run's clock is unknown")
    better: Literal["higher", "lower"]
    runs: int
    samples: int
    reason: str | None = None
    by_run: list[float] = []  # one figure per run, in order; `value` is their mean. Empty for figures measured once


class Phases(Stored):
    """The duration of each phase of a process, in seconds; null for a phase that didn't happen. A result has medians.

    `import_s` is null in a forked runner, since its zygote has already imported the framework. `compile_s` is the time
    to trace and build the graph and, with XLA, to compile it. `first_execution_s` includes the framework's choice of
    kernels when a graph first runs. `steady_s` is the sampling window.

    `training_s` is the full training, in the first run only. `cases_s` is the time of all cases except the first: their
    first executions, warm-up and samples. `overhead_s` is the rest: start of the process and its interpreter, locks,
    checks, latencies of calls, the clock, records and exit. All phases together are the time from the request for the
    run's process to the exit of the process.
    """

    import_s: float | None = None
    device_s: float | None = None
    data_s: float | None = None
    build_s: float | None = None
    compile_s: float | None = None
    first_execution_s: float | None = None
    warmup_s: float | None = None
    steady_s: float | None = None
    training_s: float | None = None
    cases_s: float | None = None
    overhead_s: float | None = None

    def with_overhead(self, wall_s: float) -> "Phases":
        """These phases with the rest of `wall_s` as `overhead_s`."""
        known_s = math.fsum(seconds for seconds in self.model_dump(exclude={"overhead_s"}).values() if seconds)
        return self.model_copy(update={"overhead_s": wall_s - known_s})


class Peak(Stored):
    """The peak performance of the used part of the device in `dtype`, the precision that the run used.

    `provenance`: datasheet (`source` names it), measured clock or measured here.
    """

    value: float | None
    unit: str = "FLOP/s"
    dtype: str | None = None
    provenance: str | None = None
    source: str | None = None
    fraction: float | None = None
    reason: str | None = None


class Roof(Stored):
    """The limit of the device that binds the work, by the roofline model (Williams, Waterman & Patterson 2009).

    `case` names the case, if the job has several. `intensity`: FLOP per byte of compulsory memory traffic: weights and
    inputs are read once, outputs written once. `dtype`: the precision of the products; `ridge`: the intensity at which
    both limits take equally long. Both are null without FLOP. `binds`: the limit at which this work takes longer. It is
    `value` in `unit`. `fraction`: the share of this limit that the work reached, for memory above 1 if caches hold the
    data. If `binds` is null, `reason` says why.
    """

    case: str | None = None
    intensity: float | None = None
    dtype: str | None = None
    ridge: float | None = None
    binds: Literal["compute", "memory"] | None = None
    value: float | None = None
    unit: str | None = None
    provenance: str | None = None
    fraction: float | None = None
    reason: str | None = None


class Precision(Stored):
    """Requested and observed precision. `rel_error`: a product's error against float64 (relative, Frobenius norm).

    For a training, it is the larger error of a product and a convolution. `by_default`: the framework used another
    precision by default, such as TF32 for a training in float32 on a GPU.
    """

    requested: str
    observed: str | None
    rel_error: float | None = None
    by_default: bool = False

    @property
    def in_words(self) -> str:
        """ "float32"; "float32 (tf32)" if TF32 was observed instead; or "float32 (not observed)"."""
        if self.observed == self.requested:
            return self.requested
        return f"{self.requested} ({self.observed or 'not observed'})"


class RunSummary(Stored):
    """One runner process. Times are per execution, in seconds. No outliers are dropped.

    `clock_hz` is the device's clock: for a CPU measured after the samples, for a GPU the median over them.
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
    """One epoch of training. `time_s` excludes validation. The first epoch includes compilation.

    `loss` and `accuracy` are running means over the epoch, as Keras prints them. If `validation_s` isn't null, a null
    `validation_loss` was NaN or infinite. `core_shares` cover this epoch (the first epoch from the start of
    compilation), and are null for the same reasons as in a run. `cpu_s` is the process's processor time in the epoch.
    For the first epoch, it lacks the steps that ran earlier and count as part of this epoch. `test_accuracy` is the
    accuracy on the test set after the epoch, if the spec has a `target_accuracy`.
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
    core_shares: CoreShares | None = None
    cpu_s: float | None = None
    test_accuracy: float | None = None


class CallbackEvent(Stored):
    """A callback that acted at the end of epoch `epoch` (from 0): early_stopping, checkpoint, reduce_lr."""

    epoch: int
    callback: str
    message: str


class Trial(Stored):
    """One of several full trainings that differ only in the seed. `loss` is the loss of the last epoch.

    `highest_loss` is the highest of all epochs; null in some results in docs/results. `start_loss`: see `Training`.

    `epochs_to_accuracy` is the number of epochs until the test accuracy first reached the spec's `target_accuracy`, and
    `time_to_accuracy_s` is the time of these epochs, without validation and tests. Both are null if the trial didn't
    reach it.
    """

    seed: int
    epochs: int
    loss: float
    start_loss: float | None = None
    highest_loss: float | None = None
    accuracy: float | None = None
    wrong: int | None = None
    epochs_to_accuracy: int | None = None
    time_to_accuracy_s: float | None = None


class DataOrigin(Stored):
    """The source of the data, with the SHA-256 of each file.

    An accuracy on `sample` or `synthetic` data isn't comparable with published figures.
    """

    name: str
    kind: Literal["real", "sample", "synthetic"]
    sha256: dict[str, str] = {}
    train_samples: int
    test_samples: int
    note: str | None = None  # parts of the data set that are missing or changed


class Training(Stored):
    """The first run's full training. `accuracy` is on the test set, 0 to 1, with a 95 % Wilson interval.

    With several trials, `accuracy` is their mean, with Student's t interval over the seeds, and `wrong` is null except
    in `trials`. All other fields are the first trial's. `test` has figures on the test set by name, and `baselines`
    has the same figures for reference predictors, which need no training.

    With a `target_accuracy`, `trials` has a row even for a single trial.

    `start_loss` is the first batch's loss before the first step. It is null if the first call made several steps, if
    the batch has fewer than 32 samples, and with another job's weights. `sensors` covers compilation to evaluation.
    """

    epochs: list[Epoch]
    start_loss: float | None = None
    seed: int
    data: DataOrigin
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    wrong: int | None = None
    trials: list[Trial] = []
    callbacks: list[CallbackEvent] = []
    best_epoch: int | None = None  # the epoch whose weights were kept
    test: dict[str, float] = {}
    baselines: dict[str, float] = {}
    sensors: Sensors | None = None
    target_accuracy: float | None = None


class Artifact(Stored):
    name: str
    bytes: int
    sha256: str
    url: str


class ArtifactList(Stored):
    data: list[Artifact]


class Reference(Stored):
    """A published figure for the same kind of work, with its caveats. It gives context; results needn't reach it."""

    title: str
    year: str
    hardware: str
    metric: str
    value: float | None = Field(description="Null if the article has no figure. `doubt` says why")
    unit: str
    doubt: str | None = None


class LargerBudget(Stored):
    """The interval that a larger budget would probably give, if runs cost and scatter as in this result."""

    budget_s: float
    rel_half_width: float = Field(description="Half of the headline's interval as a share of its value")


class BudgetUse(Stored):
    """How the budget was spent, in seconds. `once_s`: work of the first run only. Other fields are sums over runs."""

    budget_s: float
    spent_s: float = Field(description="Time of all runs; exceeds the budget if five runs take longer")
    runs: int
    samples: int = Field(description="Number of samples of all runs and cases")
    starting_s: float = Field(description="To start and end all runs: processes, devices, data, builds, compilation")
    warmup_s: float
    sampling_s: float
    once_s: float = Field(description="For a full training, and for the checks and choices of the first run")
    larger: list[LargerBudget] = []


class Measurement(Stored):
    budget: BudgetUse | None = Field(None, description="Null if the spec says how long each run samples")


class Result(Stored):
    """The result of a job that succeeded."""

    job: str
    workload: str
    params: dict[str, JsonValue] = Field(
        default={},
        description="All params, with the values that the job used. The job's spec has the requested values",
    )
    verdict: Verdict
    warnings: list[ResultWarning]
    unchecked: list[str] = Field(
        default=[],
        description="Checks of class A and B that weren't made. If this kind of device allows any of them, the verdict "
        "is at most indicative.",
    )
    method_version: str = METHOD_VERSION
    metrics: list[Metric]
    measurement: Measurement = Measurement()
    phases: Phases
    runs: list[RunSummary]
    peak: Peak
    roofs: list[Roof] = []
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
    baseline: BaselineOutcome | None = Field(None, description="Null if the job's spec names no baseline")
    arms: list["Result"] = Field(
        default=[],
        description="If the job ran two specs in turns: the results of the second spec and of the control, which "
        "repeats the first spec. All other fields are the first spec's.",
    )

    @property
    def headline(self) -> Metric | None:
        """The first metric with a figure for each run, or else the first metric."""
        return next((each for each in self.metrics if each.by_run), next(iter(self.metrics), None))

    def metric(self, name: str) -> Metric | None:
        """The metric of this name."""
        return next((each for each in self.metrics if each.name == name), None)


class RunTemperature(Stored):
    """The highest temperature of a run, the only sensor reading that a summary needs."""

    temperature_c: float | None = None


class RunClock(Stored):
    """The clock and the temperature of a run, the only fields that a summary needs."""

    clock_hz: float | None = None
    sensors: RunTemperature | None = None


class AccuracySummary(Stored):
    """The fields of a `Training` from which its accuracy and the time to an accuracy are computed."""

    data: DataOrigin
    accuracy: float | None = None
    trials: list[Trial] = []
    target_accuracy: float | None = None


class ResultSummary(Stored):
    """The fields of a result that lists, events, sweeps and the history need."""

    verdict: Verdict
    params: dict[str, JsonValue] = {}
    precision: Precision | None = None
    warnings: list[ResultWarning] = []
    method_version: str = METHOD_VERSION
    metrics: list[Metric]
    hardware_id: str | None = None
    context_id: str | None = None
    device: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    runs: list[RunClock] = []
    training: AccuracySummary | None = None
    arms: list["ResultSummary"] = []

    def metric(self, name: str) -> Metric | None:
        """The metric of this name."""
        return next((each for each in self.metrics if each.name == name), None)

    @property
    def temperature_c(self) -> float | None:
        """The highest temperature of all runs; None if the device has no such sensor."""
        found = (run.sensors.temperature_c for run in self.runs if run.sensors)
        return max((each for each in found if each is not None), default=None)


VariantName = Literal["first", "second", "control"]


class PartialMetrics(Stored):
    """The figures of a job after its first `run` runs; see `dyno.models.event.PartialMetricEvent`."""

    run: int
    runs: int
    arm: VariantName | None = None
    metrics: list[Metric]


class RunSamples(Stored):
    """The samples of one run or case: seconds per execution, in the order of measurement. No outliers are dropped."""

    run: int = Field(description="The run's index in the result's `runs`, from 0")
    case: str | None = Field(None, description="The name of the case, if the workload has several")
    arm: VariantName | None = Field(None, description="Which of the job's specs, if they ran in turns; else null")
    warmup: list[float] = Field(description="Readings before the steady state, which no figure uses")
    samples: list[float]
    sample_cpu_s: list[tuple[float, float]] = Field(
        description="Per sample: processor time in user and system mode, in seconds, including ended child processes"
    )
    executions_per_sample: int


class SampleList(Stored):
    data: list[RunSamples]


class Peer(Stored):
    """The headline figure of one result. `value` is in the unit of its series.

    `scatter` is the standard deviation of the logarithms of the runs' figures; null for a single run. `clock_hz` is the
    mean of the runs' clocks; null if it is unknown.
    """

    job: str
    value: float
    hardware_id: str | None = None
    context_id: str | None = None
    runs: int
    scatter: float | None = None
    clock_hz: float | None = None
    failed: bool = Field(
        False,
        description="Whether the result failed its baseline; if so, it isn't used to estimate the scatter of results",
        exclude_if=lambda failed: not failed,
    )


@dataclass(frozen=True)
class Headline:
    """A new result's figure, and the id of its series."""

    series: str
    own: Peer

"""The protocol between supervisor and runner: a request and response frames over pipes, one JSON object a line."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, TypeAdapter

from dyno.models.device import Device, PeakFigure
from dyno.models.job import FailureClass, Stored
from dyno.models.result import Memory, Precision, ResultWarning, RunSummary, Training
from dyno.models.spec import Spec


class RunShare(Stored):
    """One run's share of a job's budget: `samples` of each case, and `time_s` from its start to its last sample.

    If the time is too short, the run takes fewer samples, but at least a minimum (`dyno.bench.measure.stopping_rule`).
    """

    samples: int
    time_s: float


class RunRequest(Stored):
    """One runner process: run `spec` once, as run number `run` (from 0) of its job."""

    job: str
    spec: Spec
    run: int
    runs: int
    device: Device
    lock_paths: list[str] = []  # locked (flock) by the runner itself, one per core or accelerator
    shared_lock_paths: list[str] = []  # locked in shared mode: the cores of an emulated device
    process_start: Literal["forked", "spawned"] = "forked"
    data_dir: str | None = None  # the worker's DYNO_DATA_DIR
    artifact_dir: str | None = None  # for run 0: an empty folder for the job's artifacts
    scratch_dir: str | None = None  # for temporary files; the worker deletes it after the run, however the run ends
    weights_path: str | None = None  # the file that `spec.params.weights` names
    tuned: dict[str, JsonValue] = {}  # choices of run 0 and figures that it measured, for later runs
    share: RunShare | None = None  # None if the spec, not a budget, says how long a run samples


class CaseRecord(Stored):
    """One of several cases of a run. It is measured like the only case of a run (see `dyno.bench.contract.Case`)."""

    name: str
    work: float
    flops: float
    bytes: float | None = None  # compulsory traffic of one execution
    over_link: bool = False
    dtype: str
    amounts: dict[str, float] = {}
    summary: RunSummary
    warmup: list[float]
    samples: list[float]
    sample_cpu_s: list[tuple[float, float]] = []


class CallQuantile(Stored):
    """A percentile of one run's calls, in seconds, with an interval from order statistics."""

    value: float | None
    low: float | None = None
    high: float | None = None
    calls: int
    reason: str | None = None


class RunRecord(Stored):
    """All that one run measured. Sample times are seconds per execution, in the order of measurement.

    `cases` has every case, and its first entry repeats the run's own figures. It is empty if there is only one case.
    """

    summary: RunSummary
    warmup: list[float]
    samples: list[float]
    sample_cpu_s: list[tuple[float, float]] = []  # (user, system) processor seconds of each sample
    work: float  # FLOP or training samples in one execution
    warnings: list[ResultWarning] = []
    unchecked: dict[str, str] = {}  # code -> reason, for checks of class A and B that this run couldn't make
    verified: list[str] = []  # the output checks that this workload made
    precision: Precision | None = None
    training: Training | None = None
    memory: Memory = Memory()
    environment: dict[str, Any] = {}
    details: dict[str, Any] = {}
    amounts: dict[str, float] = {}  # for MetricSpec.amount: the part of `work` in one epoch, one execution, …
    tuned: dict[str, JsonValue] = {}  # for later runs of the job
    flops: float | None = None  # of one execution, if the params alone don't determine it
    bytes: float | None = None  # compulsory traffic of one execution
    params: dict[str, JsonValue] = {}  # the values used for params that the spec left open
    figures: dict[str, float] = {}  # by metric name: figures that aren't sampled, see MetricSpec.once and each_run
    calls: dict[str, CallQuantile] = {}  # by metric name: for MetricSpec.loop
    cases: list[CaseRecord] = []
    peak: dict[str, PeakFigure] = {}  # peaks that were measured again, since a figure exceeded the device's peak


class StartedFrame(Stored):
    """First frame: the process runs. Times are `time.time()`."""

    frame: Literal["started"] = "started"
    pid: int
    at_s: float


class FirstOpFrame(Stored):
    """The device has finished its first operation, and the runner has read back the result."""

    frame: Literal["first_op"] = "first_op"
    at_s: float


class ProgressFrame(Stored):
    frame: Literal["progress"] = "progress"
    phase: str  # device, data, build, compile, first_execution, training, warmup, sampling, verify
    # The worker itself reports `files` and `artifacts` before and after the runs, and `second_look` after a failed run.
    completed: int = 0
    total: int | None = None
    unit: str = "samples"


class DoneFrame(Stored):
    """Last frame of a successful run."""

    frame: Literal["done"] = "done"
    record: RunRecord


class FailedFrame(Stored):
    """Last frame of a failed run, with class and reason as in `dyno.models.job.Failure`."""

    frame: Literal["failed"] = "failed"
    failure_class: FailureClass
    reason: str
    message: str


Frame = Annotated[StartedFrame | FirstOpFrame | ProgressFrame | DoneFrame | FailedFrame, Field(discriminator="frame")]
FRAME: TypeAdapter[StartedFrame | FirstOpFrame | ProgressFrame | DoneFrame | FailedFrame] = TypeAdapter(Frame)

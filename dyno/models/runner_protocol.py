"""The protocol between supervisor and runner: a request in, frames out, one JSON object a line, over pipes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, TypeAdapter

from dyno.devices.device import Device, PeakFigure
from dyno.models.job import FailureClass, Stored
from dyno.models.result import Memory, Precision, ResultWarning, RunSummary, Training
from dyno.models.spec import Spec


class RunRequest(Stored):
    """One runner process: run `spec` once, as run number `run` (from 0) of its job."""

    job: str
    spec: Spec
    run: int
    runs: int
    device: Device
    lock_paths: list[str] = []  # flock'ed by the runner itself, one per core or accelerator
    shared_lock_paths: list[str] = []  # the same, held together with others: the cores of an emulated device
    process_start: Literal["forked", "spawned"] = "forked"
    data_dir: str | None = None  # null: the runner's own DYNO_DATA_DIR
    artifact_dir: str | None = None  # of run 0: an empty folder for what the job leaves behind
    scratch_dir: str | None = None  # for temporary files: it goes with the run, however that ends
    weights_path: str | None = None  # the file that `spec.params.weights` names
    tuned: dict[str, JsonValue] = {}  # what run 0 chose by measuring


class CaseRecord(Stored):
    """One of several cases of a run, measured as if it were alone (see `dyno.workloads.contract.Case`)."""

    name: str
    work: float
    flops: float
    dtype: str
    amounts: dict[str, float] = {}
    summary: RunSummary
    warmup: list[float]
    samples: list[float]
    sample_cpu_s: list[tuple[float, float]] = []


class RunRecord(Stored):
    """All that one run measured. Sample times are seconds per execution, in the order they were taken.

    `cases` are all of them, the first being the run's own figures again; empty where there is but one.
    """

    summary: RunSummary
    warmup: list[float]
    samples: list[float]
    sample_cpu_s: list[tuple[float, float]] = []  # (user, system) processor seconds of each sample, all threads
    work: float  # FLOP or training samples in one execution
    warnings: list[ResultWarning] = []
    unchecked: dict[str, str] = {}  # codes of A and B that this run was to check and couldn't: why
    verified: list[str] = []  # which of the checks of an output this workload made
    precision: Precision | None = None
    training: Training | None = None
    memory: Memory = Memory()
    environment: dict[str, Any] = {}
    details: dict[str, Any] = {}
    amounts: dict[str, float] = {}  # for MetricSpec.amount: how much of `work` one epoch, one execution, … is
    tuned: dict[str, JsonValue] = {}  # for the runs after it
    flops: float | None = None  # of one execution, where it isn't what the params alone tell
    figures: dict[str, float] = {}  # by metric name, what isn't sampled: for MetricSpec.once and each_run
    cases: list[CaseRecord] = []
    peak: dict[str, PeakFigure] = {}  # measured anew, as a figure was above the device's own


class StartedFrame(Stored):
    """First frame: the process lives. Times are `time.time()`."""

    frame: Literal["started"] = "started"
    pid: int
    at_s: float


class FirstOpFrame(Stored):
    """The device has finished its first operation and the result was read back."""

    frame: Literal["first_op"] = "first_op"
    at_s: float


class ProgressFrame(Stored):
    frame: Literal["progress"] = "progress"
    phase: str  # device, data, build, compile, first_execution, training, warmup, sampling, verify
    # before and after the runs, from the worker itself: files, artifacts; second_look after one that failed
    completed: int = 0
    total: int | None = None
    unit: str = "samples"


class DoneFrame(Stored):
    """Last frame of a run that worked."""

    frame: Literal["done"] = "done"
    record: RunRecord


class FailedFrame(Stored):
    """Last frame of a run that didn't: class and reason as in `dyno.models.job.Failure`."""

    frame: Literal["failed"] = "failed"
    failure_class: FailureClass
    reason: str
    message: str


Frame = Annotated[StartedFrame | FirstOpFrame | ProgressFrame | DoneFrame | FailedFrame, Field(discriminator="frame")]
FRAME: TypeAdapter[StartedFrame | FirstOpFrame | ProgressFrame | DoneFrame | FailedFrame] = TypeAdapter(Frame)

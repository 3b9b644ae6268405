"""Sweeps: one request that becomes many jobs. Requests, stored records and responses.

A point is one combination of axis values. Each round has one job of every point. `base` names some axis values: the
base of a point has these values, and the point's own values on all other axes.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, JsonValue, StringConstraints, model_validator

from dyno.models.comparison import Ratio
from dyno.models.job import SCHEMA, Status, Stored, new_ulid
from dyno.models.result import Repeat, Verdict
from dyno.models.spec import MetricName, Model

PARAM = "params."
BATCH_SIZE = f"{PARAM}batch_size"
PRECISION_PARAMS = ("dtype", "precision")  # the params that an axis or option `precision` may stand for
AUTO = "auto"  # the only value of the axis of batch sizes, if Dyno searches for them
MAX_ROUNDS = 20
EMULATED = "EMULATED_DEVICE"  # the warning of every result of an emulated device
LABEL = "sweep"  # the label of every job of a sweep: its value is the sweep's id
Axis = Annotated[
    str, StringConstraints(pattern=r"^(framework|device|precision|replicas|params\.[A-Za-z0-9_]+)$", max_length=80)
]
Values = dict[Axis, JsonValue]
PresetName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$", max_length=64)]


class SweepRequest(Model):
    """A spec, and what to vary: either a `grid` or a list of `points`. With a preset, both may be left out.

    All other fields add to the preset or replace parts of it: axes of `grid`, fields of `spec`, and single names in the
    spec's `params`, `measure` and `labels`. The axes are `framework`, `device`, `replicas`, `precision` (the
    workload's param for it) and `params.<name>`. The values `["auto"]` of `params.batch_size` stand for 32 and its
    doublings, up to the size of the data and to the estimated limit of the devices' memory.
    """

    spec: dict[str, JsonValue] = Field({}, description="A spec as for POST /v1/jobs. Axes replace the fields they name")
    grid: Annotated[dict[Axis, Annotated[list[JsonValue], Field(min_length=1)]], Field(min_length=1)] | None = Field(
        None, description="The values of each axis. Every combination is a point"
    )
    points: Annotated[list[Annotated[Values, Field(min_length=1)]], Field(min_length=1)] | None = Field(
        None, description="The points, if they aren't a grid"
    )
    base: Annotated[Values, Field(min_length=1)] | None = Field(
        None, description="Axis values of the points that other points are compared with; null for no comparison"
    )
    metric: MetricName | None = Field(
        None, description="The metric to compare and to draw. Null selects the workload's first metric"
    )
    rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] = Field(
        1, description="Number of jobs of each point. Each round has one job of every point, so drift affects all alike"
    )
    stop_hopeless: bool = Field(
        False,
        description="Whether to cancel further rounds of points that are less than half as good as the best point. The "
        "better end of the point's interval is compared with the worse end of the best point's interval",
    )
    preset: PresetName | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.grid is not None and self.points is not None:
            raise ValueError("a sweep has either a grid or points; leave one of them out")
        if self.grid is None and self.points is None and self.preset is None:
            raise ValueError('say what to vary: a "grid", "points" or a "preset"')
        return self


class Preset(SweepRequest):
    """A sweep with a name. `article`: where its table or graph was first published, if it was."""

    preset: None = None
    description: str
    article: str | None = None


@cache
def presets() -> Mapping[str, Preset]:
    """The sweeps of `sweep_presets.json` by name: the tables and graphs of the reference articles, and further ones.

    Sweeps with a TPU run on JAX, the only framework that Dyno runs on TPUs, so that their points differ only in the
    device.
    """
    documents = json.loads(Path(__file__).with_name("sweep_presets.json").read_text())
    return {name: Preset.model_validate(each) for name, each in documents.items()}


class StoredPoint(Stored):
    """`jobs`: one job of each round. `base`: the index of the point that this point is compared with."""

    values: Values
    jobs: list[str]
    base: int | None = None


class BatchLimit(Stored):
    """Why a search for batch sizes has no larger sizes, at one combination of the other axes' values.

    `refused` is the smallest batch size that was refused, and `detail` says why. Both are null if none was refused.
    """

    values: Values
    refused: int | None = None
    detail: str | None = None


class SweepRecord(Stored):
    """The stored part of a sweep. The records of its jobs have the rest."""

    workload: str
    metric: MetricName
    preset: str | None = None
    base: Values | None = None
    rounds: int = 1
    stop_hopeless: bool = False
    batch_limits: list[BatchLimit] = []  # of a search for batch sizes
    axes: dict[Axis, list[JsonValue]]
    points: list[StoredPoint]
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA


class Stop(Stored):
    """Why no further job of a point runs.

    `hopeless`: even `bound`, the better end of its interval, is less than half as good as `best_bound`, the worse end
    of the interval of point `by`. `out_of_memory`: point `by`, this one or one with a smaller batch, ran out of memory.
    """

    reason: Literal["hopeless", "out_of_memory"]
    by: int = Field(description="The index in `points` of the point that caused the stop")
    bound: float | None = None
    best_bound: float | None = None


class PointMetric(Stored):
    """A metric of a point. `low` and `high` bound Student's t interval over the runs of its job.

    With rounds, `value` is the mean over the jobs, and the interval is over the jobs' values. `repeat` bounds the next
    result, as predicted by the last job. `test_accuracy`, and the time and the epochs to an accuracy, are the last
    job's figures. Their interval is over the seeds of its `trials`, because the jobs of all rounds have the same seeds.
    """

    name: str
    unit: str
    better: Literal["higher", "lower"]
    value: float | None
    low: float | None
    high: float | None
    repeat: Repeat | None
    reason: str | None = Field(None, description="Why `value` or its bounds are null")


class Scaling(Stored):
    """Scaling efficiency: the ratio of two points divided by the ratio of their numbers of replicas; ideally 1.

    `strong`: both batches have the same total size. `weak`: both have the same size per replica.
    """

    kind: Literal["strong", "weak"]
    efficiency: float
    low: float | None = Field(description="Bounds of the 95 % interval; null if the ratio has none")
    high: float | None


class SweepPoint(Stored):
    """One point and its jobs. `metrics`, `verdict` and `warnings` are null until a job has succeeded."""

    values: Values
    job: str = Field(description="The job of the first round")
    jobs: list[str] = Field(description="The jobs of all rounds, in order")
    status: Status | Literal["gone"] = Field(
        description="The status of the job; `gone` if it was deleted or has expired. With rounds: `running` from "
        "the first start to the last end, then `succeeded` if all jobs succeeded, else the status of the first job "
        "that didn't. Canceled jobs of a stopped point are ignored"
    )
    status_reason: str | None = None
    metrics: list[PointMetric] | None = None
    verdict: Verdict | None = Field(None, description="The lowest verdict of the results")
    warnings: list[str] | None = Field(None, description="Codes of the results' warnings")
    device: str | None = Field(None, description="The device that ran the last job, with its host")
    stopped: Stop | None = None
    base: int | None = Field(None, description="The index in `points` of the point that `ratio` compares with")
    ratio: Ratio | None = Field(
        None, description="How many times as good as `base` in the sweep's metric; null until both have a result"
    )
    same_work: bool | None = Field(
        None, description="Whether this point and its base do the same work; see `same_work` of a comparison"
    )
    scaling: Scaling | None = Field(
        None, description="How well the work scales from the replicas of `base`; null if they differ in more"
    )

    @property
    def is_emulated(self) -> bool:
        return EMULATED in (self.warnings or ())

    def metric(self, name: str | None) -> PointMetric | None:
        return next((each for each in self.metrics or () if each.name == name), None)


class SweepUrls(Stored):
    """Relative links."""

    self: str
    cancel: str
    table: str
    plot: str
    jobs: str


SweepStatus = Literal["running", "succeeded", "partial", "canceled"]


class SweepSummary(Stored):
    """A sweep in a list.

    `running`: a job waits or runs. `succeeded`: every point has a result or was stopped. `canceled`: else, if the sweep
    or each job was canceled. `partial`: all jobs are done, and some have failed, were canceled or are gone.
    """

    id: str
    status: SweepStatus
    created_at: AwareDatetime
    cancel_requested_at: AwareDatetime | None = None
    workload: str
    preset: str | None = None
    axes: dict[Axis, list[JsonValue]] = Field(description="The values of each axis, in the order of the points")
    base: Values | None = None
    rounds: int
    counts: dict[str, int] = Field(description="The number of jobs by status; `total` is the number of all jobs")
    urls: SweepUrls
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA


class BatchSizes(Stored):
    """The results so far of a search for batch sizes, at one combination of the `values` of the other axes."""

    values: Values
    largest_that_fits: int | None = Field(description="The largest batch size with a result")
    fastest: int | None = Field(
        description="The batch size with the best value of the sweep's metric, without untrusted results"
    )
    limit: str | None = Field(description="Why there are no larger batch sizes")


class Sweep(SweepSummary):
    """One request that became many jobs, with the results so far.

    The ratios of a sweep with one round compare results that were measured one after the other, in a random order. They
    include changes of the machines in between, which the intervals don't cover. With rounds, a ratio is the mean of the
    rounds' ratios, and its interval is over the rounds. No interval is corrected for multiple comparisons: `notes` says
    how many of them are expected to miss the true value.
    """

    metric: MetricName | None = Field(
        description="The metric that `ratio` compares; null while it depends on a result and no point has a result"
    )
    eta_s: float | None = Field(None, description="Estimated seconds until all jobs are done; null if unknown")
    batch_sizes: list[BatchSizes] = Field([], description='The outcome of a search for batch sizes ("auto")')
    notes: list[str] = Field([], description="Caveats about the ratios, as sentences")
    points: list[SweepPoint]

    def is_base(self, point: SweepPoint) -> bool:
        """Whether another point is compared with this one."""
        return any(each.base is not None and self.points[each.base] is point for each in self.points)


def new_sweep_id() -> str:
    """`swp_` and a ULID."""
    return f"swp_{new_ulid()}"


def sweep_urls(sweep_id: str) -> SweepUrls:
    root = f"/v1/sweeps/{sweep_id}"
    jobs = f"/v1/jobs?label={LABEL}={sweep_id}"
    return SweepUrls(self=root, cancel=f"{root}/cancel", table=f"{root}/table", plot=f"{root}/plot", jobs=jobs)


def sweep_status(job_statuses: Sequence[str], is_canceled: bool) -> SweepStatus:
    """The status of a sweep whose jobs have these statuses; see `SweepSummary`."""
    found = set(job_statuses)
    if found & {Status.QUEUED, Status.RUNNING}:
        return "running"
    if found == {Status.SUCCEEDED}:
        return "succeeded"
    return "canceled" if is_canceled or found == {Status.CANCELED} else "partial"


def point_status(jobs: Sequence[str]) -> str:
    """The status of a point whose jobs have these statuses; see `SweepPoint`."""
    live = [status for status in jobs if status in (Status.QUEUED, Status.RUNNING)]
    if live:
        return Status.QUEUED if len(live) == len(jobs) and set(live) == {Status.QUEUED} else Status.RUNNING
    return next((status for status in jobs if status != Status.SUCCEEDED), Status.SUCCEEDED)


def batch_size(values: Mapping[str, JsonValue]) -> int:
    """The batch size of a point in a search for batch sizes."""
    found = values[BATCH_SIZE]
    assert isinstance(found, int), "validated as a param"
    return found


def in_words(values: Mapping[str, JsonValue]) -> str:
    """Axis values as text, such as `batch_size 256, device cpu:0-0`."""
    return ", ".join(f"{axis.removeprefix(PARAM)} {value_text(value)}" for axis, value in values.items())


def value_text(value: JsonValue) -> str:
    """A value of an axis as text: a device as its shorthand, text unchanged, and other values as JSON."""
    if isinstance(value, dict):
        given = [str(each) for each in value.values() if each is not None]
        return " ".join(given) or "any"
    return value if isinstance(value, str) else json.dumps(value)

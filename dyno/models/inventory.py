"""The inventory of a service: workloads, devices and workers."""

from typing import Any, Literal

from pydantic import AwareDatetime, Field

from dyno.models.device import Device
from dyno.models.job import Holder, Stored
from dyno.models.result import Reference


class WorkloadMetric(Stored):
    """A metric that every result of the workload has."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    description: str
    once: bool = Field(description="Whether only the first run measures it, so that it has no interval")


class WorkloadEntry(Stored):
    """One kind of benchmark."""

    name: str
    description: str
    frameworks: list[str] = Field(description="Frameworks that can run the workload, installed or not")
    trains: bool = Field(description="Whether it trains a model, so that its results have `training`")
    replicable: bool = Field(description="Whether `replicas` above 1 copies the model to several devices")
    datasets: list[str] = Field(description="Data sets that it can use. Empty if it needs no data set")
    params: dict[str, Any] = Field(description="JSON Schema of `params`, with defaults")
    metrics: list[WorkloadMetric]
    references: list[Reference] = Field(description="Published figures and their caveats")


class WorkloadList(Stored):
    data: list[WorkloadEntry]


class WarningEntry(Stored):
    """What a warning code means, and what to do. `at_submit`: it is about a spec and in the response to the submit."""

    code: str
    severity: Literal["A", "B", "C"] = Field(
        description="A: the number is wrong. B: it may not repeat. C: read it with care"
    )
    means: str
    advice: str
    at_submit: bool


class WarningList(Stored):
    data: list[WarningEntry]


WorkerState = Literal["starting", "idle", "busy", "draining"]


class WorkerRecord(Stored):
    """One worker process. `device` is the full id; `last_heartbeat` is the time of the last report by Redis' clock.

    `held_by`: the other process, or the hanging runner, that uses the device while jobs wait for it. The worker is then
    `busy` without a job.
    """

    id: str
    host: str
    pid: int
    device: str
    state: WorkerState
    job: str | None = None
    held_by: Holder | None = None
    outbox: int = Field(0, description="Results on the host's disk that Redis hasn't taken yet, or that are damaged")
    version: str
    started_at: AwareDatetime
    last_heartbeat: AwareDatetime | None = None


class DeviceStatus(Device):
    """A device and the state of its worker. `queue_length` counts all jobs in its queues, even those that don't fit.

    `cordoned`: the device finishes its current job and takes no new ones. `held_by`: as in the worker's record.
    """

    state: WorkerState
    held_by: Holder | None = None
    cordoned: bool = False
    cordon_reason: str | None = Field(
        None,
        description="Why Dyno itself has cordoned the device: a runner hangs and still uses the device. The cordon "
        "ends when that process ends. Null for an operator's cordon",
    )
    queue_length: int
    worker: str
    last_heartbeat: AwareDatetime


class DeviceList(Stored):
    """`cordoned_away` lists cordoned devices without a live worker, with their hosts. A cordon doesn't expire."""

    data: list[DeviceStatus]
    cordoned_away: list[str]


class AwayDevice(Stored):
    """A cordoned device without a live worker. Dyno knows only its id and host."""

    id: str
    host: str
    state: Literal["away"] = "away"
    cordoned: bool = True

    @property
    def full_id(self) -> str:
        """The device's id with its host, as in `Device.full_id`."""
        return f"{self.id}@{self.host}"


class WorkerList(Stored):
    data: list[WorkerRecord]


class Cordon(Stored):
    """Whether `device` (with its host) is cordoned. A cordoned device finishes its job and takes no new ones."""

    device: str
    cordoned: bool

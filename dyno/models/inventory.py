"""What a service has to run, and to run it on: workloads, devices and workers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, Field

from dyno.devices.device import Device
from dyno.models.job import Holder, Stored
from dyno.models.result import Reference


class WorkloadMetric(Stored):
    """A metric that every result of the workload has."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    description: str
    once: bool = Field(description="A figure of the first run alone, without an interval")


class WorkloadEntry(Stored):
    """One kind of benchmark."""

    name: str
    description: str
    frameworks: list[str] = Field(description="Those that can execute it, wherever they are installed")
    trains: bool = Field(description="Whether a model learns: results then have `training`")
    replicable: bool = Field(description="Whether `replicas` above 1 copies a model to several devices")
    datasets: list[str] = Field(description="Data sets that it can be run on; empty: none is needed")
    params: dict[str, Any] = Field(description="JSON Schema of `params`, with defaults")
    metrics: list[WorkloadMetric]
    references: list[Reference] = Field(description="Published figures, with the doubts about them")


class WorkloadList(Stored):
    data: list[WorkloadEntry]


WorkerState = Literal["starting", "idle", "busy", "draining"]


class WorkerRecord(Stored):
    """One worker process. `device` is the full id; `last_heartbeat` is set by Redis' clock when published.

    `held_by`: jobs wait for the device, and another process uses it; the worker is `busy` without a job meanwhile.
    """

    id: str
    host: str
    pid: int
    device: str
    state: WorkerState
    job: str | None = None
    held_by: Holder | None = None
    version: str
    started_at: AwareDatetime
    last_heartbeat: AwareDatetime | None = None


class DeviceStatus(Device):
    """A device with what its worker does. `queue_length` counts the jobs in its queues, those too that don't fit it.

    `cordoned`: it finishes what it runs and takes nothing more. `held_by`: as of its worker.
    """

    state: WorkerState
    held_by: Holder | None = None
    cordoned: bool = False
    queue_length: int
    worker: str
    last_heartbeat: AwareDatetime


class DeviceList(Stored):
    """`cordoned_away`: the cordoned devices that no live worker offers, with their hosts; a cordon doesn't expire."""

    data: list[DeviceStatus]
    cordoned_away: list[str]


class AwayDevice(Stored):
    """A cordoned device that no live worker offers: all that is known of it."""

    id: str
    host: str
    state: Literal["away"] = "away"
    cordoned: bool = True

    @property
    def full_id(self) -> str:
        """As that of a device."""
        return f"{self.id}@{self.host}"


class WorkerList(Stored):
    data: list[WorkerRecord]


class Cordon(Stored):
    """`device` with its host. A cordoned one finishes what it runs and takes nothing more."""

    device: str
    cordoned: bool

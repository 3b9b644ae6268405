"""The workloads: what can be asked for."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from dyno.errors import UnknownWorkload
from dyno.result import Reference
from dyno.workloads._training_params import TrainingParams
from dyno.workloads.contract import Workload
from service.dependencies import StateDep
from service.problems import documented

router = APIRouter(prefix="/v1/workloads", tags=["workloads"])


class WorkloadMetric(BaseModel):
    """A metric that every result of the workload has."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    description: str
    once: bool = Field(description="A figure of the first run alone, without an interval")


class WorkloadEntry(BaseModel):
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


class WorkloadList(BaseModel):
    data: list[WorkloadEntry]


@router.get("", responses=documented())
async def browse(state: StateDep) -> WorkloadList:
    """All workloads, by name."""
    return WorkloadList(data=[_entry(workload) for workload in state.workloads.values()])


@router.get("/{name}", responses=documented("workload-not-found"))
async def show(name: str, state: StateDep) -> WorkloadEntry:
    """One workload."""
    try:
        return _entry(state.workloads[name])
    except KeyError:
        known = ", ".join(state.workloads)
        raise UnknownWorkload(f'no workload "{name[:64]}"; there is: {known}') from None


def _entry(workload: Workload) -> WorkloadEntry:
    return WorkloadEntry(
        name=workload.name,
        description=workload.description,
        frameworks=list(workload.frameworks),
        trains=issubclass(workload.params, TrainingParams),
        replicable=workload.replicable,
        datasets=list(workload.datasets),
        params=workload.params.model_json_schema(),
        metrics=[
            WorkloadMetric(name=m.name, unit=m.unit, better=m.better, description=m.description, once=m.once)
            for m in workload.metrics
        ],
        references=list(workload.references),
    )

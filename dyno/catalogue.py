"""What there is to run, as it is told to whoever asks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dyno.job import Stored
from dyno.result import Reference


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

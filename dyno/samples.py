"""The readings that a result's runs were made of, as they are stored and answered."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dyno.job import Stored

ArmName = Literal["first", "second", "control"]


class RunSamples(Stored):
    """One run, or one case of it. Seconds per execution, in the order they were taken; no outlier is dropped."""

    run: int = Field(description="From 0, as in the result's `runs`")
    case: str | None = Field(None, description="Which of several pieces of work, where the workload has several")
    arm: ArmName | None = Field(None, description="Of a job that ran two specs in turns")
    warmup: list[float] = Field(description="Readings before the steady state; in no figure")
    samples: list[float]
    sample_cpu_s: list[tuple[float, float]] = Field(
        description="Of each whole sample: processor time of this process in user and system mode, seconds"
    )
    executions_per_sample: int


class SampleList(Stored):
    data: list[RunSamples]

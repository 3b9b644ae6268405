"""Figures of many jobs as rows of one flat table."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, RootModel

from dyno.result import Verdict
from dyno.samples import ArmName

_EXAMPLE: dict[str, JsonValue] = {
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

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_EXAMPLE]})
    __pydantic_extra__: dict[str, JsonValue]

    time: AwareDatetime = Field(description="When the job was submitted: by it rows are ordered and filtered")
    finished_at: AwareDatetime | None
    job: str
    workload: str
    framework: str
    device: str | None = Field(description="Its id, with its host")
    device_model: str | None
    hardware_id: str | None
    arm: ArmName | None = Field(description="Of a job that ran two specs in turns")
    metric: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    better: Literal["higher", "lower"]
    verdict: Verdict


class ResultRows(RootModel[list[ResultRow]]):
    """The table, or a page of it."""

"""Exported results: as rows of a flat table, and as lines that another Dyno can import."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, RootModel

from dyno.models.job import Job, Stored
from dyno.models.result import Result, RunSamples, VariantName, Verdict

MEDIA_TYPE = "application/x-ndjson"
MAX_LINES = 100  # in one request: Redis writes their results in one step, which takes 10 ms


# Limits of an imported result, above the numbers of any workload.
MAX_METRICS = 500
MAX_PARAMS = 64
MAX_ROWS_CHARACTERS = 2**20  # length of all rows of one result in the table; each row includes the names of the columns


class ExportedResult(Stored, serialize_by_alias=True, validate_by_name=True):
    """A line of JSON: a job that succeeded, with its result and samples. `from` names the Dyno that exported it."""

    source: Annotated[str, Field(alias="from", max_length=200)] = "unknown"
    job: Job
    result: Result
    samples: list[RunSamples] | None = None


class ImportedLine(Stored):
    """The outcome of one line. `new` is false if this Dyno already had the job."""

    line: int
    original: str = Field(description="The job's id in the Dyno that ran it")
    job: str = Field(description="The job's id here")
    new: bool


class ImportReport(Stored):
    """The outcome of one request, whose lines are imported together or not at all."""

    imported: int = Field(description="The number of new jobs")
    already: int = Field(description="The number of lines whose job this Dyno already had")
    lines: list[ImportedLine]


_EXAMPLE_ROW: dict[str, JsonValue] = {
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
    "repeat_low": 2.42e11,
    "repeat_high": 2.6e11,
    "better": "higher",
    "precision": "float32",
    "verdict": "indicative",
    "warnings": "NOISY_NEIGHBOUR INPUT_BOUND",
    "imported": False,
    "label.commit": "abc",
    "param.n": 512,
}


class ResultRow(BaseModel):
    """One metric of one job. A row also has a `label.<name>` for each label and a `param.<name>` for each param. Arrays
    and objects are written as JSON text."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_EXAMPLE_ROW]})
    __pydantic_extra__: dict[str, JsonValue]

    time: AwareDatetime = Field(description="When the job was submitted. Rows are ordered and filtered by this time")
    finished_at: AwareDatetime | None
    job: str
    workload: str
    framework: str
    device: str | None = Field(description="The device's id, with its host")
    device_model: str | None
    hardware_id: str | None
    arm: VariantName | None = Field(description="Which of the job's specs, if they ran in turns; else null")
    metric: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    repeat_low: float | None = Field(
        None, description="The next result of the same spec will lie between `repeat_low` and `repeat_high` (95 %)"
    )
    repeat_high: float | None = None
    better: Literal["higher", "lower"]
    precision: str | None = Field(
        None, description='The requested precision, with the observed one in brackets if it differs: "float32 (tf32)"'
    )
    verdict: Verdict
    warnings: str = Field("", description="The codes of the result's warnings, gravest first, separated by a space")
    imported: bool = Field(False, description="Whether the job ran in another Dyno")


class ResultRows(RootModel[list[ResultRow]]):
    """The table of results, or a page of it."""

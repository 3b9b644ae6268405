"""Results on their way from one Dyno to another: an exported line, and what became of imported ones."""

from typing import Annotated

from pydantic import Field

from dyno.models.job import Job, Stored
from dyno.models.result import Result, RunSamples

MEDIA_TYPE = "application/x-ndjson"
MAX_LINES = 100  # of one request: Redis writes them in one step, which takes 10 ms


# Of an imported result: more than any workload has.
MAX_METRICS = 500
MAX_PARAMS = 64
MAX_ROWS_CHARACTERS = 2**20  # of its rows in the table of results, with the names of the columns in each


class ExportedResult(Stored, serialize_by_alias=True, validate_by_name=True):
    """A line of JSON: a job that succeeded, with its result and samples. `from` names the Dyno that exported it."""

    source: Annotated[str, Field(alias="from", max_length=200)] = "unknown"
    job: Job
    result: Result
    samples: list[RunSamples] | None = None


class ImportedLine(Stored):
    """What became of a line. `new` is false if the job was here before."""

    line: int
    original: str = Field(description="The job's id in the Dyno that ran it")
    job: str = Field(description="Its id here")
    new: bool


class ImportReport(Stored):
    """The outcome of one request, whose lines are imported together or not at all."""

    imported: int = Field(description="The number of new jobs")
    already: int = Field(description="The number of lines whose job was here before")
    lines: list[ImportedLine]

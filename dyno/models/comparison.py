"""Comparisons: the requests for one, and its answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, JsonValue, StringConstraints, field_validator

from dyno.models.job import SCHEMA, Failure, Progress, Stored, new_ulid
from dyno.models.result import ResultWarning, Verdict
from dyno.models.spec import CONFIDENCE, MARGIN, Confidence, Margin, MetricName, Model, Pairs

PAIRS = 10
POWER = 0.8
MAX_RESULTS = 20

JobId = Annotated[str, StringConstraints(pattern=r"^job_[0-9A-HJKMNP-TV-Z]{26}$")]


class Comparative(StrEnum):
    """What is said of a result beside the first. FASTER means better, whichever direction of the metric that is."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    INCONCLUSIVE = "INCONCLUSIVE"


class CompareHow(Model):
    """What any comparison may be asked for besides."""

    metric: MetricName | None = Field(
        None, description="A metric that all of them have; null: the first one of the result, the workload's headline"
    )
    margin: Margin = Field(MARGIN, description="Ratios from 1 / (1 + margin) to 1 + margin count as the same")
    confidence: Confidence = Field(CONFIDENCE, description="Of every interval")


class CompareResults(CompareHow):
    """Two or more results of the same work, the first being what the others are compared with."""

    jobs: Annotated[list[JobId], Field(min_length=2, max_length=MAX_RESULTS)] = Field(
        description="Jobs that succeeded; each is compared with the first", json_schema_extra={"uniqueItems": True}
    )

    @field_validator("jobs")
    @classmethod
    def _each_once(cls, jobs: list[str]) -> list[str]:
        if len(set(jobs)) < len(jobs):
            raise ValueError("a job is named twice; its result can't be compared with itself")
        return jobs


class CompareSpecs(CompareHow):
    """Two specs to run in turns on one device, as one job. That job's device, timeout and so on are the first one's."""

    specs: Annotated[list[dict[str, JsonValue]], Field(min_length=2, max_length=2)] = Field(
        description="As for POST /v1/jobs; the second may leave out what has to be the same for both"
    )
    pairs: Pairs = Field(PAIRS, description="Runs of each, in fresh processes; even, so that each goes first as often")
    control: bool = Field(True, description="Run the first spec a second time in every round: the noise, as a ratio")


class Ratio(Stored):
    """How many times as good as the first: value / first where higher is better, first / value where lower is better.

    `low` and `high` are null, with a `reason`, where the data give no interval. `smallest_effect` is the smallest
    true difference, as a share of either side, that these runs would have told from none with a probability of 80 %:
    0.03 means 1.03 times as good, or 1.03 times as bad.
    """

    verdict: Comparative
    value: float | None
    low: float | None = None
    high: float | None = None
    degrees_of_freedom: float | None = None
    smallest_effect: float | None = None
    reason: str | None = None


class Compared(Stored):
    """One result as it stands in a comparison; `ratio` is null for the first. `low` and `high`: Student's t."""

    job: str
    arm: Literal["first", "second"] | None = Field(None, description="Of a job that ran two specs in turns")
    value: float | None
    low: float | None = None
    high: float | None = None
    runs: int
    ratio: Ratio | None = None
    verdict: Verdict
    warnings: list[str] = Field(description="Codes; the result says more")
    framework: str
    device: str
    device_model: str | None = None
    hardware_id: str | None = None
    context_id: str | None = None
    peak_fraction: float | None = None
    finished_at: AwareDatetime | None = None


class Difference(Stored):
    """Something that isn't the same in all results; `values` in their order, null where a result says nothing of it."""

    field: str = Field(description='As a JSON pointer: "/framework", "/environment/packages/jax"')
    values: list[JsonValue]


class ComparisonUrls(Stored):
    """Relative links."""

    self: str
    bars: str


class Comparison(Stored):
    """Two or more results of the same work beside each other. Each ratio stands by itself: none allows for the others.

    `kind` tells how the data came about: `results` are of separate jobs, so what changed on the machines between
    them is in the ratios too; the runs of `interleaved` ones took turns, and each ratio is that of neighbouring runs.
    """

    id: str
    kind: Literal["results", "interleaved"] = "results"
    status: Literal["done"] = "done"
    job: str | None = Field(None, description="That ran both, where they were interleaved")
    created_at: AwareDatetime
    workload: str
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    confidence: float
    margin: float
    power: float = Field(POWER, description="Of `smallest_effect`")
    verdict: Verdict = Field(description="The least of the results' own: no comparison is better than what it compares")
    results: list[Compared]
    control: Ratio | None = Field(None, description="The first spec against itself, run in the same turns: the noise")
    differences: list[Difference] = Field(description="What else isn't the same, and may be why")
    warnings: list[ResultWarning]
    notes: list[str] = Field(description="What to know before believing it, in sentences")
    urls: ComparisonUrls
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA


class UnfinishedComparison(Stored):
    """Two specs whose job still waits or runs, or has ended without a comparison; then `failure` says why."""

    id: str
    kind: Literal["interleaved"] = "interleaved"
    status: Literal["running", "failed", "canceled"] = Field(description="running: also where the job still waits")
    job: str
    created_at: AwareDatetime
    workload: str
    metric: str
    progress: Progress | None = None
    failure: Failure | None = None
    urls: ComparisonUrls
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA


def new_comparison_id() -> str:
    """`cmp_` and a ULID, as those of jobs are."""
    return f"cmp_{new_ulid()}"


def comparison_of(job_id: str) -> str:
    """The id of the comparison that the job of two specs makes: so there is nothing to store beside the job."""
    return f"cmp_{job_id.removeprefix('job_')}"


def job_of(comparison_id: str) -> str:
    """The job that makes the comparison, if one does."""
    return f"job_{comparison_id.removeprefix('cmp_')}"


def urls_of(comparison_id: str) -> ComparisonUrls:
    root = f"/v1/comparisons/{comparison_id}"
    return ComparisonUrls(self=root, bars=f"{root}/bars.svg")

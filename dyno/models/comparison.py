"""Comparisons: requests and responses."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, JsonValue, StringConstraints, field_validator

from dyno.models.job import SCHEMA, Failure, Progress, Stored, new_ulid
from dyno.models.result import ResultWarning, Unit, Verdict
from dyno.models.spec import CONFIDENCE, MARGIN, Confidence, Margin, MetricName, Model, Pairs

PAIRS = 10
POWER = 0.8
MAX_RESULTS = 20

JobId = Annotated[str, StringConstraints(pattern=r"^job_[0-9A-HJKMNP-TV-Z]{26}$")]


class Comparative(StrEnum):
    """The verdict on a result against the first one. FASTER means better in the metric's direction."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    INCONCLUSIVE = "INCONCLUSIVE"


class CompareHow(Model):
    """The options of every comparison."""

    metric: MetricName | None = Field(
        None,
        description="A metric that all results have. Null selects the result's first metric, the workload's headline",
    )
    margin: Margin = Field(MARGIN, description="Ratios from 1 / (1 + margin) to 1 + margin count as the same")
    confidence: Confidence = Field(CONFIDENCE, description="The confidence level of every interval")


class CompareResults(CompareHow):
    """Two or more results of the same work. Each is compared with the first."""

    jobs: Annotated[list[JobId], Field(min_length=2, max_length=MAX_RESULTS)] = Field(
        description="Jobs that succeeded. Each is compared with the first", json_schema_extra={"uniqueItems": True}
    )

    @field_validator("jobs")
    @classmethod
    def _each_once(cls, jobs: list[str]) -> list[str]:
        if len(set(jobs)) < len(jobs):
            raise ValueError("the list has a job twice; name different jobs")
        return jobs


class CompareSpecs(CompareHow):
    """Two specs to run in turns on one device, as one job. The job takes its device, timeout etc. from the first."""

    specs: Annotated[list[dict[str, JsonValue]], Field(min_length=2, max_length=2)] = Field(
        description="As for POST /v1/jobs. The second may omit fields that must be the same for both"
    )
    pairs: Pairs = Field(
        PAIRS, description="Runs of each spec, in fresh processes. Even, so that each spec goes first equally often"
    )
    control: bool = Field(True, description="Run the first spec twice in every round, to show the noise as a ratio")


class Ratio(Stored):
    """How many times as good as the first: value / first if higher is better, first / value if lower is better.

    `low` and `high` are null, with a `reason`, if the data give no interval. `smallest_effect` is the smallest true
    difference that these runs would have detected with a probability of 80 %. 0.03 means 1.03 times as good, or 1.03
    times as bad.
    """

    verdict: Comparative
    value: float | None
    low: float | None = None
    high: float | None = None
    degrees_of_freedom: float | None = None
    smallest_effect: float | None = None
    reason: str | None = None


class Compared(Stored):
    """One result in a comparison; `ratio` is null for the first. `low` and `high` bound Student's t interval."""

    job: str
    arm: Literal["first", "second"] | None = Field(
        None, description="Which of two specs that ran in turns; null for other jobs"
    )
    value: float | None
    low: float | None = None
    high: float | None = None
    runs: int
    clock_hz: float | None = Field(None, description="The device's clock, the mean over the runs; null if unknown")
    adjusted_value: float | None = Field(
        None,
        description="The value at the clock of the first result, which the ratio uses. Null without an adjustment: for "
        "other hardware, an unknown clock or elasticity, and specs that ran in turns",
    )
    ratio: Ratio | None = None
    verdict: Verdict
    warnings: list[str] = Field(description="Codes of the result's warnings; the result has the details")
    framework: str
    device: str
    device_model: str | None = None
    hardware_id: str | None = None
    context_id: str | None = None
    peak_fraction: float | None = None
    finished_at: AwareDatetime | None = None


class Difference(Stored):
    """A field that differs between the results. `values` has one per result, in order; null if a result lacks it."""

    field: str = Field(description='A JSON pointer: "/framework", "/environment/packages/jax"')
    values: list[JsonValue]


class ComparisonUrls(Stored):
    """Relative links."""

    self: str
    bars: str


class Comparison(Stored):
    """Two or more results of the same work, compared. Ratios aren't corrected for multiple comparisons.

    `kind` says how the runs were made. `results` are from separate jobs, so the ratios include changes on the machines
    between the jobs. The runs of an `interleaved` comparison took turns, and each ratio is of neighbouring runs.
    """

    id: str
    kind: Literal["results", "interleaved"] = "results"
    status: Literal["done"] = "done"
    job: str | None = Field(None, description="The job that ran both specs of an interleaved comparison")
    created_at: AwareDatetime
    workload: str
    metric: str
    unit: Unit
    better: Literal["higher", "lower"]
    confidence: float
    margin: float
    power: float = Field(POWER, description="The detection probability behind `smallest_effect`")
    verdict: Verdict = Field(description="The lowest verdict of the results")
    results: list[Compared]
    control: Ratio | None = Field(
        None, description="The first spec against itself, run in the same rounds: the noise as a ratio"
    )
    differences: list[Difference] = Field(description="Other fields that differ and may explain the ratios")
    warnings: list[ResultWarning]
    notes: list[str] = Field(description="Caveats, as sentences")
    urls: ComparisonUrls
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA


class UnfinishedComparison(Stored):
    """A comparison of two specs whose job waits, runs, or ended without a comparison; then `failure` says why."""

    id: str
    kind: Literal["interleaved"] = "interleaved"
    status: Literal["running", "failed", "canceled"] = Field(description="`running` includes queued jobs")
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
    """`cmp_` and a ULID."""
    return f"cmp_{new_ulid()}"


def comparison_of(job_id: str) -> str:
    """The id of the comparison that a job of two specs makes. It derives from the job's id, so it needs no storage."""
    return f"cmp_{job_id.removeprefix('job_')}"


def job_of(comparison_id: str) -> str:
    """The id of the job that makes the comparison, if the comparison is interleaved."""
    return f"job_{comparison_id.removeprefix('cmp_')}"


def urls_of(comparison_id: str) -> ComparisonUrls:
    root = f"/v1/comparisons/{comparison_id}"
    return ComparisonUrls(self=root, bars=f"{root}/bars.svg")

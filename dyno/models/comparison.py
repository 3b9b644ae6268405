"""Comparisons: requests and responses."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, JsonValue, StringConstraints, ValidationInfo, field_validator

from dyno.models.job import SCHEMA, Failure, Progress, Stored, new_ulid
from dyno.models.processor_names import model_name
from dyno.models.result import ResultWarning, Verdict
from dyno.models.spec import CONFIDENCE, MARGIN, Confidence, Margin, MetricName, Model, Pairs

PAIRS = 10
POWER = 0.8
MAX_RESULTS = 20

JobId = Annotated[str, StringConstraints(pattern=r"^job_[0-9A-HJKMNP-TV-Z]{26}$")]


class Comparative(StrEnum):
    """The verdict of a comparison of a result with the base. FASTER means better in the metric's direction."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    INCONCLUSIVE = "INCONCLUSIVE"


class CompareHow(Model):
    """The options of every comparison."""

    metric: MetricName | None = Field(
        None,
        description="A metric that all results have. Null selects the first that is comparable, usually the "
        "workload's headline metric",
    )
    margin: Margin = Field(MARGIN, description="Ratios from 1 / (1 + margin) to 1 + margin give the verdict SAME")
    confidence: Confidence = Field(CONFIDENCE, description="The confidence level of every interval")


class CompareResults(CompareHow):
    """Two or more results that have the same metric. Each is compared with the base."""

    jobs: Annotated[list[JobId], Field(min_length=2, max_length=MAX_RESULTS)] = Field(
        description="Jobs that succeeded. Each is compared with the base", json_schema_extra={"uniqueItems": True}
    )
    base: Annotated[int, Field(ge=0, lt=MAX_RESULTS)] | JobId = Field(
        0, description="The base of every ratio: one of the jobs, or its index"
    )

    @field_validator("jobs")
    @classmethod
    def _each_once(cls, jobs: list[str]) -> list[str]:
        if len(set(jobs)) < len(jobs):
            raise ValueError("the list has a job twice; name different jobs")
        return jobs

    @field_validator("base")
    @classmethod
    def _one_of_the_jobs(cls, base: int | str, info: ValidationInfo) -> int | str:
        jobs = info.data.get("jobs")  # absent if it is wrong itself
        if jobs is not None and base not in (*jobs, *range(len(jobs))):
            raise ValueError(f"the base must be one of the jobs, or an index from 0 to {len(jobs) - 1}")
        return base

    @property
    def base_index(self) -> int:
        """The place of the base in `jobs`."""
        return self.base if isinstance(self.base, int) else self.jobs.index(self.base)


class CompareSpecs(CompareHow):
    """Two specs to run in turns on one device, as one job. The job has the device, timeout etc. of the first spec."""

    specs: Annotated[list[dict[str, JsonValue]], Field(min_length=2, max_length=2)] = Field(
        description="Two specs as for POST /v1/jobs. The second may omit fields that must be the same for both"
    )
    pairs: Pairs = Field(
        PAIRS, description="Number of runs of each spec; even, so that each spec goes first in half of the rounds"
    )
    control: bool = Field(True, description="Run the first spec twice in every round, to measure the noise as a ratio")


class Ratio(Stored):
    """A result relative to the base: value / base if higher is better, base / value if lower is better.

    `low` and `high` are null, with a `reason`, if the data give no interval. `smallest_effect` is the smallest true
    difference that these runs would have detected with a probability of 80 %. 0.03 means 1.03 times as good, or 1.03
    times as bad.
    """

    verdict: Comparative
    value: float | None
    as_measured: float | None = Field(
        None,
        description="The ratio of the measured values. It differs from `value` if `value` is adjusted to one clock",
    )
    low: float | None = None
    high: float | None = None
    degrees_of_freedom: float | None = None
    smallest_effect: float | None = None
    more_runs: int | None = Field(
        None,
        description="For INCONCLUSIVE: about how many more runs of each result would give another verdict with a "
        "probability of 80 %, if ratio and scatter stay as they are. In sweeps with rounds, more rounds. Null if "
        "the scatter is unknown or the number is above a million",
    )
    reason: str | None = None


class Compared(Stored):
    """One result in a comparison; `ratio` is null for the base. `low` and `high` bound Student's t interval."""

    job: str
    arm: Literal["first", "second"] | None = Field(
        None, description="Which of the job's two specs, if they ran in turns; null for other jobs"
    )
    value: float | None
    low: float | None = None
    high: float | None = None
    runs: int
    clock_hz: float | None = Field(None, description="The device's clock, the mean over the runs; null if unknown")
    adjusted_value: float | None = Field(
        None,
        description="The value adjusted to the clock of the base, for the ratio. Null if Dyno can't adjust it: if "
        "work, hardware or method differs, for GPUs and TPUs, if a clock is unknown, if clocks differ by more than "
        "10 %, and for specs that ran in turns",
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
    """A field that differs between the results. `values`: its value in each result, in order; null if missing."""

    field: str = Field(description='A JSON pointer: "/framework", "/environment/packages/jax"')
    values: list[JsonValue]


class ComparisonUrls(Stored):
    """Relative links."""

    self: str
    bars: str


class Comparison(Stored):
    """Two or more results, compared by one metric. Ratios aren't corrected for multiple comparisons.

    With `same_work`, a ratio is a change of speed. Otherwise it compares different work in the same unit, such as
    FLOP/s. `not_compared` lists metrics that all results have, but that depend on the amount of work, which differs.

    `kind` says how the runs were made. `results` means separate jobs, so the ratios include changes on the machines
    between the jobs. `interleaved` means that the runs took turns, so each ratio compares neighbouring runs.
    """

    id: str
    kind: Literal["results", "interleaved"] = "results"
    status: Literal["done"] = "done"
    job: str | None = Field(None, description="The job that ran both specs of an interleaved comparison")
    created_at: AwareDatetime
    workload: str = Field(description="The workload of the base")
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    base: int = Field(0, description="The index in `results` of the base of every ratio")
    same_work: bool = Field(True, description="Whether workload, timed params and precision agree")
    not_compared: list[str] = []
    confidence: float
    margin: float
    power: float = Field(POWER, description="The detection probability behind `smallest_effect`")
    verdict: Verdict = Field(description="The lowest verdict of the results")
    results: list[Compared]
    control: Ratio | None = Field(
        None, description="The first spec compared with itself, from runs in the same rounds: the noise as a ratio"
    )
    differences: list[Difference] = Field(description="Every field that differs and may explain the ratios")
    warnings: list[ResultWarning]
    notes: list[str] = Field(description="Caveats, as sentences")
    urls: ComparisonUrls
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA


class UnfinishedComparison(Stored):
    """A comparison of two specs whose job waits, runs, or ended without a comparison (`failure` then says why)."""

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


_NAMING = ("/workload", "/framework", "/replicas", "/device/model")


def result_names(answer: Comparison) -> list[str]:
    """A distinct name for each result: from the fields that differ, such as params, or else the id of its job."""
    parts: list[list[str]] = [[] for _ in answer.results]
    fields = {difference.field for difference in answer.differences}
    for difference in answer.differences:
        is_param = difference.field.startswith("/params/") and "/workload" not in fields
        if is_param or difference.field in _NAMING:
            label = difference.field.rpartition("/")[2] + " " if is_param or difference.field == "/replicas" else ""
            for part, value in zip(parts, difference.values, strict=True):
                part.extend([] if value is None else [f"{label}{model_name(str(value))}"])
    names = [", ".join(part) for part in parts]
    are_apart = all(names) and len({*names}) == len(names)
    return names if are_apart else [row.arm or row.job for row in answer.results]


def names_with_devices(answer: Comparison) -> list[str]:
    """The names of the results, with the models of their devices."""
    models = [model_name(result.device_model or result.device) for result in answer.results]
    named = zip(result_names(answer), models, strict=True)
    return [name if model in name else f"{name}, {model}" for name, model in named]


def new_comparison_id() -> str:
    """`cmp_` and a ULID."""
    return f"cmp_{new_ulid()}"


def comparison_of(job_id: str) -> str:
    """The id of the comparison that a job of two specs produces. It derives from the job's id and isn't stored."""
    return f"cmp_{job_id.removeprefix('job_')}"


def job_of(comparison_id: str) -> str:
    """The id of the job that makes the comparison, if the comparison is interleaved."""
    return f"job_{comparison_id.removeprefix('cmp_')}"


def urls_of(comparison_id: str) -> ComparisonUrls:
    root = f"/v1/comparisons/{comparison_id}"
    return ComparisonUrls(self=root, bars=f"{root}/bars.svg")

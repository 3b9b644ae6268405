"""Baselines: named figures or limits that later jobs are compared with. The outcome is in `dyno.models.job`."""

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, JsonValue, model_validator

from dyno.models.comparison import JobId
from dyno.models.job import SCHEMA, Stored
from dyno.models.result import Peer, Verdict
from dyno.models.spec import Margin, MetricName, Model

BASELINE_MARGIN = 0.05
Limit = Annotated[float, Field(gt=0)]


class NewBaseline(Model):
    """A job's figure as a baseline."""

    job: JobId = Field(description="A job that succeeded")
    metric: MetricName | None = Field(None, description="Null selects the result's first metric, the headline")
    margin: Margin = Field(BASELINE_MARGIN, description="A job fails if its ratio is certainly below 1 / (1 + margin)")


class NewLimit(Model):
    """A limit as a baseline, without a job and a margin. Set one of `at_least` and `at_most`."""

    metric: MetricName
    at_least: Limit | None = None
    at_most: Limit | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError('set "job", or one of "at_least" and "at_most"')
        return self


class BaselineFigure(Stored):
    """A copy of a job's figure, and of what the figure depends on. `low` and `high` bound Student's t interval."""

    value: float
    low: float | None = None
    high: float | None = None
    by_run: list[float] = Field(description="One figure per run, in order")
    verdict: Verdict
    finished_at: AwareDatetime | None = None
    params: dict[str, JsonValue] = Field(description="All params, with the values that the job used")
    circumstances: dict[str, JsonValue] = Field(
        description="What else the figure depends on, by JSON pointer: framework, device, versions"
    )
    peer: Peer = Field(description="The job's headline figure, with its hardware, clock and the scatter of its runs")
    series: str | None = Field(
        description="The series of the headline figure; null if the baseline's metric scatters in another way"
    )
    level_since: str | None = Field(
        None,
        description="The last job whose figure provably differed from the baseline and replaced it. Results before "
        "this job aren't used to estimate the scatter of jobs at this figure's level",
    )


class Baseline(Stored):
    """A named figure or limit. `unit` and `better` are null for a limit, which has no unit of its own."""

    name: str
    metric: str
    margin: float = Field(description="0 for a limit")
    job: str | None = Field(description="The job of the figure, which may have expired; null for a limit")
    unit: str | None = None
    better: Literal["higher", "lower"] | None = None
    figure: BaselineFigure | None = None
    at_least: float | None = None
    at_most: float | None = None
    saved_at: AwareDatetime
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA


class BaselineList(Stored):
    """All baselines of the caller's key, by name; an admin's list has those of all keys."""

    data: list[Baseline]

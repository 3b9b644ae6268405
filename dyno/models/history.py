"""The history of results: series of points over time, their changes, and alarms."""

from typing import Literal

from pydantic import AwareDatetime, Field, JsonValue

from dyno.models.comparison import Difference
from dyno.models.job import Stored
from dyno.models.result import Verdict


class HistoryPoint(Stored):
    """One result of the series."""

    time: AwareDatetime = Field(description="When the job finished")
    job: str
    value: float
    low: float | None
    high: float | None
    verdict: Verdict
    warnings: list[str] = Field(description="The codes of the result's warnings, gravest first")
    context_id: str | None = None
    labels: dict[str, str] = {}
    rerun_of: str | None = None
    clock_hz: float | None = None
    adjusted_value: float | None = Field(
        None,
        description="The value adjusted to the series' `clock_hz`; null if the point's clock is unknown or differs by "
        "more than 10 %, and on devices other than CPUs. Dyno searches for changes in this value, or in `value` if "
        "this one is null. If the clock itself changed by more than 10 %, values are adjusted only to the clock of "
        "their period, so that a device that is slow because of a low clock remains slow",
    )
    counted: bool = Field(
        description="Whether changes and levels use the point. Results that are `untrusted`, emulated or the rerun of "
        "an alarm, and values that aren't above zero, are shown but not used"
    )


class HistoryContext(Stored):
    """A software environment of the series. Changes are searched within the points of one context.

    `ratio` compares the first level of this context with the last level of the previous context, each over at most ten
    counted points. Above 1 is better.
    """

    context_id: str | None
    since: AwareDatetime = Field(description="The time of its first point")
    job: str = Field(description="The job of its first point")
    points: int
    differences: list[Difference] = Field(
        description="Fields of the environment that differ, at most 20, with their values in the previous context and "
        "in this one; empty for the first context"
    )
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


class HistoryChange(Stored):
    """A change point: the level of the values changes at `job`.

    `ratio` compares the new level with the old one, with a 95 % interval; above 1 is better, for every metric. `z` is
    the significance as a standard normal deviate. `before` and `after`: the number of points of each level.
    """

    time: AwareDatetime
    job: str
    context_id: str | None
    ratio: float
    low: float
    high: float
    z: float
    before: int
    after: int


class ClassBand(Stored):
    """The device compared with other devices of its class, which ran the same spec and have the same `hardware_id`.

    `value` is the median of the device's last ten counted points, not adjusted to one clock. The next device of this
    class will be between `low` and `high` with a probability of 99 %, as for METRIC_OUT_OF_BAND.
    """

    devices: int = Field(description="Number of other devices")
    value: float
    median: float | None = None
    low: float | None = None
    high: float | None = None
    outcome: Literal["slow", "typical", "fast", "unknown"]
    reason: str | None = Field(None, description="Why `outcome` is `unknown`")


class ResultSeries(Stored):
    """The results of one spec on one device over time, oldest first.

    `spec_id` is the same for the same work: workload, effective params, framework, replicas, precision and method. For
    a sampled metric, it ignores params that don't change the work of one sample. `hardware_id` is the same for equal
    devices. Each device has a series of its own, since equal devices differ by 8 % on average. `owner` is the key that
    owns the jobs.
    """

    series_id: str
    spec_id: str
    hardware_id: str | None
    device: str | None = Field(description="The device's id, with its host")
    device_model: str | None
    workload: str
    framework: str
    params: dict[str, JsonValue]
    precision: str | None
    owner: str | None
    emulated: bool
    metric: str
    headline: bool = Field(
        True,
        description="Whether it is the headline metric: the first with a figure of each run. Others raise no alarms",
    )
    unit: str
    better: Literal["higher", "lower"]
    clock_hz: float | None = Field(description="The clock of the adjusted values; null if values aren't adjusted")
    points: list[HistoryPoint]
    contexts: list[HistoryContext]
    changes: list[HistoryChange]
    of_class: ClassBand | None = Field(description="Null if no point is counted")


class AlarmRecord(Stored):
    """The stored part of an alarm; the rest is computed from the results."""

    rerun: str | None = None
    acknowledged_at: AwareDatetime | None = None
    acknowledged_by: str | None = None


AlarmState = Literal["new", "confirmed", "not_confirmed", "acknowledged"]


class Alarm(HistoryChange):
    """A change of the headline metric by more than 5 %, with a `z` above 6.

    A series raises 0.06 to 0.25 false alarms a year if its results deviate by 4 % and have the autocorrelation of
    recorded series, 0.44. With an autocorrelation of 0.8, it raises about 4.

    `state`: `new` until the rerun of its job has a result. Then `confirmed` if that result is nearer to the level after
    the change than to the level before, else `not_confirmed`. `acknowledged` once a client has acknowledged the alarm.
    """

    id: str
    series_id: str
    metric: str
    outcome: Literal["faster", "slower"]
    state: AlarmState
    rerun: str | None = Field(None, description="The job that Dyno submitted to confirm the change")
    acknowledged_at: AwareDatetime | None = None
    acknowledged_by: str | None = Field(None, description="The id of the API key; null if the client had none")
    acknowledge_url: str = Field(description="POST to it to acknowledge the alarm")


class History(Stored):
    """Series and alarms of the results that a request has read; `next_cursor` leads to older results."""

    series: list[ResultSeries]
    alarms: list[Alarm]
    results_read: int
    next_cursor: str | None = None
    has_more: bool = False

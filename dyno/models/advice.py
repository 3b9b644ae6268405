"""Advice: which device of the fleet does the most work per second, joule or unit of currency, according to results."""

from typing import Literal

from pydantic import AwareDatetime, Field, JsonValue

from dyno.models.comparison import Ratio
from dyno.models.job import Stored
from dyno.models.result import Verdict

Criterion = Literal["per_s", "per_joule", "per_currency"]


class AdviceFigure(Stored):
    """Work per second, joule or unit of currency. If the bounds are null, `reason` says why."""

    unit: str
    value: float
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class AdviceRow(Stored):
    """A device and the result that its figures come from: its newest comparable result that isn't untrusted.

    `fixed_s` is the time of a run before its first sample; see docs/method.md. `per_joule` is null without an energy,
    `per_currency` without a price, and `fixed_s` if the time is unknown.
    """

    device: str
    device_model: str
    job: str
    finished_at: AwareDatetime | None
    age_s: float
    verdict: Verdict
    warnings: list[str] = Field(description="Codes of the result's warnings")
    imported: bool
    runs: int
    per_s: AdviceFigure
    per_joule: AdviceFigure | None
    per_currency: AdviceFigure | None
    fixed_s: AdviceFigure | None


class RankedDevice(Stored):
    """`ratio`: how many times as good this device is as the first device; null for the first device."""

    device: str
    ratio: Ratio | None


class AdviceRanking(Stored):
    """The devices by one criterion, the best first.

    `best` has the first device and all devices that aren't proven to be worse: their ratio to the first device has an
    interval and isn't SLOWER. A device whose ratio has no interval is ranked by its value alone.
    """

    by: Criterion
    devices: list[RankedDevice]
    best: list[str]

    @property
    def by_value_alone(self) -> list[str]:
        """The devices whose ratio to the first device has no interval."""
        return [each.device for each in self.devices if each.ratio is not None and each.ratio.low is None]


class Crossover(Stored):
    """The amount of work from which `faster` finishes first: it needs less time per unit, but more time to start.

    `amount` is 0 if `faster` also needed no more time to start, and `high` is 0 if the measurements prove
    this. `amount` is null, with a `reason`, if it is unknown.
    """

    faster: str
    slower: str
    unit: str
    amount: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class NotRanked(Stored):
    """A device without a comparable result. `run` is a command that measures the device, if it only lacks a run."""

    device: str
    reason: str
    run: str | None = None


class Advice(Stored):
    """Which device to choose for a workload with these params, according to the results of live devices.

    `results_read`: how many results of the workload were read, newest first. `has_more`: there are older results.
    """

    workload: str
    params: dict[str, JsonValue]
    framework: str
    metric: str
    rows: list[AdviceRow]
    rankings: list[AdviceRanking]
    crossovers: list[Crossover]
    not_ranked: list[NotRanked]
    notes: list[str]
    results_read: int
    has_more: bool

"""Advice: which device of the fleet does most work per second, per joule and per unit of currency, by the results."""

from typing import Literal

from pydantic import AwareDatetime, Field, JsonValue

from dyno.models.comparison import Ratio
from dyno.models.job import Stored
from dyno.models.result import Verdict

Criterion = Literal["per_s", "per_joule", "per_currency"]


class AdviceFigure(Stored):
    """Work per second, joule or unit of currency. Without bounds, `reason` says why."""

    unit: str
    value: float
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class AdviceRow(Stored):
    """A device and the result that its figures rest on: the newest comparable one that isn't untrusted.

    `fixed_s` is what a run needs before its first sample; see docs/method.md. Figures are null without energy, a
    price or such a time.
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
    """`ratio` says how many times as good as the first device this one is; null for the first."""

    device: str
    ratio: Ratio | None


class AdviceRanking(Stored):
    """The devices by one criterion, the best first.

    `best` has the first device and those that can't be told apart from it: their ratio to it has an interval, and isn't
    SLOWER. A device whose ratio has no interval is ranked by its value alone.
    """

    by: Criterion
    devices: list[RankedDevice]
    best: list[str]

    @property
    def by_value_alone(self) -> list[str]:
        """The devices whose ratio to the first has no interval."""
        return [each.device for each in self.devices if each.ratio is not None and each.ratio.low is None]


class Crossover(Stored):
    """`faster` needs less time for each unit of work, but more before the first: from `amount` on it is done first.

    `amount` is 0 if `faster` needed no more time before, and `high` is 0 if that is proven. `amount` is null with a
    `reason` if it isn't known.
    """

    faster: str
    slower: str
    unit: str
    amount: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class NotRanked(Stored):
    """A device without a comparable result. `run` is a command that measures it, if a run is what is missing."""

    device: str
    reason: str
    run: str | None = None


class Advice(Stored):
    """Which device to choose for a workload with these params, by the results of the devices that are up.

    `results_read` results of the workload were looked at, the newest first; `has_more`: there are older ones.
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

"""How often does Dyno find a change of a series, and how often one that isn't there? Simulated years, one result a day.

With `apache-otava` and `otava-test-data` on PYTHONPATH, unpacked without their dependencies, the page has Otava's own
figures and its 17 patterns, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.pairs import share
from benchmarks.report import prose, table, write
from benchmarks.synthetic import Array, Generator, autoregressive, heavy_tailed, normal
from dyno.bench.measure.change_points import Change, find_changes
from dyno.bench.measure.result_series import ALARM_RATIO, ALARM_Z
from dyno.bench.measure.statistics import median

SEED, YEARS, WATCHED_YEARS, DAYS = 20_230_415, 20, 8, 365
DEVIATIONS = (0.01, 0.02, 0.03, 0.04)
STEPS = (0.02, 0.05, 0.10, 0.20)
NEAR = 7  # largest distance in days between a step and the change that counts as it
LOOK_EVERY = 5  # days between two looks for alarms
ALIKE = 0.44  # autocorrelation of each result with the one before, as in results/resampled.md
RULES = tuple((z, size) for z in (5.0, 6.0, 7.0) for size in (0.02, 0.03, 0.05))
LAST, BEFORE = 7, 30  # numbers of values in the t-test

Detector = Callable[[Sequence[float]], list[int]]  # the days of the changes


@dataclass(frozen=True)
class Year:
    """`levels` without noise, and the days on which they step."""

    levels: Array
    steps: tuple[int, ...] = ()


def stepped(size: float, rng: Generator) -> Year:
    """A step to slower or faster on a random day, two to ten months after the start."""
    day, sign = int(rng.integers(60, 300)), rng.choice((-1, 1))
    return Year(np.where(np.arange(DAYS) < day, 1.0, (1 + size) ** sign), (day,))


def dipped(rng: Generator) -> Year:
    day = int(rng.integers(60, 280))
    days = np.arange(DAYS)
    return Year(np.where((days >= day) & (days < day + 20), 0.9, 1.0), (day, day + 20))


def steady(rng: Generator) -> Year:
    return Year(np.ones(DAYS))


def weekly(rng: Generator) -> Year:
    """2 % faster on two days of the week."""
    return Year(np.where(np.arange(DAYS) % 7 < 2, 1.02, 1.0))


def drifting(rng: Generator) -> Year:
    return Year(np.linspace(1.0, 0.9, DAYS))


@dataclass(frozen=True)
class Scenario:
    name: str
    year: Callable[[Generator], Year]
    noise: Callable[[Generator, tuple[int, ...]], Array] = normal

    def values(self, rng: Generator, deviation: float) -> tuple[Year, list[float]]:
        year = self.year(rng)
        return year, (1e11 * year.levels * np.exp(deviation * self.noise(rng, (DAYS,)))).tolist()


def step_scenario(size: float) -> Scenario:
    return Scenario(f"a step of {size:.0%}", lambda rng: stepped(size, rng))


RECORDED = autoregressive(ALIKE)
AS_RECORDED = Scenario(f"each day resembles the last ({ALIKE:g}, as recorded)", steady, RECORDED)
OF_STEPS = {size: step_scenario(size) for size in STEPS}
WITH_STEPS = (*OF_STEPS.values(), Scenario("10 % slower for 20 days", dipped))
WITHOUT = (
    Scenario("steady", steady),
    Scenario("heavy-tailed noise", steady, heavy_tailed),
    Scenario("2 % faster on 2 days of 7", weekly),
    AS_RECORDED,
    Scenario("each day resembles the last (0.8)", steady, autoregressive(0.8)),
)
DRIFT = Scenario("a drift of 10 % over the year", drifting)


def is_alarm(change: Change, z: float = ALARM_Z, size: float = ALARM_RATIO) -> bool:
    return change.z > z and not 1 / (1 + size) <= change.ratio <= 1 + size


def dyno_changes(values: Sequence[float]) -> list[int]:
    return [change.index for change in find_changes(values)]


def dyno_alarms(values: Sequence[float]) -> list[int]:
    return [change.index for change in find_changes(values) if is_alarm(change)]


def threshold(values: Sequence[float]) -> list[int]:
    """The days whose value differs by more than 5 % from the mean of the ten before, at least ten days apart."""
    found = [-10]
    for day in range(10, len(values)):
        if abs(values[day] / float(np.mean(values[day - 10 : day])) - 1) > 0.05 and day - found[-1] >= 10:
            found.append(day)
    return found[1:]


def t_test(values: Sequence[float]) -> list[int]:
    """The days from which seven values differ from the thirty before (p < 0.001), at least thirty days apart."""
    from scipy.stats import ttest_ind

    windows = np.lib.stride_tricks.sliding_window_view(np.log(values), LAST + BEFORE)
    chances = ttest_ind(windows[:, :BEFORE], windows[:, BEFORE:], axis=1).pvalue
    found = [-BEFORE]
    for place in np.flatnonzero(chances < 0.001):
        if place + BEFORE - found[-1] >= BEFORE:
            found.append(int(place) + BEFORE)
    return found[1:]


@cache
def otava() -> Detector | None:
    try:
        compute = import_module("otava.analysis").compute_change_points
    except ImportError:
        return None
    return lambda values: [int(point.index) for point in compute(list(values), max_pvalue=0.001)[0]]


def detectors() -> dict[str, Detector]:
    found: dict[str, Detector] = {"Dyno's changes": dyno_changes, "Dyno's alarms": dyno_alarms}
    if (theirs := otava()) is not None:
        found["Otava 0.8.0"] = theirs
    return {**found, f"t-test, last {LAST} against {BEFORE}": t_test, "threshold of 5 %": threshold}


@dataclass
class Score:
    hits: int = 0
    steps: int = 0
    found: int = 0
    years: int = 0

    def add(self, year: Year, found: Sequence[int]) -> None:
        """A step is a hit if a change was found within NEAR days of it."""
        self.steps, self.found, self.years = self.steps + len(year.steps), self.found + len(found), self.years + 1
        self.hits += sum(any(abs(day - step) <= NEAR for day in found) for step in year.steps)

    @property
    def false_per_year(self) -> float:
        return (self.found - self.hits) / self.years

    def __str__(self) -> str:
        precision = f"{self.hits / self.found:.0%}" if self.found else "none found"
        return f"{self.hits / self.steps:.0%}, {precision}"


def simulated(scenario: Scenario, deviation: float, years: int) -> Iterator[tuple[Year, list[float]]]:
    """The same years for every detector."""
    for number in range(years):
        seed = [SEED, number, round(1e4 * deviation), *scenario.name.encode()]
        yield scenario.values(np.random.default_rng(seed), deviation)


def scores(scenario: Scenario, deviation: float, years: int) -> dict[str, Score]:
    found = {name: Score() for name in detectors()}
    for year, values in simulated(scenario, deviation, years):
        for name, detect in detectors().items():
            found[name].add(year, detect(values))
    return found


def found_lines(years: int) -> list[str]:
    rows = [
        (scenario.name, f"{deviation:.0%}", *scores(scenario, deviation, years).values())
        for scenario in WITH_STEPS
        for deviation in DEVIATIONS
    ]
    return table(("the year has", "deviation", *detectors()), rows)


def false_lines(years: int) -> list[str]:
    rows = [
        (scenario.name, f"{deviation:.0%}", *(f"{each.false_per_year:.2f}" for each in found.values()))
        for scenario in (*WITHOUT, DRIFT)
        for deviation in (0.01, 0.02, 0.04)
        if (found := scores(scenario, deviation, years))
    ]
    return table(("the year has", "deviation", *detectors()), rows)


def rule_lines(years: int) -> list[str]:
    """Rows of alarms with other limits of |z| and size, over all deviations."""

    def score(scenario: Scenario, z: float, size: float) -> Score:
        total = Score()
        for deviation in DEVIATIONS:
            for year, changes in all_changes(scenario, deviation, years):
                total.add(year, [change.index for change in changes if is_alarm(change, z, size)])
        return total

    rows = []
    for z, size in RULES:
        false = [score(scenario, z, size).false_per_year for scenario in WITHOUT]
        steps = [score(OF_STEPS[each], z, size) for each in STEPS]
        recalls = (f"{each.hits / each.steps:.0%}" for each in steps)
        mark = " (Dyno's)" if (z, size) == (ALARM_Z, ALARM_RATIO) else ""
        rows.append((f"{z:g}{mark}", f"{size:.0%}", *recalls, *(f"{each:.2f}" for each in false)))
    head = ("z above", "size above", *(f"found of {size:.0%}" for size in STEPS), *(each.name for each in WITHOUT))
    return table(head, rows)


@cache
def all_changes(scenario: Scenario, deviation: float, years: int) -> list[tuple[Year, list[Change]]]:
    return [(year, find_changes(values)) for year, values in simulated(scenario, deviation, years)]


@dataclass
class Watched:
    """Alarms of a search that runs every `LOOK_EVERY` days: days from the step to its alarm, and false alarms before
    and after a rerun."""

    delays: list[int]
    missed: int = 0
    false: int = 0
    false_confirmed: int = 0
    true_refused: int = 0


Look = tuple[int, Change]  # the day, and the last change so far


@cache
def looks(scenario: Scenario, deviation: float, years: int) -> list[tuple[Year, list[float], list[Look]]]:
    days = range(10, DAYS, LOOK_EVERY)
    return [
        (year, values, [(day, found[-1]) for day in days if (found := find_changes(values[:day]))])
        for year, values in simulated(scenario, deviation, years)
    ]


def watch(scenario: Scenario, deviation: float, years: int, z: float = ALARM_Z) -> Watched:
    """The rerun is the next day's value. It resembles the last value as any day's value does."""
    found = Watched([])
    for year, values, looked in looks(scenario, deviation, years):
        known, is_found = list[int](), False
        for day, change in looked:
            if not is_alarm(change, z) or any(abs(change.index - other) <= NEAR for other in known):
                continue
            known.append(change.index)
            is_confirmed = confirms(values[day], values, change)
            if any(abs(change.index - step) <= NEAR for step in year.steps):
                is_found = True
                found.delays.append(day - change.index)
                found.true_refused += not is_confirmed
            else:
                found.false += 1
                found.false_confirmed += is_confirmed
        found.missed += bool(year.steps) and not is_found
    return found


def confirms(rerun: float, values: Sequence[float], change: Change) -> bool:
    """Whether the rerun is nearer to the level after the change than to the level before, as in `result_series`."""
    at = change.index
    before, after = (
        float(np.mean(np.log(level))) for level in (values[at - change.before : at], values[at : at + change.after])
    )
    return abs(math.log(rerun) - after) < abs(math.log(rerun) - before)


def step_as_recorded(size: float) -> Scenario:
    return Scenario(f"a step of {size:.0%}, days alike ({ALIKE:g})", lambda rng: stepped(size, rng), RECORDED)


def watch_lines(years: int) -> list[str]:
    rows = []
    for scenario in (*list(OF_STEPS.values())[1:], *map(step_as_recorded, STEPS[1:]), *WITHOUT, DRIFT):
        for deviation in (0.01, 0.02, 0.04):
            found = watch(scenario, deviation, years)
            raised = f"{len(found.delays)} of {years}" if found.delays or found.missed else ""
            refused = str(found.true_refused) if found.delays else ""
            false = (f"{each / years:.2f}" for each in (found.false, found.false_confirmed))
            rows.append((scenario.name, f"{deviation:.0%}", raised, _delays(found.delays), refused, *false))
    head = ("the year has", "deviation", "alarms for the step", "days after it", "refused by the rerun")
    return table((*head, "false alarms a year", "confirmed by the rerun"), rows)


def _delays(days: Sequence[int]) -> str:
    return f"{median(days):.0f} (at most {max(days)})" if days else ""


def limit_lines(years: int) -> list[str]:
    """False alarms, and days from a step to its alarm, with other limits of z, if results resemble each other."""
    rows = []
    for z in dict.fromkeys(z for z, _ in RULES):
        for deviation in (0.01, 0.02, 0.04):
            false = watch(AS_RECORDED, deviation, years, z).false / years
            steps = [watch(step_as_recorded(size), deviation, years, z) for size in STEPS[1:]]
            cells = [f"{len(each.delays)} of {years}, {_delays(each.delays)}" for each in steps]
            mark = " (Dyno's)" if z == ALARM_Z else ""
            rows.append((f"{z:g}{mark}", f"{deviation:.0%}", f"{false:.2f}", *cells))
    return table(("z above", "deviation", "false alarms a year", *(f"days to {size:.0%}" for size in STEPS[1:])), rows)


def coverage_lines(years: int) -> list[str]:
    rows = []
    for size in STEPS[1:]:
        held = total = 0
        for deviation in DEVIATIONS:
            for year, changes in all_changes(OF_STEPS[size], deviation, years):
                truth = float(year.levels[-1] / year.levels[0])
                for change in changes:
                    if abs(change.index - year.steps[0]) <= NEAR:
                        total, held = total + 1, held + (change.low <= truth <= change.high)
        rows.append((f"{size:.0%}", total, share(held, total)))
    return table(("step", "found", "its 95 % interval holds the true ratio"), rows)


# name -> the function of otava_test_data, and its arguments: those of its own web page, with 200 points
PATTERNS: dict[str, tuple[str, dict[str, float]]] = {
    "constant": ("constant", {"value": 100.0}),
    "noise_normal": ("noise_normal", {"mean": 100.0, "sigma": 5.0}),
    "noise_uniform": ("noise_uniform", {"min_val": 90.0, "max_val": 110.0}),
    "outlier": ("outlier", {"baseline": 100.0, "outlier_value": 150.0, "sigma": 5.0}),
    "step_function": ("step_function", {"value_before": 100.0, "value_after": 120.0, "sigma": 5.0}),
    "regression_fix": ("regression_fix", {"sigma": 5.0}),
    "banding": ("banding", {"value1": 100.0, "value2": 105.0, "sigma": 2.0}),
    "variance_change": ("variance_change", {"mean": 100.0, "sigma_before": 2.0, "sigma_after": 10.0}),
    "phase_change": ("phase_change", {"amplitude": 10.0, "sigma": 2.0}),
    "multiple_changes": ("multiple_changes", {"sigma": 5.0}),
    "multiple_outliers": ("multiple_outliers", {"sigma": 5.0}),
    "multiple_variance_changes": ("multiple_variance_changes", {"mean": 100.0}),
    "step_function_clean": ("step_function", {"value_before": 100.0, "value_after": 120.0}),
    "multiple_changes_clean": ("multiple_changes", {}),
    "regression_fix_clean": ("regression_fix", {}),
    "banding_clean": ("banding", {"value1": 100.0, "value2": 110.0}),
    "outlier_clean": ("outlier", {"baseline": 100.0, "outlier_value": 150.0}),
}
LEVEL_CHANGES = {"step", "regression_start", "regression_end"}


def pattern_lines() -> list[str]:
    try:
        basic, advanced = (import_module(f"otava_test_data.generators.{name}") for name in ("basic", "advanced"))
    except ImportError:
        return ["Not run: `otava_test_data` wasn't on PYTHONPATH.", ""]
    rows = []
    for name, (function, arguments) in PATTERNS.items():
        made: Any = getattr(basic if hasattr(basic, function) else advanced, function)(200, seed=42, **arguments)
        values = made.data.tolist()
        truth = sorted(int(each.index) for each in made.change_points if each.change_type in LEVEL_CHANGES)
        theirs = otava()
        answers = [dyno_changes(values), dyno_alarms(values), theirs(values) if theirs else None]
        rows.append((f"`{name}`", _days(truth), *map(_days, answers)))
    return table(("pattern", "its level changes", "Dyno's changes", "Dyno's alarms", "Otava 0.8.0"), rows)


def _days(days: Sequence[int] | None) -> str:
    return "not run" if days is None else " ".join(map(str, days)) or "none"


METHOD = f"""Series of {DAYS} daily results with known steps, searched by the product's own code
    (`dyno.bench.measure.change_points` and `result_series`). The deviation is the standard deviation of the results,
    normal unless a row says otherwise; seed {SEED}, {{years}} years a row. A step counts as found if a change lies
    within {NEAR} days. For comparison: a t-test of the last {LAST} values against the {BEFORE} before them (p < 0.001),
    a threshold of 5 % against the mean of the last ten, and Otava with its defaults."""


def main(years: int = YEARS, watched: int = WATCHED_YEARS) -> None:
    lines = [
        *prose(METHOD.format(years=years)),
        "## Found",
        "",
        *prose("Each cell: the share of the steps that are found, and the share of the found changes that are steps."),
        *found_lines(years),
        "## Found without a step",
        "",
        *prose("Changes a year that aren't steps. A drift has no step, but the level at its end differs by 10 %."),
        *false_lines(years),
        "## The limits of an alarm",
        "",
        *prose(
            f"""Alarms with other limits than Dyno's (|z| > {ALARM_Z:g} and more than {ALARM_RATIO:.0%}): the share of
            steps with an alarm, and false alarms in a year without a step, over the deviations
            {", ".join(f"{each:.0%}" for each in DEVIATIONS)}. A step as large as the limit is found half the time,
            because its measured size is on either side of the limit."""
        ),
        *rule_lines(years),
        "## Alarms as the days pass",
        "",
        *prose(
            f"""The search runs every {LOOK_EVERY} days on the results so far, for {watched} years a row, and one more
            result checks each new alarm. *Refused*: a true alarm whose rerun is nearer to the old level."""
        ),
        *watch_lines(watched),
        *prose(
            f"""The same with other limits, for results that resemble the one before as recorded runs do ({ALIKE:g},
            [resampled.md](resampled.md)). These are the rates of one series: more series have more alarms."""
        ),
        *limit_lines(watched),
        "## The interval of a ratio",
        "",
        *prose("The same values choose the place of a change, which makes its interval a little too narrow."),
        *coverage_lines(years),
        "## The patterns of otava-test-data",
        "",
        *prose(
            """All 17 patterns of `otava-test-data` 0.1.9 with the arguments of its own web page, 200 points, seed 42. A
            pattern's outliers and changes of variance aren't level changes."""
        ),
        *pattern_lines(),
    ]
    write("history", "How changes of a series are found", lines)


if __name__ == "__main__":
    main()

"""What is an interval worth whose processes grew in number until it was narrow, and one that happens to be?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np

from benchmarks.aim import Section, share, within
from benchmarks.intervals import holds
from benchmarks.report import prose, table
from benchmarks.synthetic import effect_of
from dyno.measure.statistics import median
from dyno.measure.stopping_rule import enough_runs, on_target, time_interval
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import Measure, Processes

TARGET = 0.01
FIVE, GROWING = Processes(min=5, max=5), Processes(min=5, max=30)
SCATTERS = (("normal", 0.005), ("normal", 0.01), ("normal", 0.015), ("normal", 0.02), ("correlated 0.4", 0.01))


@dataclass(frozen=True)
class Ended:
    """Of how many trials it is true that the interval held the truth, was on target, was both; median of processes."""

    trials: int
    covered: int
    reached: int
    covered_of_reached: int
    processes: float


def count_ended(effect: str, scatter: float, processes: Processes, rng: np.random.Generator, trials: int) -> Ended:
    """Draw the medians of as many runs as there may be, and take them one by one until Dyno has enough; truth is 1."""
    measure = Measure(processes=processes, target_rel_ci=TARGET)
    drawn = 1 + scatter * effect_of(effect)(rng, (trials, processes.max))
    taken = [_until_enough(measure, times) for times in drawn.tolist()]
    covered = [holds(time_interval(records), 1.0) for records in taken]
    reached = [on_target(measure.target_rel_ci, records) for records in taken]
    return Ended(
        trials=trials,
        covered=sum(covered),
        reached=sum(reached),
        covered_of_reached=sum(hit for hit, narrow in zip(covered, reached, strict=True) if narrow),
        processes=median([len(records) for records in taken]),
    )


def section(rng: np.random.Generator, trials: int) -> Section:
    text = f"""A job of five processes is `trusted` only where its interval came out within the target, and one that may
        grow (`processes: {{"min": 5, "max": 30}}`) ends as soon as it does. Both select results whose runs happened to
        lie close together, and those intervals hold the truth less often than they say: where processes scatter to both
        sides alike the figure is as good as any, its interval too narrow. Target ±{TARGET:.0%}, {trials:,} trials a
        row, runs drawn from their own medians. *Reached*: on target, so not NOISY."""
    head = ("processes", "sd between", "n", "median n", "holds the truth", "reached", "holds the truth, of these")
    rows, found = [], []
    for effect, scatter in SCATTERS:
        for processes in (FIVE, GROWING):
            of = count_ended(effect, scatter, processes, rng, trials)
            counts = "5" if processes == FIVE else f"{processes.min} to {processes.max}"
            trusted = f"**{share(of.covered_of_reached, of.reached)}**"
            row = [counts, f"{of.processes:g}", f"**{share(of.covered, trials)}**", share(of.reached, trials), trusted]
            rows.append([effect, f"{scatter:.1%}", *row])
            found += [within(of.covered, trials), within(of.covered_of_reached, of.reached)]
    return Section("Selected by their interval", [*prose(text), *table(head, rows)], sum(found), len(found))


def _until_enough(measure: Measure, times: Sequence[float]) -> list[RunRecord]:
    """Runs that have a single sample, their median, which is all that the rule looks at."""
    taken: list[RunRecord] = []
    while not enough_runs(measure, taken):
        taken.append(cast(RunRecord, SimpleNamespace(samples=[times[len(taken)]], cases=[])))
    return taken

"""Real runs in the order in which they ran: does the interval of five neighbours hold the mean of all?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.aim import Section, within
from benchmarks.drawn import lag_one, windows
from benchmarks.intervals import holds
from benchmarks.recorded import PARAMS, RUNS, kept, medians
from benchmarks.report import prose, table
from benchmarks.synthetic import Array
from dyno.measure.statistics import mean_interval

LENGTHS = (5, 10)


def forked() -> dict[str, Array]:
    """Medians of the forked runs that are kept, by workload, in the order in which they ran."""
    found = {name: np.asarray(medians(kept(name), "forked")) for name in PARAMS}
    return {name: times for name, times in found.items() if len(times)}


def count_windows(times: Array, length: int) -> tuple[int, int]:
    """How many intervals of neighbouring runs hold the mean of all, and of how many."""
    found = [holds(mean_interval(stretch.tolist()), float(times.mean())) for stretch in windows(times, length)]
    return sum(found), len(found)


def section(times: Mapping[str, Array]) -> Section:
    """`times`: as `forked` gives them."""
    text = f"""Simulated processes are independent unless a row says otherwise. Real ones aren't: {len(times)}
        workloads, {RUNS} forked runs each (`recorded/`), and every stretch of neighbours among them. *Lag 1*: how much
        a run resembles the one before; independent runs have 0 ± 0.36 (95 %). *Hold*: intervals of so many neighbours
        that hold the mean of all {RUNS}. A session of minutes stands for the truth here, so that the rows are too kind,
        and stretches overlap, so that the counts have no interval. What an interval speaks of is the stretch of time in
        which its runs were made; what is to be compared is better run in turns ([resampled.md](resampled.md))."""
    rows, found = [], []
    for name, each in times.items():
        counts = [count_windows(each, length) for length in LENGTHS]
        shown = [f"**{held} of {of}**" for held, of in counts]
        rows.append(
            [f"`{name}`", len(each), f"{np.std(each, ddof=1) / np.mean(each):.2%}", f"{lag_one(each):.2f}", *shown]
        )
        found += [within(*count) for count in counts]
    head = ("runs of", "recorded", "their sd", "lag 1", *(f"hold, n = {length}" for length in LENGTHS))
    return Section("Recorded runs", [*prose(text), *table(head, rows)], sum(found), len(found))

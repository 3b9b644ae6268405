"""The same spec ten times: do the intervals agree, how wide are they, and how long does ±1 % take?

Beside it a fixed protocol on the same op, pyperf's default of 21 processes: a first one finds how many executions last
0.1 s, the others warm up for one value and take three. `python -m benchmarks.repeatability LOOPS` is such a process and
prints JSON; LOOPS 0 finds the number.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.files import Files, Spec, here
from benchmarks.in_process import compiled
from benchmarks.jobs import QUIET, Answer, KeptJobs, clock_spread, headline, made_here
from benchmarks.pairs import holds, printed
from benchmarks.report import prose, table, write
from dyno.measure.statistics import Interval, mean_interval, median, student_t

STATE = Path("build") / "repeatability"
ROUNDS, MEASURING = 10, 20  # MEASURING: processes of the fixed protocol that take values; one more comes before
VALUES, LEAST_S = 3, 0.1  # of each of them; the least duration of a value
EVERY = 2  # all but `five` come in every second round
SERIES = 5  # of jobs one right after the other, at different hours: a machine is not always equally quiet
TARGET, MOST = 0.01, 30
WORKLOAD, PARAMS = "matmul", {"n": 1024, "repeats": 5}
HOLDING_AIM, WIDTH_AIM = 8, 0.02
ROWS = {f"row-{number}": f"the same, one right after the other, series {number}" for number in range(1, SERIES + 1)}
WAYS = {
    "five": "Dyno, 5 processes",
    **ROWS,
    "grown": f"Dyno, 5 to {MOST} processes until ±{TARGET:.0%}",
    "fixed": f"1 + {MEASURING} processes, 3 values each; t over the processes",
    "pooled": f"the same, t over all {VALUES * MEASURING} values",
}
# Processes of an answer: Dyno gives no trusted one of fewer than five.
LEAST = {**dict.fromkeys(["five", *ROWS, "grown"], 5), "fixed": 2}


@dataclass(frozen=True)
class Round:
    """One answer: its interval, the processes it rests on, and the time from the question to the answer.

    `before`: further processes, which it needs however many give values. `clock_hz`: the mean of those measured.
    """

    interval: Interval
    processes: int
    took_s: float
    before: int = 0
    clock_hz: float | None = None

    @property
    def reached(self) -> bool:
        return (self.interval.rel_half_width or math.inf) <= TARGET


def main() -> None:
    found: dict[str, list[Round]] = {way: [] for way in WAYS}
    files = Files(STATE, here())
    try:
        for name, answer in KeptJobs(STATE, made_here).answers(specs(ROUNDS)):
            way, number = name.split(".")
            found[way].append(of_job(answer))
            if way == "grown":
                take_fixed(files, number, found)
    finally:  # also when Ctrl-C ends it
        write("repeatability", "The same spec again and again", lines(found))


def specs(rounds: int) -> dict[str, Spec]:
    """Dyno's ways by "<way>.<round>", those in turns first."""
    counts: dict[str, Any] = {"five": 5, "grown": {"min": 5, "max": MOST}}
    turns = [(way, number) for number in range(rounds) for way in counts if way == "five" or number % EVERY == 0]
    return {
        f"{way}.{number:02}": {
            "workload": WORKLOAD,
            "params": {**PARAMS},
            "device": "cpu",
            "measure": {"processes": counts.get(way, 5), "target_rel_ci": TARGET},
        }
        for way, number in [*turns, *((row, number) for row in ROWS for number in range(rounds))]
    }


def of_job(answer: Answer) -> Round:
    """Raises RuntimeError for a job that failed."""
    if answer.result is None or answer.took_s is None:
        raise RuntimeError(f"{WORKLOAD}: {answer.message}")
    metric = headline(answer.result)
    assert metric.value is not None
    clocks_hz = [run.clock_hz for run in answer.result.runs if run.clock_hz is not None]
    clock_hz = statistics.fmean(clocks_hz) if clocks_hz else None
    return Round(Interval(metric.value, metric.low, metric.high), metric.runs, answer.took_s, clock_hz=clock_hz)


def take_fixed(files: Files, number: str, found: Mapping[str, list[Round]]) -> None:
    """The fixed protocol once, unless it is kept; its values count once by process and once as if independent."""
    spec: Spec = {"workload": WORKLOAD, "params": {**PARAMS}, "processes": MEASURING}
    kept = files.get(f"fixed.{number}", spec)
    if kept is None:
        began_s = time.monotonic()
        kept = {"values": _fixed()}
        kept["took_s"] = time.monotonic() - began_s
        files.put(f"fixed.{number}", spec, kept)
    by_process: list[list[float]] = kept["values"]
    pooled = mean_interval([value for values in by_process for value in values])
    over_processes = mean_interval([median(values) for values in by_process])
    found["fixed"].append(Round(over_processes, len(by_process), kept["took_s"], before=1))
    found["pooled"].append(Round(pooled, len(by_process), kept["took_s"]))


def _fixed() -> list[list[float]]:
    loops = json.loads(printed("repeatability", 0))
    return [json.loads(printed("repeatability", loops)) for _ in range(MEASURING)]


def fixed_process(loops: int) -> int | list[float]:
    """Values as work per second; for 0 `loops` the smallest power of two of executions that lasts LEAST_S."""
    built = compiled(WORKLOAD, {**PARAMS})

    def time_s(count: int) -> float:
        begin_s = time.perf_counter()
        built.execute(count)
        return time.perf_counter() - begin_s

    if loops == 0:
        return next(count for count in (2**power for power in range(60)) if time_s(count) >= LEAST_S)
    return [built.work * loops / time_s(loops) for _ in range(1 + VALUES)][1:]


def holding(rounds: Sequence[Round]) -> int:
    """How many of the intervals hold the mean of all values."""
    centre = statistics.fmean(each.interval.value for each in rounds)
    return sum(holds(each.interval, centre) for each in rounds)


def to_target_s(each: Round, least: int) -> float:
    """The time for an answer within ±TARGET at this round's scatter and time per process: n grows, t/√n falls.

    `least`: processes that it takes however little they scatter.
    """
    width = each.interval.rel_half_width
    assert width is not None
    deviation = width * each.processes**0.5 / student_t(each.processes - 1)
    needed = least
    while student_t(needed - 1) * deviation / needed**0.5 > TARGET:
        needed += 1
    return each.took_s * (needed + each.before) / (each.processes + each.before)


def until_target_s(rounds: Sequence[Round]) -> float:
    """The median of the times measured until ±TARGET; infinite if half of the rounds or more missed it.

    A round that missed it would have taken longer by an unknown time: it counts as longer than all others.
    """
    return statistics.median([each.took_s if each.reached else math.inf for each in rounds])


def lines(found: Mapping[str, Sequence[Round]]) -> list[str]:
    text = f"""`{WORKLOAD}` with `{json.dumps(PARAMS)}`, each way in turns on an otherwise idle machine, all but the
        first in every second round. *Holding*: intervals (95 %, Student's t) that hold the mean of all values of that
        way; {HOLDING_AIM} of {ROUNDS} is the aim, with a median half-width of {WIDTH_AIM:.0%} at most. *±{TARGET:.0%}
        by scatter*: how long an answer within ±{TARGET:.0%} would take with as many processes as each round's scatter
        asks for, at its time per process (median over the rounds), from {LEAST["five"]} processes on for Dyno's ways.
        *±{TARGET:.0%} measured*: from the question to that answer, of all rounds; one that missed it with {MOST}
        processes counts as longer than any other, and those that reached it happened to scatter little. The fixed
        protocol is pyperf's default on the same op and cores, in plain processes: one finds how many executions last
        {LEAST_S:g} s, {MEASURING} warm up for one value and take {VALUES}. Values of one process resemble each other,
        so an interval over all {VALUES * MEASURING} may be too narrow. *Clock*: from the slowest job to the fastest, of
        the means of what Dyno measured after each run. Where it moved by more than {QUIET:.0%}, so did the speed, and
        no interval of one job can know what the next one will find."""
    rows = [_row(WAYS[way], way, rounds) for way, rounds in found.items() if rounds]
    head = ("way", "rounds", "mean", "clock", "holding", "half-width", "processes", "took")
    return [*prose(text), *table((*head, f"±{TARGET:.0%} by scatter", f"±{TARGET:.0%} measured"), rows)]


def _row(title: str, way: str, rounds: Sequence[Round]) -> list[object]:
    widths = [each.interval.rel_half_width or 0.0 for each in rounds]
    return [
        title,
        len(rounds),
        f"{statistics.fmean(each.interval.value for each in rounds) / 1e9:.4g} GFLOP/s",
        _clock([each.clock_hz for each in rounds if each.clock_hz is not None]),
        f"**{holding(rounds)} of {len(rounds)}**",
        f"**±{median(widths):.2%}** (worst ±{max(widths):.2%})",
        f"{median([each.processes for each in rounds]):g}",
        f"{median([each.took_s for each in rounds]):.0f} s",
        f"{median([to_target_s(each, LEAST[way]) for each in rounds]):.0f} s" if way in LEAST else "–",
        _measured(rounds) if way == "grown" else "–",
    ]


def _clock(clocks_hz: Sequence[float]) -> str:
    if not clocks_hz:
        return "–"
    by = clock_spread(clocks_hz)
    quiet = ", quiet" if by <= QUIET else ""
    return f"{min(clocks_hz) / 1e9:.2f} to {max(clocks_hz) / 1e9:.2f} GHz ({by:.1%}{quiet})"


def _measured(rounds: Sequence[Round]) -> str:
    middle_s, reached = until_target_s(rounds), sum(each.reached for each in rounds)
    shown = f"{middle_s:.0f} s" if middle_s < math.inf else f"over {max(each.took_s for each in rounds):.0f} s"
    return f"{shown} ({reached} of {len(rounds)} reached it)"


if __name__ == "__main__":
    print(json.dumps(fixed_process(int(sys.argv[1]))))

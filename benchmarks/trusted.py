"""Which share of jobs is `trusted`, on a quiet machine and under each condition that spoils a measurement?

Short jobs of one worker on one core, in turns. `alarms` asks the same of default jobs of four workloads. A step of 5 %
in the middle is replayed on the quiet jobs and on recorded runs, because this machine's clock can't be lowered.
Finished jobs are kept.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from benchmarks import conditions
from benchmarks.alarms import judged, row
from benchmarks.files import Spec
from benchmarks.jobs import Answer, KeptJobs
from benchmarks.recorded import PARAMS, kept
from benchmarks.report import prose, table, write
from dyno.bench.devices.cpu import format_cpulist
from dyno.bench.measure import change_points
from dyno.bench.measure.statistics import mean_interval
from dyno.bench.measure.warnings import MIN_PROCESSES, least_effect
from dyno.models.result import METHOD_VERSION, Result

STATE = Path("build") / "trusted"
JOBS, STEP = 20, 0.05
QUOTA_CORES = 0.8  # of the worker's one core
SPEC: Spec = {"workload": "matmul", "params": {"n": 256}}
METHOD = """Default jobs of `matmul` at n = 256 on one core of this machine, with a budget of 15 s, in turns under each
    condition. *Same core*, *neighbouring core*: a process that never sleeps, pinned to this core. *Step*: the quiet
    jobs, replayed with a clock that falls by {step:.0%} in the middle of the runs, and times that follow it (elasticity
    {elasticity}). Aim: 80 % of the quiet jobs are `trusted`, and no job under a condition that moves the figure.
    Intervals are Wilson's, 95 %."""
HOLDS = """Of the {still} jobs that stay `trusted` after the step, {holding} have an interval that holds both levels:
    the mean of all runs at the speed before the step, and at the speed after it. In the rest of these jobs, the step
    moves the value by more than the interval, but the runs scatter too much to show it."""
RECORDED = """The 60 recorded runs of each workload (`recorded/`), in every stretch of n neighbours, as they are and
    with times that rise by {step:.0%} in the middle. Their clocks aren't known, so only the times can show the step.
    *Raised*: NO_STEADY_STATE for a step or slide of the runs. If five runs scatter as much as these do, a step of
    {step:.0%} doesn't stand out, and their interval holds both levels."""


def main(jobs: int = JOBS, folder: Path = STATE) -> None:
    cores = sorted(os.sched_getaffinity(0))
    wanted = specs(jobs, cores[0])
    kept_jobs, found = KeptJobs(folder, _of_today), dict[str, Answer]()
    around = made(cores)
    try:
        device = f"cpu:{format_cpulist(cores[:1])}"
        found.update(kept_jobs.answers(wanted, device, around=lambda name: around[name.rpartition(".")[0]]()))
    finally:
        taken: dict[str, list[Result]] = {}
        for name, answer in kept_jobs.so_far(wanted, found).items():
            if answer.result is not None:
                taken.setdefault(name.rpartition(".")[0], []).append(answer.result)
        write("trusted", "Which jobs are trusted?", lines(taken))


def _of_today(result: Result) -> bool:
    return result.method_version == METHOD_VERSION


def made(cores: Sequence[int]) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
    """The conditions by name."""
    burners = {"burner on the same core": cores[0], "burner on a neighbouring core": cores[-1]}
    return {
        "quiet": nullcontext,
        **{
            name: partial(conditions.beside_process, conditions.BURN_ON.format(core=core))
            for name, core in burners.items()
        },
        "second TensorFlow": partial(conditions.beside_process, conditions.SECOND_TENSORFLOW),
        f"quota of {QUOTA_CORES:g} core": partial(conditions.cpu_quota, QUOTA_CORES),
    }


def specs(jobs: int, core: int) -> dict[str, Spec]:
    """By "<condition>.<number>", in turns."""
    spec = {**SPEC, "device": f"cpu:{format_cpulist([core])}"}
    return {f"{name}.{number:02}": spec for number in range(jobs) for name in made([core])}


def lines(taken: Mapping[str, Sequence[Result]]) -> list[str]:
    elasticity = conditions.ELASTICITY["matmul"]
    rows = [row(name, "matmul", [judged(result) for result in results]) for name, results in taken.items()]
    quiet = [*enumerate(taken.get("quiet", ()))]
    stepped = [_stepped(number, result) for number, result in quiet]
    still = [_holds_both_levels(*job) for job, (trusted, _) in zip(quiet, stepped, strict=True) if trusted]
    if quiet:
        rows.append(row(f"step of {STEP:.0%} in the middle", "matmul", stepped))
    head = ("condition", "workload", "jobs", "`trusted`", "warned", "codes of A and B")
    return [
        *prose(METHOD.format(step=STEP, elasticity=elasticity)),
        *table(head, rows),
        *prose(HOLDS.format(holding=sum(still), still=len(still))),
        *("## Recorded runs", ""),
        *prose(RECORDED.format(step=STEP)),
        *table(("runs of", "n", "raised", "raised after a step"), replayed()),
    ]


def _stepped(number: int, result: Result) -> tuple[bool, set[str]]:
    trusted, codes = judged(result)
    drifts = conditions.with_clock_step(result, _middle(len(result.runs), number), 1 - STEP) is not None
    return trusted and not drifts, codes | ({"CLOCK_DRIFT"} if drifts else set())


def _holds_both_levels(number: int, result: Result) -> bool:
    """Whether the interval of the stepped runs holds the mean of all runs at the speed before and after the step."""
    runs, factor = len(result.runs), 1 - STEP
    after, *levels = (
        mean_interval(conditions.stepped_times_s(result, at, factor)) for at in (_middle(runs, number), 0, runs)
    )
    return all((after.low or 0.0) <= level.value <= (after.high or math.inf) for level in levels)


def _middle(runs: int, number: int) -> int:
    """The run at which a step in the middle begins; of an odd number of runs, the two middles in turns."""
    return runs // 2 + number % 2 * (runs % 2)


def replayed() -> list[list[object]]:
    """How often the runs' times alone raise it, as they are and with a step in the middle of each stretch."""
    rows: list[list[object]] = []
    for name in PARAMS:
        times = [run.median_s for run in kept(name)]
        for count in (MIN_PROCESSES, 2 * MIN_PROCESSES):
            stretches = [times[start : start + count] for start in range(len(times) - count + 1)]
            raised = sum(map(_raised, stretches))
            stepped = [_with_step(each, _middle(count, place)) for place, each in enumerate(stretches)]
            after = sum(map(_raised, stepped))
            rows.append([f"`{name}`", count, *(f"{hits} of {len(stretches)}" for hits in (raised, after))])
    return rows


def _with_step(times: Sequence[float], at: int) -> list[float]:
    return [time_s * (1 + STEP if run >= at else 1) for run, time_s in enumerate(times)]


def _raised(times: Sequence[float]) -> bool:
    shift = change_points.largest_shift(times, change_points.SHIFT_LIMITS)
    return shift is not None and shift.moved > least_effect(shift.rel_half_width)

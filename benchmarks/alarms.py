"""Does the verdict tell a quiet machine from a disturbed one? How often is each warning right? Writes alarms.md.

Runs default jobs on a quiet machine (they count as jobs of `repeat`, too) and under conditions that spoil a
measurement. Then it runs the tests that provoke each code, again and again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from benchmarks import conditions, repeat
from benchmarks.files import Spec
from benchmarks.jobs import KeptJobs, made_here, run_all
from benchmarks.pairs import share
from benchmarks.report import RESULTS, prose, table, write
from dyno.bench.measure.warning_codes import CODES
from dyno.models.result import Result, Verdict

JOBS = 5  # of each workload under each condition that spoils a measurement
ROUNDS = 20  # of the tests that provoke a code
STEPS = (0.95, 0.9, 0.8)  # clock after the step, as a share of the clock before it
TRUSTED_AIM = 0.8
ALL = "all"  # in place of a workload: all workloads of a condition
RECORDED = RESULTS / "recorded" / "alarms.json"  # the rates of each code, which docs/warnings.md shows
_SEEN = "DYNO_PROVOKED"  # variable with the file to which the tests' process writes outcomes

Taken = Mapping[str, Sequence[Result]]  # by "<workload>, <condition>", in the order in which they ran
Rates = dict[str, dict[str, list[int]]]  # by code, then "quiet" or "provoked": times raised, number of jobs or tests


def main(jobs: int = JOBS, rounds: int = ROUNDS, folder: Path = repeat.STATE, recorded: Path = RECORDED) -> None:
    wanted, kept, hits = specs(jobs), KeptJobs(folder, made_here), dict[str, list[int]]()

    def publish(found: Mapping[str, object]) -> None:
        taken: dict[str, list[Result]] = {}
        for name, answer in kept.so_far(wanted, {}).items():
            if answer.result is not None:
                taken.setdefault(name.rpartition(".")[0], []).append(answer.result)
        rates = rates_of(taken, hits)
        recorded.write_text(json.dumps(rates, indent=1))
        write("alarms", "Does the verdict tell?", [*verdict_lines(taken), *rate_lines(rates)])

    run_all(wanted, kept, publish, _beside)
    hits |= provoked(rounds)
    publish({})


def specs(jobs: int) -> dict[str, Spec]:
    """Default jobs by "<workload>, <condition>.<number>", in turns. Twice as many are quiet: the jobs of `repeat`."""
    return {
        f"{workload}, {condition}.{number:02}": repeat.CASES[f"{workload}, {repeat.DEFAULT}"]
        for number in range(2 * jobs)
        for workload in repeat.WORKLOADS
        for condition in conditions.CONDITIONS
        if number < jobs or condition == repeat.DEFAULT
    }


def _beside(name: str) -> AbstractContextManager[None]:
    """The condition of the job of this name."""
    return conditions.CONDITIONS[name.rpartition(".")[0].rpartition(", ")[2]]()


def verdict_lines(taken: Taken) -> list[str]:
    text = f"""Default jobs of {len(repeat.WORKLOADS)} workloads in turns, each under one condition. *{repeat.DEFAULT}*:
        the machine as it is. *Clock step*: this machine's clock can't be lowered, so the default results are replayed.
        After one of the runs, the clock falls to the stated share, and the figures follow it as recorded (elasticity
        {conditions.ELASTICITY["matmul"]} for `matmul`, {conditions.ELASTICITY_ELSEWHERE} for the others). *Warned*:
        with a warning of class A or B. Intervals are Wilson's, 95 %. Aim: at least {TRUSTED_AIM:.0%} of the default
        jobs are `trusted`, and none of the others."""
    rows = [
        row(condition, workload, [judged(result) for result in of])
        for condition in conditions.CONDITIONS
        for workload in repeat.WORKLOADS
        if (of := taken.get(f"{workload}, {condition}"))
    ]
    rows += [
        row(condition, ALL, [judged(result) for result in of])
        for condition in conditions.CONDITIONS
        if (of := [each for workload in repeat.WORKLOADS for each in taken.get(f"{workload}, {condition}", ())])
    ]
    rows += [
        row(f"clock step to {factor:.0%}, replayed", workload, list(_stepped(of, factor)))
        for factor in STEPS
        for workload in repeat.WORKLOADS
        if (of := taken.get(f"{workload}, {repeat.DEFAULT}"))
    ]
    return [*prose(text), *table(("condition", "workload", "jobs", "`trusted`", "warned", "codes of A and B"), rows)]


def row(condition: str, workload: str, jobs: Sequence[tuple[bool, set[str]]]) -> list[object]:
    """`jobs`: whether each is trusted, and its codes of class A and B."""
    counted = Counter(code for _, codes in jobs for code in codes)
    said = ", ".join(f"{code} {count}" for code, count in counted.most_common()) or "–"
    trusted, warned = sum(trusted for trusted, _ in jobs), sum(bool(codes) for _, codes in jobs)
    of = workload if workload == ALL else f"`{workload}`"
    return [condition, of, len(jobs), _of(trusted, len(jobs)), _of(warned, len(jobs)), said]


def _stepped(results: Iterable[Result], factor: float) -> Iterable[tuple[bool, set[str]]]:
    """The step follows another run in each result: the first, the second, and so on."""
    for number, result in enumerate(each for each in results if len(each.runs) > 1):
        drifts = conditions.with_clock_step(result, 1 + number % (len(result.runs) - 1), factor) is not None
        trusted, codes = judged(result)
        yield trusted and not drifts, codes | ({"CLOCK_DRIFT"} if drifts else set())


def judged(result: Result) -> tuple[bool, set[str]]:
    """Whether the result is trusted, and its codes of class A and B."""
    codes = {raised.code for raised in result.warnings if raised.severity != "C"}
    return result.verdict is Verdict.TRUSTED, codes


def _of(hits: int, count: int) -> str:
    return f"{hits} of {count}, {share(hits, count)}" if count else "–"


def rates_of(taken: Taken, provoked_in: Mapping[str, Sequence[int]]) -> Rates:
    """The rates of each code that a result can have. On a quiet machine, only A and B are false alarms."""
    quiet = [result for case, of in taken.items() if case.endswith(f", {repeat.DEFAULT}") for result in of]
    rates: Rates = {}
    for code, row in CODES.items():
        if not row.at_submit:
            rates[code] = {"provoked": [*provoked_in.get(code, (0, 0))]}
            if row.severity != "C":
                rates[code]["quiet"] = [sum(code in judged(result)[1] for result in quiet), len(quiet)]
    return rates


def rate_lines(rates: Rates) -> list[str]:
    text = """*False alarms*: how many default jobs of these workloads had the code on a quiet machine. A warning of
        class C is true of the work, so it has no false alarms. *Hits*: how many of the tests that provoke the code
        found it. They use a workload with this fault, a process beside the workload, or recorded readings of sensors
        (`tests/bench/measure/test_provoked.py` lists the tests)."""
    rows = [(f"`{code}`", _of(*of.get("quiet", (0, 0))), _of(*of["provoked"])) for code, of in rates.items()]
    return ["## Each code", "", *prose(text), *table(("code", "false alarms", "hits"), rows)]


def provoked(rounds: int) -> dict[str, list[int]]:
    """How often the tests marked `provokes` found each code, and how often they ran; skipped tests don't count.

    Raises RuntimeError if the tests can't run.
    """
    counts: dict[str, list[int]] = {}
    with tempfile.NamedTemporaryFile("r") as seen:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "provokes", "-p", "benchmarks.alarms"]
        for _ in range(rounds):
            env = {**os.environ, _SEEN: seen.name}
            ended = subprocess.run(command, env=env, check=False, stdout=subprocess.DEVNULL)
            if ended.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                raise RuntimeError(f"pytest ended with {ended.returncode}: {' '.join(command)}")
        for line in seen:
            code, passed = line.split()
            hits = counts.setdefault(code, [0, 0])
            hits[0], hits[1] = hits[0] + int(passed), hits[1] + 1
    return counts


def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo[None]) -> None:
    """In the tests' process: note the outcome of each code that a test provokes."""
    failed = call.excinfo is not None
    if call.when == "teardown" or (call.when == "setup" and not failed):
        return
    if call.excinfo and call.excinfo.errisinstance(pytest.skip.Exception):
        return
    codes = [code for mark in item.iter_markers("provokes") for code in mark.args]
    case = getattr(item, "callspec", None)
    own = case.params.get("code") if case else None  # a test of many codes has one of them as its case
    with Path(os.environ[_SEEN]).open("a") as file:
        file.writelines(f"{code} {int(not failed)}\n" for code in codes if own in (None, code))

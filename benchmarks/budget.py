"""A budget of time against runs of a set length: seconds to the result, width, `repeat`, verdict. Writes budget.md.

Runs default jobs of nine workloads in turns: with the budget, and with the default runs of earlier versions. Then it
runs jobs with the budget under conditions that spoil a measurement. Finished jobs are kept in build/ and not run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from pydantic import JsonValue

from benchmarks import conditions
from benchmarks.alarms import judged, row
from benchmarks.files import Spec
from benchmarks.jobs import Answer, KeptJobs, headline, made_here, run_all
from benchmarks.pairs import share
from benchmarks.report import prose, table, write
from dyno.models.result import Result, Verdict

STATE = Path("build") / "budget"
JOBS = 20  # of each workload
BEFORE_EVERY = 7  # jobs with a budget for each job without, which takes ten minutes for some workloads
DISTURBED = 20  # jobs under each condition, over all workloads
WORKLOADS: Mapping[str, Spec] = {
    "matmul 64": {"workload": "matmul", "params": {"n": 64}},
    "matmul 768": {"workload": "matmul", "params": {"n": 768}},
    "matmul 2048": {"workload": "matmul", "params": {"n": 2048}},
    **{
        name: {"workload": name}
        for name in ("matmul", "mnist_cnn", "cifar10_cnn", "imdb_lstm", "quantized_inference", "input_pipeline")
    },
}
BEFORE: JsonValue = {"processes": 5, "min_samples": 20, "min_s": 2, "max_s": 60}
METHODS: Mapping[str, JsonValue] = {"budget of 15 s": {}, "runs of 2 to 60 s": BEFORE}
TEXT = """Default jobs of nine workloads on a quiet machine, by turns with a budget of 15 s and with five runs that each
    sample for 2 to 60 s, as jobs did before there was a budget. *Seconds*: from the submit to the result. *Width*: half
    of the interval from `low` to `high`, median of the jobs. *Next held*: how many results lay within `repeat` of the
    previous result of the same spec."""
SPOILT = """Jobs with a budget of 15 s, each beside something that spoils a measurement, the workloads in turns. Aim:
    none is `trusted`."""


def main(jobs: int = JOBS, disturbed: int = DISTURBED, folder: Path = STATE) -> None:
    wanted, kept = {**specs(jobs), **spoilt(disturbed)}, KeptJobs(folder, made_here)

    def publish(found: Mapping[str, Answer]) -> None:
        taken: dict[str, list[Answer]] = {}
        for name, answer in kept.so_far(wanted, found).items():
            if answer.result is not None:
                taken.setdefault(name.rpartition(".")[0], []).append(answer)
        write("budget", "An answer within a budget", lines(taken))

    run_all(wanted, kept, publish, lambda name: _beside().get(name.rpartition(".")[0], nullcontext)())


def specs(jobs: int) -> dict[str, Spec]:
    """By "<workload>, <method>.<number>", in turns."""
    return {
        f"{name}, {method}.{number:02}": {**spec, "device": "cpu", "measure": measure}
        for number in range(jobs)
        for name, spec in WORKLOADS.items()
        for method, measure in METHODS.items()
        if measure != BEFORE or number % BEFORE_EVERY == 0
    }


def spoilt(jobs: int) -> dict[str, Spec]:
    """By "<condition>.<number>", in turns."""
    all_specs = [*WORKLOADS.values()]
    return {
        f"{condition}.{number:02}": {**all_specs[number % len(all_specs)], "device": "cpu"}
        for number in range(jobs)
        for condition in _beside()
    }


def _beside() -> dict[str, Callable[[], AbstractContextManager[None]]]:
    core = max(os.sched_getaffinity(0))
    return {
        "beside a burner on one of its cores": partial(conditions.beside_process, conditions.BURN_ON.format(core=core)),
        "beside a second TensorFlow": partial(conditions.beside_process, conditions.SECOND_TENSORFLOW),
        f"quota of {conditions.QUOTA_CORES:g} core": conditions.cpu_quota,
    }


def lines(taken: Mapping[str, Sequence[Answer]]) -> list[str]:
    head = ("workload", "method", "jobs", "seconds: median, worst", "runs", "width", "next held", "`trusted`")
    rows = [
        [f"`{name}`", method, *_figures(answers)]
        for name in WORKLOADS
        for method in METHODS
        if (answers := taken.get(f"{name}, {method}"))
    ]
    disturbed = [
        row(name, "all", [judged(each.result) for each in answers if each.result])
        for name in _beside()
        if (answers := taken.get(name))
    ]
    verdicts = ("condition", "workload", "jobs", "`trusted`", "warned", "codes of A and B")
    return [*prose(TEXT), *table(head, rows), "## Disturbed", "", *prose(SPOILT), *table(verdicts, disturbed)]


def _figures(answers: Sequence[Answer]) -> Iterator[object]:
    results = [each.result for each in answers if each.result is not None]
    took_s = [each.took_s or 0.0 for each in answers]
    yield len(results)
    yield f"{median(took_s):.1f}, {max(took_s):.1f}"
    yield f"{median([len(each.runs) for each in results]):.0f}"
    widths = [
        (each.high - each.low) / 2 / each.value
        for each in map(headline, results)
        if each.low and each.high and each.value
    ]
    yield f"±{median(widths):.2%}" if widths else "–"
    held = [*_held(results)]
    yield f"{sum(held)} of {len(held)}, {share(sum(held), len(held))}" if held else "–"
    trusted = sum(each.verdict is Verdict.TRUSTED for each in results)
    yield f"{trusted} of {len(results)}, {share(trusted, len(results))}"


def _held(results: Sequence[Result]) -> Iterator[bool]:
    for first, second in pairwise(map(headline, results)):
        if first.repeat is not None and second.value is not None:
            yield first.repeat.low <= second.value <= first.repeat.high

"""The page: a row for each workload, then what was chosen and what was reduced."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from statistics import median
from typing import Any

from benchmarks.pairs import ratio
from benchmarks.report import prose
from benchmarks.trainings.setups import Setup
from benchmarks.trainings.taken import PAIRS_EACH, PROCESSES, SLOW_MODE, Pair, Taken

AIM = 1.05  # the most that the upper bound may be
ENOUGH = 10  # pairs


def lines(setups: Mapping[str, Setup], taken: Mapping[str, Taken]) -> list[str]:
    return [
        *prose(
            f"""On TensorFlow, in one process: an epoch's worth of Dyno's own steps and an epoch of plain `model.fit` in
            turns (ABBA), {PAIRS_EACH} pairs in each of up to {PROCESSES} fresh processes. The plain model is
            written by hand, apart from Dyno's workloads: the same layers, dropout, loss, optimiser, metrics, batch and
            shuffle, on the same data, windows cut beforehand. The first epoch of each, which compiles, is left out.
            After it each thread of TensorFlow is bound to one core: without that, the kernel at times keeps two threads
            on one core, and epochs of either side then take up to 1.6 times as long. Pairs whose fit still took over
            {SLOW_MODE:g} times its fastest epoch are left out. Each has the `jit_compile` that was measured to be the
            better one for it, where both were tried (see below). Microseconds are medians; the ratio is the geometric
            mean of the processes' (each of its medians), its interval Student's t on their logarithms: pairs of one
            process share what that process drew. An epoch of fit has a fixed cost of about 20 ms that Dyno's steps
            have not; of epochs as short as these (0.8 to 1.8 s) it is 1 to 2.5 %. The pairs are in
            `recorded/trainings/`. The aim: an upper bound of at most {AIM}."""
        ),
        "| workload | jit_compile: Dyno, fit | Dyno, µs/sample | fit, µs/sample | Dyno / fit | 95 % interval "
        "| one-sided upper 95 % bound | pairs (left out) | by process |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(workload, taken[workload]) for workload in setups),
        "",
        "## Sizes and settings",
        "",
        "All else has the workload's defaults.",
        "",
        *chain.from_iterable(_settings(workload, setup, taken[workload]) for workload, setup in setups.items()),
    ]


def _row(workload: str, taken: Taken) -> str:
    every = [pair for run in taken.pairs for pair in run]
    processes = [_medians(run) for run in taken.pairs if run]
    if taken.choices is None or len(processes) < 2:
        return f"| `{workload}` | not run yet {'| – ' * 7}|"
    found = ratio(*zip(*processes, strict=True))
    cells = [
        f"`{workload}`",
        ", ".join(str(taken.choices[side]["chosen"]).lower() for side in ("dyno", "fit")),
        *(f"{median(pair[side] for pair in every) * 1e6:,.4g}" for side in (0, 1)),
        f"{found.value:.3f}",
        f"{found.low:.3f} to {found.high:.3f}",
        f"{found.upper_95:.3f}{'' if found.upper_95 <= AIM else ', above the aim'}",
        f"{len(every)} ({taken.left_out}){'' if len(every) >= ENOUGH else ', too few'}",
        ", ".join(f"{ours / fit:.3f}" for ours, fit in processes),
    ]
    return f"| {' | '.join(cells)} |"


def _medians(run: list[Pair]) -> Pair:
    return median(ours for ours, _ in run), median(fit for _, fit in run)


def _settings(workload: str, setup: Setup, taken: Taken) -> list[str]:
    kinds = " and ".join(sorted({run["data"] for run in taken.runs})) or "none yet"
    choices = taken.choices or {}
    return [
        f"- `{workload}`: {setup.reduced}; {setup.steps} steps an epoch. Data: {kinds}.",
        *(f"  - {'Dyno' if side == 'dyno' else side}: {_choice(choice)}" for side, choice in choices.items()),
    ]


def _choice(choice: Mapping[str, Any]) -> str:
    """How it came about, and the times it rests on."""
    times = choice.get("step_s", {})
    measured = ", ".join(f"{setting} {time_s * 1e3:,.4g} ms" for setting, time_s in times.items())
    step = f" (a step at batch {choice['batch_size']}: {measured})" if measured else ""
    return f"`jit_compile` {str(choice['chosen']).lower()}: {choice['how']}{step}."

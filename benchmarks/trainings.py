"""`python -m benchmarks.trainings [WORKLOAD …]`: each training's own steps against plain Keras' `model.fit`.

Minutes a workload, in turns in one process. The answers of finished processes are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.files import Files, Spec
from benchmarks.pairs import printed, ratio
from benchmarks.report import RESULTS, machine, prose, requested, table, write

STATE: Path = RESULTS / "recorded" / "trainings"
PROCESSES, PAIRS_EACH = 6, 3
SLOW_MODE = 1.3  # fit's epochs were seen in two modes, 180 and 310 us a sample: above this share of the fastest is slow
AIM = 1.05  # the most that the upper bound may be
ENOUGH = 10  # pairs
XLA_ON_LOOPS = "XLA was not tried: on a CPU it made recurrent loops slower and took 4 to 10 times the memory or more"

Answer = dict[str, Any]
Pair = tuple[float, float]  # Dyno, fit: seconds per sample


@dataclass(frozen=True)
class Setup:
    """`params` of Dyno's workload: an epoch of theirs is `steps` full batches. The plain model takes `sizes`."""

    params: Mapping[str, int]
    steps: int
    reduced: str  # beside the workload's defaults
    sizes: Mapping[str, int] = field(default_factory=dict)
    no_xla: str | None = None  # why `jit_compile` isn't tried

    @property
    def batch_size(self) -> int:
        return self.params["batch_size"]

    @property
    def samples(self) -> int:
        return self.steps * self.batch_size


# An epoch's worth takes about a second on two cores.
SETUPS = {
    "mnist_cnn": Setup({"batch_size": 1024, "train_samples": 10_240}, 10, "10,240 of 60,000 digits"),
    "fashion_mnist_cnn": Setup(
        {"batch_size": 128, "train_samples": 1024}, 8, "batch 128 instead of 1024; 1,024 of 60,000 images"
    ),
    "cifar10_cnn": Setup({"batch_size": 128, "train_samples": 2560}, 20, "2,560 of 50,000 images"),
    "imdb_lstm": Setup({"batch_size": 64, "train_samples": 1536}, 24, "1,536 of 25,000 reviews", no_xla=XLA_ON_LOOPS),
    "weather_gru": Setup(
        {"batch_size": 32, "steps_per_epoch": 3, "window": 336},
        3,
        "batch 32 instead of 256, windows of 336 hours instead of 1344",
        {"window": 336},
        XLA_ON_LOOPS,
    ),
    "shakespeare_lstm": Setup(
        {"batch_size": 32, "steps_per_epoch": 3}, 3, "batch 32 instead of 128", no_xla=XLA_ON_LOOPS
    ),
    "resnet50": Setup(
        {"batch_size": 16, "images": 96, "image_size": 64},
        6,
        "batch 16 instead of 32, images of 64 x 64 instead of 224 x 224",
        {"image_size": 64},
    ),
}


@dataclass(frozen=True)
class Taken:
    """What is kept of a workload: `choices` (None before it has run) and by process `side_by_side` of `model_fit`."""

    choices: Answer | None = None
    runs: list[Answer] = field(default_factory=list)

    @property
    def pairs(self) -> list[list[Pair]]:
        """By process, without those whose fit was in its slow mode."""
        fastest = min((time_s for run in self.runs for time_s in run["fit"]), default=0.0)
        every = [zip(run["dyno"], run["fit"], strict=True) for run in self.runs]
        return [[pair for pair in run if pair[1] <= SLOW_MODE * fastest] for run in every]

    @property
    def left_out(self) -> int:
        """How many pairs."""
        return sum(len(run["fit"]) for run in self.runs) - sum(map(len, self.pairs))


def main(workloads: Iterable[str] = tuple(SETUPS)) -> None:
    files = Files(STATE)
    try:
        for workload in workloads:
            take(workload, SETUPS[workload], files)
    finally:  # also when Ctrl-C ends it: the page then says what is missing
        taken = {name: kept(name, setup, files) for name, setup in SETUPS.items()}
        write("trainings", "Time per sample of every training against model.fit", lines(SETUPS, taken))


def in_a_process(*arguments: str) -> Answer:
    answer: Answer = json.loads(printed("model_fit", *arguments))
    return answer


def take(workload: str, setup: Setup, files: Files, ask: Callable[..., Answer] = in_a_process) -> None:
    """Ask for what isn't kept yet, one process after the other."""

    def once(name: str, spec: Spec, *arguments: str) -> Answer:
        found = files.get(name, spec)
        if found is None:
            print(f"{name}: {' '.join(arguments)}", flush=True)
            found = {"answer": ask(*arguments)}
            files.put(name, spec, found)
        answer: Answer = found["answer"]
        return answer

    choices = once(f"{workload}.choices", _spec(setup), "choices", workload)
    settings = [str(int(choices[side]["chosen"])) for side in ("dyno", "fit")]
    for number in range(PROCESSES):
        once(f"{workload}.{number}", _spec(setup, choices), "side_by_side", workload, str(PAIRS_EACH), *settings)


def kept(workload: str, setup: Setup, files: Files) -> Taken:
    first = files.get(f"{workload}.choices", _spec(setup))
    if first is None:
        return Taken()
    found = [files.get(f"{workload}.{number}", _spec(setup, first["answer"])) for number in range(PROCESSES)]
    return Taken(first["answer"], [each["answer"] for each in found if each is not None])


def _spec(setup: Setup, choices: Answer | None = None) -> dict[str, Any]:
    """Of another size or setting, or on another machine, a process is measured again."""
    spec = {"params": dict(setup.params), "steps": setup.steps, "machine": machine()}
    if choices is None:
        return spec
    chosen = {side: choices[side]["chosen"] for side in ("dyno", "fit")}
    return spec | {"pairs": PAIRS_EACH, "threads": "bound", "jit_compile": chosen}


def lines(setups: Mapping[str, Setup], taken: Mapping[str, Taken]) -> list[str]:
    text = f"""On TensorFlow, in one process: an epoch's worth of Dyno's own steps and an epoch of plain `model.fit` in
        turns (ABBA), {PAIRS_EACH} pairs in each of up to {PROCESSES} fresh processes. The plain model is written by
        hand, apart from Dyno's workloads: the same layers, dropout, loss, optimiser, metrics, batch and shuffle, on the
        same data, windows cut beforehand. The first epoch of each, which compiles, is left out. After it each thread of
        TensorFlow is bound to one core ([decision 11](../decisions/0011-threads-stay-unbound.md)). Pairs whose fit
        still took over {SLOW_MODE:g} times its fastest epoch are left out. Each has the `jit_compile` that was measured
        to be the better one for it, where both were tried (see below). Microseconds are medians; the ratio is the
        geometric mean of the processes' (each of its medians), its interval Student's t on their logarithms. An epoch
        of fit has a fixed cost of about 20 ms that Dyno's steps have not; of epochs as short as these (0.8 to 1.8 s) it
        is 1 to 2.5 %. The pairs are in `recorded/trainings/`. The aim: an upper bound of at most {AIM}."""
    columns = ("workload", "jit_compile: Dyno, fit", "Dyno, µs/sample", "fit, µs/sample", "Dyno / fit", "95 % interval")
    more = ("one-sided upper 95 % bound", "pairs (left out)", "by process")
    return [
        *prose(text),
        *table((*columns, *more), [_row(workload, taken[workload]) for workload in setups]),
        *("## Sizes and settings", "", "All else has the workload's defaults.", ""),
        *chain.from_iterable(_settings(workload, setup, taken[workload]) for workload, setup in setups.items()),
    ]


def _row(workload: str, taken: Taken) -> list[str]:
    every = [pair for run in taken.pairs for pair in run]
    processes = [(median(ours for ours, _ in run), median(fit for _, fit in run)) for run in taken.pairs if run]
    if taken.choices is None or len(processes) < 2:
        return [f"`{workload}`", "not run yet", *["–"] * 7]
    found = ratio(*zip(*processes, strict=True))
    return [
        f"`{workload}`",
        ", ".join(str(taken.choices[side]["chosen"]).lower() for side in ("dyno", "fit")),
        *(f"{median(pair[side] for pair in every) * 1e6:,.4g}" for side in (0, 1)),
        f"{found.value:.3f}",
        f"{found.low:.3f} to {found.high:.3f}",
        f"{found.upper_95:.3f}{'' if found.upper_95 <= AIM else ', above the aim'}",
        f"{len(every)} ({taken.left_out}){'' if len(every) >= ENOUGH else ', too few'}",
        ", ".join(f"{ours / fit:.3f}" for ours, fit in processes),
    ]


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


if __name__ == "__main__":
    main(requested(SETUPS))

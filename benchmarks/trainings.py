"""Each training's own steps against plain Keras' `model.fit`, in minutes a workload. Answers of processes are kept.

`python -m benchmarks.trainings WORKLOAD PAIRS` is one process: an epoch's worth of Dyno's own training steps and an
epoch of `fit`, in turns (ABBA). It prints JSON: seconds per sample of each pair.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import JsonValue

from benchmarks.files import Files, Spec
from benchmarks.in_process import compiled
from benchmarks.pairs import in_turns, printed, ratio
from benchmarks.report import RESULTS, machine, prose, table, write

STATE = RESULTS / "recorded" / "trainings"
PROCESSES, PAIRS_EACH = 6, 3
SLOW_MODE = 1.3  # epochs of fit had two modes, 180 and 310 us a sample: above 1.3 times the fastest, an epoch is slow
AIM = 1.05  # maximum of the upper bound
ENOUGH = 10  # minimum number of pairs
# XLA on a CPU took three times as long or more, in Dyno as well as in fit; recurrent loops never use it.
JIT_COMPILE = False
_TASKS = Path("/proc/self/task")

Pair = tuple[float, float]  # Dyno, fit: seconds per sample


@dataclass(frozen=True)
class Setup:
    """`params` of Dyno's workload: their epoch has `steps` full batches. `sizes`: arguments of the plain model."""

    params: Mapping[str, JsonValue]
    steps: int
    reduced: str  # compared with the workload's defaults
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def batch_size(self) -> int:
        return int(str(self.params["batch_size"]))

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
    "imdb_lstm": Setup({"batch_size": 64, "train_samples": 1536}, 24, "1,536 of 25,000 reviews"),
    "weather_gru": Setup(
        {"batch_size": 32, "steps_per_epoch": 3, "window": 336},
        3,
        "batch 32 instead of 256, windows of 336 hours instead of 1344",
        {"window": 336},
    ),
    "shakespeare_lstm": Setup({"batch_size": 32, "steps_per_epoch": 3}, 3, "batch 32 instead of 128"),
    "resnet50": Setup(
        {"batch_size": 16, "images": 96, "image_size": 64},
        6,
        "batch 16 instead of 32, images of 64 x 64 instead of 224 x 224",
        {"image_size": 64},
    ),
}


def main(
    workloads: Iterable[str] = tuple(SETUPS), processes: int = PROCESSES, pairs: int = PAIRS_EACH, folder: Path = STATE
) -> None:
    files = Files(folder)
    try:
        for workload in workloads:
            for number in range(processes):
                files.once(f"{workload}.{number}", spec(workload, pairs), partial(_measured, workload, pairs))
    finally:  # also when Ctrl-C ends it: the page then says what is missing
        kept = {workload: kept_runs(workload, files, pairs) for workload in SETUPS}
        write("trainings", "Time per sample of every training against model.fit", lines(kept))


def _measured(workload: str, pairs: int) -> Spec:
    return {"answer": json.loads(printed("trainings", workload, pairs))}


def spec(workload: str, pairs: int = PAIRS_EACH) -> Spec:
    """The spec of a process. It is measured again with other sizes or on another machine."""
    setup = SETUPS[workload]
    how: Spec = {"pairs": pairs, "threads": "bound", "jit_compile": {"dyno": JIT_COMPILE, "fit": JIT_COMPILE}}
    return {"params": dict(setup.params), "steps": setup.steps, "machine": machine(), **how}


def kept_runs(workload: str, files: Files, pairs: int = PAIRS_EACH) -> list[dict[str, Any]]:
    found = (files.get(f"{workload}.{number}", spec(workload, pairs)) for number in range(PROCESSES))
    return [each["answer"] for each in found if each is not None]


def side_by_side(workload: str, pairs: int) -> dict[str, Any]:
    """`dyno` and `fit`: seconds per sample of each pair; `data`: the kind of data."""
    from benchmarks.plain_keras import PLAIN, epochs_s  # imports Keras

    setup = SETUPS[workload]
    built = compiled(workload, dict(setup.params), {"jit_compile": JIT_COMPILE})
    plain = PLAIN[workload](**setup.sizes)
    model, data = plain.make(JIT_COMPILE), plain.load(setup.samples).repeated(setup.samples)

    def steps_s() -> float:
        begin_s = time.perf_counter()
        built.execute(setup.steps)
        return time.perf_counter() - begin_s

    turns = {"dyno": steps_s, "fit": lambda: epochs_s(model, data, setup.batch_size)[0]}
    in_turns(turns, 1)  # the first of each compiles
    bind_threads(sorted(os.sched_getaffinity(0)))  # every thread has started
    times = in_turns(turns, pairs)
    return {side: [time_s / setup.samples for time_s in times[side]] for side in turns} | {"data": data.kind}


def bind_threads(cores: Sequence[int]) -> int:
    """Bind each of the framework's threads to one core. Return the number of threads. Raises RuntimeError without any.

    The kernel at times keeps two threads of a pool on one core. Steps of a recurrent layer then take up to 1.6 times as
    long, Dyno's and those of `fit` alike (decision 11). Threads of one name are one pool, and get the cores in turn.
    """
    own = {thread.native_id for thread in threading.enumerate()}
    pools: dict[str, list[int]] = defaultdict(list)
    for thread in sorted({int(entry.name) for entry in _TASKS.iterdir()} - own):
        with suppress(OSError):  # it has just ended, or a sandbox forbids it
            pool = pools[(_TASKS / str(thread) / "comm").read_text().strip()]
            os.sched_setaffinity(thread, {cores[len(pool) % len(cores)]})
            pool.append(thread)
    if not any(pools.values()):
        raise RuntimeError("no thread could be bound to a core")
    return sum(map(len, pools.values()))


def lines(kept: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    text = f"""On TensorFlow, in one process: an epoch's worth of Dyno's own steps and an epoch of plain `model.fit` in
        turns (ABBA), {PAIRS_EACH} pairs in each of up to {PROCESSES} fresh processes. The plain model is written by
        hand, independently of Dyno's workloads: the same layers, dropout, loss, optimiser, metrics, batch and shuffle,
        on the same data, with windows cut beforehand. The first epoch of each, which compiles, is left out. After that,
        each thread of TensorFlow is bound to one core ([decision 11](../dev/decisions/0011-threads-stay-unbound.md)).
        Pairs in which an epoch of fit still took over {SLOW_MODE:g} times its fastest epoch are left out. Both have
        `jit_compile` false. On 2026-11-22, a step through XLA took 3.1 to 13.6 times as long, in Dyno as well as in
        fit. Recurrent loops never use XLA on a CPU ([method](../method.md)). Microseconds are medians; the ratio is the
        geometric mean of the processes' ratios of medians, with Student's t interval on their logarithms. An epoch of
        fit has a fixed cost of about 20 ms, which Dyno's steps don't have: 1 to 2.5 % of such short epochs (0.8 to 1.8
        s). The pairs are in `recorded/trainings/`. The aim is an upper bound of at most {AIM}."""
    columns = ("workload", "Dyno, µs/sample", "fit, µs/sample", "Dyno / fit", "95 % interval")
    more = ("one-sided upper 95 % bound", "pairs (left out)", "by process")
    return [
        *prose(text),
        *table((*columns, *more), [_row(workload, runs) for workload, runs in kept.items()]),
        *("## Sizes", "", "All other params have the workload's defaults.", ""),
        *(_size(workload, runs) for workload, runs in kept.items()),
    ]


def _row(workload: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    pairs = [list[Pair](zip(run["dyno"], run["fit"], strict=True)) for run in runs]
    fastest = min((fit for run in pairs for _, fit in run), default=0.0)
    quick = [[pair for pair in run if pair[1] <= SLOW_MODE * fastest] for run in pairs]
    processes = [(median(ours for ours, _ in run), median(fit for _, fit in run)) for run in quick if run]
    if len(processes) < 2:
        return [f"`{workload}`", "not run yet", *["–"] * 6]
    every = [pair for run in quick for pair in run]
    left_out, found = sum(map(len, pairs)) - len(every), ratio(*zip(*processes, strict=True))
    return [
        f"`{workload}`",
        *(f"{median(pair[side] for pair in every) * 1e6:,.4g}" for side in (0, 1)),
        f"{found.value:.3f}",
        f"{found.low:.3f} to {found.high:.3f}",
        f"{found.upper_95:.3f}{'' if found.upper_95 <= AIM else ', above the aim'}",
        f"{len(every)} ({left_out}){'' if len(every) >= ENOUGH else ', too few'}",
        ", ".join(f"{ours / fit:.3f}" for ours, fit in processes),
    ]


def _size(workload: str, runs: Sequence[Mapping[str, Any]]) -> str:
    setup, kinds = SETUPS[workload], " and ".join(sorted({run["data"] for run in runs})) or "none yet"
    return f"- `{workload}`: {setup.reduced}; {setup.steps} steps an epoch. Data: {kinds}."


if __name__ == "__main__":
    print(json.dumps(side_by_side(sys.argv[1], int(sys.argv[2]))))

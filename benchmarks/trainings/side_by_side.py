"""One process: an epoch's worth of Dyno's own training steps, an epoch of plain `model.fit`, in turns (ABBA).

`python -m benchmarks.trainings.side_by_side WORKLOAD PAIRS DYNO_JIT FIT_JIT` (the last two 0 or 1) prints both as JSON,
seconds per sample. The first epoch of each is left out: it compiles. From then on each of
TensorFlow's threads keeps to one core.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from benchmarks.in_process import compiled
from benchmarks.trainings.plain import epochs_s
from benchmarks.trainings.setups import SETUPS, Setup
from benchmarks.trainings.threads import bind_pools
from benchmarks.trainings.witnesses import WITNESSES
from dyno.workloads.contract import Built


def main(workload: str, pairs: int, dyno_jit: bool, fit_jit: bool) -> None:
    print(json.dumps(side_by_side(workload, SETUPS[workload], pairs, dyno_jit, fit_jit)))


def side_by_side(workload: str, setup: Setup, pairs: int, dyno_jit: bool, fit_jit: bool) -> dict[str, Any]:
    """`dyno` and `fit`: seconds per sample of each pair; `data`: the kind of data."""
    built = compiled(workload, dict(setup.params), {"jit_compile": dyno_jit})
    plain = WITNESSES[workload](**setup.sizes)
    model, data = plain.make(fit_jit), plain.load(setup.samples)
    ours: list[float] = []
    fit: list[float] = []
    for pair in range(pairs + 1):
        turns = [
            lambda: ours.append(_steps_s(built, setup.steps)),
            lambda: fit.extend(epochs_s(model, data, setup.batch_size)),
        ]
        for turn in turns if pair % 2 == 0 else reversed(turns):
            turn()
        if pair == 0:  # every thread has started
            bind_pools(sorted(os.sched_getaffinity(0)))
    per_sample = {
        name: [time_s / setup.samples for time_s in times[1:]] for name, times in (("dyno", ours), ("fit", fit))
    }
    return {**per_sample, "data": data.kind}


def _steps_s(built: Built, steps: int) -> float:
    begin_s = time.perf_counter()
    built.execute(steps)
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *(argument == "1" for argument in sys.argv[3:5]))

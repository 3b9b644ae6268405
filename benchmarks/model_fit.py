"""One process beside plain `model.fit`: prints JSON. `python -m benchmarks.model_fit` with either

- `choices WORKLOAD`: which `jit_compile` Dyno chooses, and which is measured to be the better one for `fit`. XLA is
  first tried on one small batch: on a CPU a convolution takes it minutes where TensorFlow takes seconds.
- `side_by_side WORKLOAD PAIRS DYNO_JIT FIT_JIT` (the last two 0 or 1): an epoch's worth of Dyno's own training steps
  and an epoch of `fit`, in turns (ABBA). The first of each compiles and is left out. From then on each of TensorFlow's
  threads keeps to one core.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import keras
from pydantic import JsonValue

from benchmarks.in_process import compiled
from benchmarks.pairs import in_turns
from benchmarks.plain_keras import PLAIN, Data, Plain, epochs_s
from benchmarks.threads import bind_pools
from benchmarks.trainings import SETUPS, Setup

SMALL_BATCH = 32
HOPELESS = 3.0  # times as long as without on the small batch: not tried on the full size
EPOCHS = 3  # the first one compiles

Choice = dict[str, JsonValue]


def choices(workload: str) -> dict[str, Choice]:
    setup = SETUPS[workload]
    ours: Choice = compiled(workload, dict(setup.params)).verify().details["jit_compile_choice"]
    keras.backend.clear_session()
    return {"dyno": ours, "fit": _of_fit(PLAIN[workload](**setup.sizes), setup)}


def _of_fit(plain: Plain, setup: Setup) -> Choice:
    if setup.no_xla is not None:
        return {"chosen": False, "how": setup.no_xla}
    full, batch = plain.load(setup.samples), min(SMALL_BATCH, setup.batch_size)
    step_s = _step_s(plain, Data(full.inputs[:batch], full.targets[:batch], full.kind), batch, 1)
    if step_s[True] > HOPELESS * step_s[False]:
        return _faster(step_s, f"measured; compiled by XLA a step takes more than {HOPELESS:g} times as long", batch)
    return _faster(_step_s(plain, full, setup.batch_size, setup.steps), "the faster one", setup.batch_size)


def _step_s(plain: Plain, data: Data, batch_size: int, steps: int) -> dict[bool, float]:
    """By setting: a step of the fastest epoch but the first."""
    return {jit: min(epochs_s(plain.make(jit), data, batch_size, EPOCHS)[1:]) / steps for jit in (False, True)}


def _faster(step_s: dict[bool, float], how: str, batch_size: int) -> Choice:
    times: Choice = {str(setting).lower(): seconds for setting, seconds in step_s.items()}
    return {"chosen": step_s[True] < step_s[False], "how": how, "batch_size": batch_size, "step_s": times}


def side_by_side(workload: str, setup: Setup, pairs: int, dyno_jit: bool, fit_jit: bool) -> dict[str, Any]:
    """`dyno` and `fit`: seconds per sample of each pair; `data`: the kind of data."""
    built = compiled(workload, dict(setup.params), {"jit_compile": dyno_jit})
    plain = PLAIN[workload](**setup.sizes)
    model, data = plain.make(fit_jit), plain.load(setup.samples)

    def steps_s() -> float:
        begin_s = time.perf_counter()
        built.execute(setup.steps)
        return time.perf_counter() - begin_s

    turns = {"dyno": steps_s, "fit": lambda: epochs_s(model, data, setup.batch_size)[0]}
    in_turns(turns, 1)
    bind_pools(sorted(os.sched_getaffinity(0)))  # every thread has started
    times = in_turns(turns, pairs)
    return {side: [time_s / setup.samples for time_s in times[side]] for side in turns} | {"data": data.kind}


if __name__ == "__main__":
    what, workload, *more = sys.argv[1:]
    if what == "choices":
        print(json.dumps(choices(workload)))
    else:
        pairs, dyno_jit, fit_jit = map(int, more)
        print(json.dumps(side_by_side(workload, SETUPS[workload], pairs, bool(dyno_jit), bool(fit_jit))))

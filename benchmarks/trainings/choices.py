"""One process: which `jit_compile` Dyno chooses for a workload, and which is the better one for `fit`, by measurement.

`python -m benchmarks.trainings.choices WORKLOAD` prints both as JSON. XLA is first tried on one small batch: on a CPU a
convolution takes it minutes where TensorFlow takes seconds, and then a full epoch of it would tell nothing more.
"""

from __future__ import annotations

import json
import sys

import keras
from pydantic import JsonValue

from benchmarks.in_process import compiled
from benchmarks.trainings.plain import Data, Plain, epochs_s
from benchmarks.trainings.setups import SETUPS, Setup
from benchmarks.trainings.witnesses import WITNESSES

SMALL_BATCH = 32
HOPELESS = 3.0  # times as long as without on the small batch: not tried on the full size
EPOCHS = 3  # the first one compiles

Choice = dict[str, JsonValue]


def main(workload: str) -> None:
    setup = SETUPS[workload]
    ours: Choice = compiled(workload, dict(setup.params)).verify().details["jit_compile_choice"]
    keras.backend.clear_session()
    print(json.dumps({"dyno": ours, "fit": _of_fit(WITNESSES[workload](**setup.sizes), setup)}))


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
    return {
        setting: min(epochs_s(plain.make(setting), data, batch_size, EPOCHS)[1:]) / steps for setting in (False, True)
    }


def _faster(step_s: dict[bool, float], how: str, batch_size: int) -> Choice:
    times: Choice = {str(setting).lower(): seconds for setting, seconds in step_s.items()}
    return {"chosen": step_s[True] < step_s[False], "how": how, "batch_size": batch_size, "step_s": times}


if __name__ == "__main__":
    main(sys.argv[1])

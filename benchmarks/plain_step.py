"""How far right and wrong training steps lie from the plain step they are held against, and what that costs.

`python -m benchmarks plain_step` writes docs/results/plain_step.md; PyTorch's rows where it is installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.in_process import compiled
from benchmarks.pairs import printed
from benchmarks.report import prose, table, write
from dyno.frameworks import framework
from dyno.frameworks.interface import Dataset, Framework
from dyno.measure.correctness import ALLOWED_ROUNDINGS

Spoil = Callable[[Any, Dataset], Dataset]
SMALL: dict[str, Any] = {"data": "synthetic", "epochs": 1, "jit_compile": False}
TRAININGS: dict[str, dict[str, Any]] = {
    "mnist_cnn": SMALL | {"train_samples": 2048, "test_samples": 32, "batch_size": 128},
    "cifar10_cnn": SMALL | {"train_samples": 512, "test_samples": 32, "batch_size": 64},
    "imdb_lstm": SMALL | {"train_samples": 256, "test_samples": 32, "batch_size": 64, "length": 80},
    "weather_gru": SMALL | {"units": 64, "window": 96, "batch_size": 64, "steps_per_epoch": 2},
    "shakespeare_lstm": {
        "epochs": 1,
        "steps_per_epoch": 2,
        "batch_size": 32,
        "units": 128,
        "window": 50,
        "generate": 0,
    },
    "resnet50": {"image_size": 64, "classes": 100, "batch_size": 16, "images": 32, "jit_compile": False},
}
VARIANTS = [{}, {"jit_compile": True}, {"precision": "mixed_bfloat16"}]
FRAMEWORKS = {"tensorflow": "tensorflow", "jax": "jax", "torch": "torch"}


def other_targets(model: Any, samples: Dataset) -> Dataset:
    return replace(samples, targets=np.random.default_rng(3).permutation(samples.targets))


def shortened_batch(model: Any, samples: Dataset) -> Dataset:
    step = model.train_step
    model.train_step = lambda data: step(tuple(each[: each.shape[0] * 3 // 4] for each in data))
    return samples


ANYWHERE: dict[str, Spoil] = {"other targets": other_targets}
ON_TENSORFLOW: dict[str, Spoil] = {"three quarters of each batch": shortened_batch}


def main() -> None:
    rows = [row for name in TRAININGS for on in _installed() for row in json.loads(printed("plain_step", name, on))]
    text = f"""Each training is built and compiled as a job does it, and its step compared with the plain
        step after the timed steps. *Error*: of the array of weights that lies furthest from the plain step
        by its bound, relative to the array's change in the step. *Bound*: {ALLOWED_ROUNDINGS:g} times what one
        rounding of every weight does, as relative. *Of bound*: error by bound; above 1 the step is wrong (a
        loss beyond its bound makes it so, too). *Compared*: the share of the weights whose bound is at most
        0.5. *Looks*: steps compared. *Check*: all of `verify()`, *compile*: tracing, compiling and the
        first execution. One process for each training and framework, one measurement each; sizes are in
        `benchmarks/plain_step.py`."""
    head = (
        "training",
        "framework",
        "step",
        "error",
        "bound",
        "of bound",
        "compared",
        "looks",
        "found",
        "check",
        "compile",
    )
    write("plain_step", "Training steps against plain steps", [*prose(text), *table(head, rows)])


def _installed() -> Iterator[str]:
    return (name for name, package in FRAMEWORKS.items() if importlib.util.find_spec(package))


def _rows(name: str, on: str) -> Iterator[list[Any]]:
    engine = framework(on)
    engine.load()
    engine.start("cpu", len(os.sched_getaffinity(0)))
    engine.start = lambda *_: None  # type: ignore[method-assign]  # PyTorch's threads are set once
    trainer = engine.trainer
    for variant in VARIANTS:
        if (variant and on != "tensorflow") or ("precision" in variant and name != "resnet50"):
            continue
        label = "".join(f", {key} {value}" for key, value in variant.items())
        yield _row(name, on, variant, engine, f"right{label}")
    for label, spoil in (ANYWHERE | (ON_TENSORFLOW if on == "tensorflow" else {})).items():

        def wrong(model: Any, samples: Dataset, *more: Any, spoil: Spoil = spoil, **named: Any) -> Any:
            return trainer(model, spoil(model, samples), *more, **named)

        engine.trainer = wrong  # type: ignore[method-assign]
        yield _row(name, on, {}, engine, label)


def _row(name: str, on: str, variant: dict[str, Any], engine: Framework, label: str) -> list[Any]:
    start_s = time.perf_counter()
    built = compiled(name, TRAININGS[name] | variant, engine=engine)
    compile_s = time.perf_counter() - start_s
    built.complete(0.0, 0.0)
    built.execute(1)
    start_s = time.perf_counter()
    found = built.verify()
    check_s = time.perf_counter() - start_s
    step: Any = found.details.get("plain_step", {})
    error, bound = step.get("rel_error"), step.get("bound")
    wrong = any(raised.code == "RESULT_INCORRECT" for raised in found.warnings)
    said = "wrong" if wrong else found.unchecked.get("RESULT_INCORRECT", "right")
    numbers = ("–", "–", "–") if None in (error, bound) else (f"{error:.2g}", f"{bound:.2g}", f"{error / bound:.2g}")
    compared = f"{step['compared_weights']:.0%}" if step else "–"
    times = (f"{check_s:.1f} s", f"{compile_s:.1f} s")
    return [f"`{name}`", on, label, *numbers, compared, step.get("steps", "–"), said, *times]


if __name__ == "__main__":
    print(json.dumps(list(_rows(*sys.argv[1:3]))))

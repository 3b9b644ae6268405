"""Record runs of this machine, forked and spawned in turns. Each is the only run of its job.

Runs are kept beside the results when they are done, and the next call continues after them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import JsonValue

from benchmarks.files import Files, Spec
from benchmarks.jobs import own_dyno
from benchmarks.report import RESULTS
from benchmarks.synthetic import Array
from dyno.bench.devices.discovery import discover
from dyno.bench.devices.environment import hardware_id
from dyno.bench.measure.statistics import median
from dyno.client import Client
from dyno.settings import Settings

Start = Literal["forked", "spawned"]
FOLDER = RESULTS / "recorded"
RUNS = 30  # of each start
MEASURE: dict[str, JsonValue] = {"processes": 1, "max_s": 10}
PARAMS: dict[str, tuple[str, dict[str, JsonValue]]] = {
    "matmul-64": ("matmul", {"n": 64, "repeats": 100}),
    "matmul-512": ("matmul", {"n": 512, "repeats": 10}),
    "matmul-2048": ("matmul", {"n": 2048, "repeats": 1}),
    "mnist_cnn": ("mnist_cnn", {"train_samples": 2048, "batch_size": 256, "epochs": 1}),
}


@dataclass(frozen=True)
class Run:
    """Seconds per execution; `at_s` is when it began, by the wall clock."""

    start: Start
    at_s: float
    median_s: float
    samples_s: Sequence[float]


def medians(runs: Sequence[Run], start: Start) -> list[float]:
    """Return the median times of the runs with this `start`, in the order in which they ran."""
    return [run.median_s for run in runs if run.start == start]


def in_turns(runs: int) -> list[Start]:
    """`runs` of each start, in the order ABBA."""
    turns: tuple[Start, ...] = ("forked", "spawned", "spawned", "forked")
    return [turns[index % 4] for index in range(2 * runs)]


def windows(times: Array, length: int) -> Array:
    """Every stretch of `length` neighbouring runs; stretches overlap."""
    return np.lib.stride_tricks.sliding_window_view(times, length)


def lag_one(times: Array) -> float:
    """The autocorrelation of each run with the one before, 0 where they are independent."""
    residuals = times - times.mean()
    return float((residuals[1:] * residuals[:-1]).sum() / (residuals**2).sum())


def kept(name: str, folder: Path = FOLDER) -> list[Run]:
    """The kept runs of this name, from any machine; an empty list without a file."""
    path = folder / f"{name}.json"
    return [Run(**each) for each in json.loads(path.read_text())["runs"]] if path.exists() else []


def recorded(name: str, runs: int = RUNS, folder: Path = FOLDER) -> list[Run]:
    """The kept runs of this name on this machine; makes the missing runs of each start."""
    body, files, turns = spec(name), Files(folder), in_turns(runs)
    found = [Run(**each) for each in (files.get(name, body) or {"runs": []})["runs"]]
    with ExitStack() as stack:
        client = stack.enter_context(own_dyno()) if len(found) < len(turns) else None
        for start in turns[len(found) :]:
            assert client is not None
            found.append(_run(client, body, start))
            files.put(name, body, {"runs": [asdict(run) for run in found]})
            print(f"{name}: run {len(found)} of {len(turns)}, {start}, {found[-1].median_s:.6g} s", flush=True)
    return found[: len(turns)]


def spec(name: str) -> Spec:
    """The spec with this hardware as a label, because runs of other machines don't count."""
    workload, params = PARAMS[name]
    labels: Spec = {"hardware_id": hardware_id(discover("cpu", Settings()))}
    return {"workload": workload, "params": params, "device": "cpu", "measure": MEASURE, "labels": dict(labels)}


def _run(client: Client, body: Spec, start: Start) -> Run:
    """A job of one run, forked or spawned. `cold_start` spawns it."""
    measure = MEASURE | {"cold_start": start == "spawned"}
    result = client.run({**body, "measure": measure})
    [run], [samples] = result.runs, client.samples(result.job)
    assert run.process_start == start
    return Run(start, run.started_at_s or 0.0, median(samples.samples), samples.samples)

"""Runs of this machine, forked and spawned in turns, through a worker's own launcher and kept beside the results.

One run at a time, with no queue and no server beside it. Each is kept when it is done: the next call goes on there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

import numpy as np
from pydantic import JsonValue

from benchmarks.files import Files
from benchmarks.report import RESULTS
from benchmarks.synthetic import Array
from dyno.devices.device import Device
from dyno.devices.discovery import discover
from dyno.devices.environment import hardware_id
from dyno.devices.locks import lock_paths, shared_lock_paths
from dyno.measure.statistics import median
from dyno.models.runner_protocol import RunRecord, RunRequest
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.workloads import resolve
from workers.launcher import Launcher
from workers.monitor import HeartbeatSource, RunLimits, RunnerMonitor, StopSwitch

Start = Literal["forked", "spawned"]
FOLDER = RESULTS / "recorded"
RUNS = 30  # of each start
PATIENCE_S = 600.0
_NO_LEASE = cast(HeartbeatSource, SimpleNamespace(due_s=math.inf, beat=lambda frame, run: None))
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
    """Of those runs that were started this way, in the order in which they ran."""
    return [run.median_s for run in runs if run.start == start]


def in_turns(runs: int) -> list[Start]:
    """`runs` of each start, in the order ABBA."""
    turns: tuple[Start, ...] = ("forked", "spawned", "spawned", "forked")
    return [turns[index % 4] for index in range(2 * runs)]


def windows(times: Array, length: int) -> Array:
    """Every stretch of so many neighbouring runs; they overlap."""
    return np.lib.stride_tricks.sliding_window_view(times, length)


def lag_one(times: Array) -> float:
    """The autocorrelation of each run with the one before, 0 where they are independent."""
    residuals = times - times.mean()
    return float((residuals[1:] * residuals[:-1]).sum() / (residuals**2).sum())


def kept(name: str, folder: Path = FOLDER) -> list[Run]:
    """The kept runs of this name, from any machine; none where nothing is kept."""
    path = folder / f"{name}.json"
    return [Run(**each) for each in json.loads(path.read_text())["runs"]] if path.exists() else []


def recorded(name: str, runs: int = RUNS, folder: Path = FOLDER) -> list[Run]:
    """The kept runs of this name on this machine; makes those that are missing of each start."""
    workload, params = PARAMS[name]
    body: dict[str, JsonValue] = {"workload": workload, "params": params, "device": "cpu", "measure": MEASURE}
    device, files, turns = discover("cpu", Settings()), Files(folder), in_turns(runs)
    body["labels"] = {"hardware_id": hardware_id(device)}  # another machine's runs don't count
    found = [Run(**each) for each in (files.get(name, body) or {"runs": []})["runs"]]
    if len(found) >= len(turns):
        return found[: len(turns)]
    with _starting(body, device) as start:
        for how in turns[len(found) :]:
            found.append(start(how))
            files.put(name, body, {"runs": [asdict(run) for run in found]})
            print(f"{name}: run {len(found)} of {len(turns)}, {how}, {found[-1].median_s:.6g} s", flush=True)
    return found


@contextmanager
def _starting(body: Mapping[str, JsonValue], device: Device) -> Iterator[Callable[[Start], Run]]:
    """Yields a function that makes one run. A first run, forked, isn't kept: the others take over what it tunes."""
    spec = resolve(Spec.model_validate(body)).spec
    with closing(Launcher("fork", device.cores)) as forking, closing(Launcher("spawn", device.cores)) as spawning:
        tuned = _ended(forking, _request(spec, device, 0, {})).tuned

        def start(how: Start) -> Run:
            record = _ended(forking if how == "forked" else spawning, _request(spec, device, 1, tuned))
            assert record.summary.process_start == how
            return Run(how, record.summary.started_at_s or 0.0, median(record.samples), record.samples)

        yield start


def _request(spec: Spec, device: Device, run: int, tuned: dict[str, JsonValue]) -> RunRequest:
    settings = Settings()
    return RunRequest(
        job="recorded",
        spec=spec,
        run=run,
        runs=2,
        device=device,
        lock_paths=lock_paths(device, settings),
        shared_lock_paths=shared_lock_paths(device, settings),
        data_dir=str(settings.data_dir) if settings.data_dir else None,
        tuned=tuned,
    )


def _ended(launcher: Launcher, request: RunRequest) -> RunRecord:
    """Raises RuntimeError with what the runner said if it fails."""
    limits = RunLimits(PATIENCE_S, 5.0, time.monotonic() + PATIENCE_S)
    with launcher.start(request) as runner:
        ended = RunnerMonitor(runner, request.run, limits, _NO_LEASE, StopSwitch(), time.monotonic).until_ended()
    if ended.record is None:
        raise RuntimeError(f"{request.spec.workload}: {ended.failed or ended.exit}\n{ended.log_tail}")
    return ended.record

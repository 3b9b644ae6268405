"""One process: the same work sampled in three ways, in turns (ABC, CBA, …).

`off` is the sampler alone. `on` adds all that a runner does around and between its samples: sensors, neighbours,
clocks, what was traced, draining the queue, progress through a pipe to a process that reads it. `worker` is `on` with a
supervisor's watch and heartbeats at the other end.

`python -m benchmarks.cost_side_by_side WORKLOAD PARAMS ROUNDS` prints JSON: of each block of samples the median in
seconds per execution and how long the block lasted; what was paid once after all, and which sensors answered.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.in_process import compiled
from benchmarks.watched import Watcher
from dyno.devices.discovery import discover
from dyno.devices.sensors import sensing
from dyno.frameworks import framework
from dyno.frameworks.interface import Framework
from dyno.measure.sampling import HostClock, SamplingResult, sample
from dyno.measure.statistics import median
from dyno.measure.stopping_rule import StoppingRule
from dyno.models.result import Sensors
from dyno.models.spec import Measure
from dyno.runner.case_sampling import CaseSamples, take_samples, without_gc
from dyno.runner.checks import checked_cases, run_checks
from dyno.runner.frame_writer import FrameWriter
from dyno.settings import Settings
from dyno.workloads import validate_params, workload
from dyno.workloads.contract import Built

WAYS = ("off", "on", "worker")
# A target that any samples meet: each way stops early, as a machine's speed drifts and turns have to be shorter.
MEASURE = Measure(target_rel_ci=1.0, min_samples=10, min_s=1.0)


class Turns:
    """Samples `built` in each way; keeps the median and the duration of each block, in the order they were taken."""

    def __init__(self, built: Built, engine: Framework, frames_fd: int, watcher: Watcher) -> None:
        self._execute, self._engine, self._device = built.execute, engine, discover("cpu", Settings())
        self._frames, self._watcher = FrameWriter(frames_fd), watcher
        self._watched = FrameWriter(watcher.frames_fd)
        self.medians_s: dict[str, list[float]] = {way: [] for way in WAYS}
        self.blocks_s: dict[str, list[float]] = {way: [] for way in WAYS}
        self.taken: CaseSamples | None = None  # the last with sensors

    def take(self, way: str) -> None:
        if way == "worker":
            with self._watcher.awake():
                self._timed(way)
        else:
            self._timed(way)

    def _timed(self, way: str) -> None:
        began_s = time.perf_counter()
        samples = self._alone() if way == "off" else self._as_runner(self._frames if way == "on" else self._watched)
        self.blocks_s[way].append(time.perf_counter() - began_s)
        self.medians_s[way].append(median(samples.samples))

    def _as_runner(self, frames: FrameWriter) -> SamplingResult:
        with sensing(self._device) as source:
            self.taken = take_samples(self._execute, MEASURE, self._device, source, frames, framework=self._engine)
        return self.taken.samples

    def _alone(self) -> SamplingResult:
        with without_gc():
            rule = StoppingRule.of(MEASURE, self._device.kind)
            return sample(self._execute, rule, HostClock(), lambda taken, expected: None)


def main(name: str, params: dict[str, Any], rounds: int) -> None:
    watcher, engine = Watcher(), framework("tensorflow")
    built = compiled(name, params, engine=engine)
    with _reader() as frames_fd:
        Turns(built, engine, frames_fd, watcher).take("off")  # the first block is still getting faster
        turns = Turns(built, engine, frames_fd, watcher)
        for number in range(rounds):
            for way in WAYS[:: 1 if number % 2 == 0 else -1]:
                turns.take(way)
    assert turns.taken is not None
    found = {"medians_s": turns.medians_s, "blocks_s": turns.blocks_s, "heartbeats": watcher.close()}
    found |= {"sensors": said(turns.taken.sensors)} | _afterwards(name, params, built, engine, turns.taken)
    print(json.dumps(found))


def said(sensors: Sensors) -> dict[str, Any]:
    """What sensors told something, and why the others didn't."""
    values = sensors.model_dump(exclude={"looks", "reasons"})
    return {"told": [name for name, value in values.items() if value not in (None, {})], "silent": sensors.reasons}


def _afterwards(
    name: str, params: dict[str, Any], built: Built, engine: Framework, taken: CaseSamples
) -> dict[str, Any]:
    """Seconds that the checks of the output take, and the doubts that a first run looks into."""
    chosen = workload(name)
    checked = validate_params(chosen, params)
    began_s = time.perf_counter()
    found = built.verify()
    verified_s = time.perf_counter()
    flops = chosen.flops(checked) if found.flops is None else found.flops
    examined = checked_cases(built, taken, [], flops, getattr(checked, "dtype", "float32"))
    run_checks(engine, discover("cpu", Settings()), examined)
    return {"verify_s": verified_s - began_s, "doubts_s": time.perf_counter() - verified_s}


@contextmanager
def _reader() -> Iterator[int]:
    """A pipe to a process that only wakes up for each frame."""
    reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert reader.stdin is not None
    with reader, reader.stdin:
        yield reader.stdin.fileno()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))

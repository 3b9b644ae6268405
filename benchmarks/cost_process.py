"""One process: the same work sampled in three ways, in turns (ABC, CBA, …).

`off` is the sampler alone. `on` adds all that a runner does around and between its samples: sensors, neighbours,
clocks, traces, draining the queue, progress through a pipe to a process that reads it. `worker` is `on` with a
supervisor's monitor and heartbeats to a real Redis at the other end. That monitor is a process of its own:
`python -m benchmarks.cost_process monitor FRAMES_FD` claims a job, says so, and reads frames as a supervisor does until
stdin tells how the runner ended. Without a launcher, its heartbeats don't look at the runner's memory and files.

`python -m benchmarks.cost_process WORKLOAD PARAMS ROUNDS` prints JSON: of each block of samples the median in seconds
per execution and its duration, what was paid once after all, and which sensors answered.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.in_process import compiled
from benchmarks.pairs import in_turns
from dyno.devices.discovery import discover
from dyno.devices.sensors import sensing
from dyno.frameworks import framework
from dyno.frameworks.interface import Framework
from dyno.measure.sampling import HostClock, SamplingResult, sample
from dyno.measure.statistics import median
from dyno.measure.stopping_rule import StoppingRule
from dyno.models.job import WorkerRef
from dyno.models.result import Sensors
from dyno.models.runner_protocol import ProgressFrame
from dyno.models.spec import Measure, Spec
from dyno.processes import die_with_parent
from dyno.runner.case_sampling import CaseSamples, take_samples, without_gc
from dyno.runner.checks import checked_cases, run_checks
from dyno.runner.frame_writer import FrameWriter
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.placement import queues_served
from dyno.store.redis import async_client, sync_client
from dyno.workloads import resolve, validate_params, workload
from dyno.workloads.contract import Built
from workers.heartbeat import Heartbeat
from workers.launcher import LogTail, RunnerProcess
from workers.monitor import RunLimits, RunnerMonitor, StopReason, StopSwitch

WAYS = ("off", "on", "worker")
# A target that any samples meet: each way stops early, as a machine's speed drifts and turns have to be shorter.
MEASURE = Measure(target_rel_ci=1.0, min_samples=10, min_s=1.0)
_ENDED = b'{"status": 0}\n'  # as a zygote says it
_NO_LIMITS = RunLimits(stall_s=math.inf, term_grace_s=math.inf, deadline_s=math.inf)


class Turns:
    """Samples `built` in each way; keeps the duration of each block, in the order they were taken."""

    def __init__(self, built: Built, engine: Framework, frames_fd: int, monitor: Monitor) -> None:
        self._execute, self._engine, self._device = built.execute, engine, discover("cpu", Settings())
        self._frames = {"on": FrameWriter(frames_fd), "worker": FrameWriter(monitor.frames_fd)}
        self._monitor = monitor
        self.blocks_s: dict[str, list[float]] = {way: [] for way in WAYS}
        self.taken: CaseSamples | None = None  # the last with sensors

    def take(self, way: str) -> float:
        """The median of a block."""
        with self._monitor.awake() if way == "worker" else nullcontext():
            began_s = time.perf_counter()
            samples = self._alone() if way == "off" else self._as_runner(self._frames[way])
            self.blocks_s[way].append(time.perf_counter() - began_s)
        return median(samples.samples)

    def _as_runner(self, frames: FrameWriter) -> SamplingResult:
        with sensing(self._device) as source:
            self.taken = take_samples(self._execute, MEASURE, self._device, source, frames, framework=self._engine)
        return self.taken.samples

    def _alone(self) -> SamplingResult:
        with without_gc():
            rule = StoppingRule.of(MEASURE, self._device.kind)
            return sample(self._execute, rule, HostClock(), lambda taken, expected: None)


def main(name: str, params: dict[str, Any], rounds: int) -> None:
    monitor, engine = Monitor(), framework("tensorflow")
    built = compiled(name, params, engine=engine)
    reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)  # wakes up for each frame
    assert reader.stdin is not None
    with reader, reader.stdin:
        Turns(built, engine, reader.stdin.fileno(), monitor).take("off")  # the first block is still getting faster
        turns = Turns(built, engine, reader.stdin.fileno(), monitor)
        medians_s = in_turns({way: partial(turns.take, way) for way in WAYS}, rounds)
    assert turns.taken is not None
    found = {"medians_s": medians_s, "blocks_s": turns.blocks_s, "heartbeats": monitor.close()}
    found |= {"sensors": answered(turns.taken.sensors)} | _afterwards(name, params, built, engine, turns.taken)
    print(json.dumps(found))


def answered(sensors: Sensors) -> dict[str, Any]:
    """`told`: the sensors with a value; `silent`: the others with their reasons."""
    values = sensors.model_dump(exclude={"looks", "reasons"})
    return {"told": [name for name, value in values.items() if value not in (None, {})], "silent": sensors.reasons}


def _afterwards(
    name: str, params: dict[str, Any], built: Built, engine: Framework, taken: CaseSamples
) -> dict[str, float]:
    """Seconds that the check of the output takes (`verify_s`), and the first run's further checks (`doubts_s`)."""
    chosen = workload(name)
    checked = validate_params(chosen, params)
    began_s = time.perf_counter()
    found = built.verify()
    verified_s = time.perf_counter()
    flops = chosen.flops(checked) if found.flops is None else found.flops
    examined = checked_cases(built, taken, [], flops, getattr(checked, "dtype", "float32"))
    run_checks(engine, discover("cpu", Settings()), examined)
    return {"verify_s": verified_s - began_s, "doubts_s": time.perf_counter() - verified_s}


class Monitor:
    """The supervisor's side, stopped by SIGSTOP but inside `awake`. Its Redis idles beside it all the time."""

    def __init__(self) -> None:
        read_fd, self.frames_fd = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cost_process", "monitor", str(read_fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[read_fd],
            cwd=Path(__file__).parent.parent,
        )
        os.close(read_fd)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the monitor has claimed no job")
        self._stop()

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Frames are read inside the block."""
        self._process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._stop()

    def close(self) -> int:
        """Ends it; returns the number of heartbeats it has sent."""
        os.close(self.frames_fd)
        self._process.send_signal(signal.SIGCONT)
        printed, _ = self._process.communicate(_ENDED)
        return int(printed)

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class _Counted(Heartbeat):
    beats = 0

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None:
        self.beats += 1
        return super().beat(frame, run)


def monitor_frames(frames_fd: int, parent_pid: int) -> None:
    die_with_parent(parent_pid)
    os.set_blocking(frames_fd, False)
    with EmbeddedServer() as server:
        settings = Settings().model_copy(update={"redis_url": server.url})
        leases = Leases(sync_client(settings), settings)
        stop = StopSwitch()
        heartbeat = _Counted(_claimed(leases, settings), leases, settings.heartbeat_s, time.monotonic, stop)
        print("claimed", flush=True)
        runner = RunnerProcess("forked", frames_fd, sys.stdin.fileno(), LogTail(), kill_zygote=lambda: None)
        ended = RunnerMonitor(runner, 0, _NO_LIMITS, heartbeat, stop, time.monotonic).until_ended()
    assert ended.stopped_for is None, ended.stopped_for
    assert heartbeat.heard, "Redis didn't answer"
    print(heartbeat.beats)


def _claimed(leases: Leases, settings: Settings) -> Claim:
    """A job that stands for the one that is sampled; all that matters is that a worker has it."""
    device = discover("cpu", settings)
    asyncio.run(_submit(resolve(Spec.model_validate({"workload": "matmul", "device": "cpu"})).spec, settings))
    worker = WorkerRef(id="monitored", device=device.full_id, host=device.host)
    claim = leases.claim(device.full_id, queues_served(device), worker)
    assert claim is not None
    return claim


async def _submit(spec: Spec, settings: Settings) -> None:
    async with async_client(settings) as client:
        await Jobs(client, settings).submit(spec)


if __name__ == "__main__":
    if sys.argv[1] == "monitor":
        monitor_frames(int(sys.argv[2]), os.getppid())
    else:
        main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))

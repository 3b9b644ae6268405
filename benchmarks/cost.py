"""What does measuring cost? A runner with a worker beside it, against the sampler alone, in turns (AB, BA, …).

`off` is the sampler alone. `on` adds all that a runner does around and between its samples: sensors, neighbours,
clocks, traces, draining the queue, and progress through a pipe to a supervisor's monitor, which sends heartbeats to a
real Redis. That monitor is a process of its own: `python -m benchmarks.cost_monitor`. Without a launcher, its
heartbeats don't look at the runner's memory and files.

`python -m benchmarks.cost WORKLOAD PARAMS ROUNDS` is one process. It prints JSON: the median (seconds per execution)
and the duration of each block of samples, the number of heartbeats, and the sensors that answered.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from benchmarks.files import Files, Spec, here
from benchmarks.in_process import compiled
from benchmarks.pairs import Ratio, in_turns, printed, ratio
from benchmarks.report import prose, table, write
from dyno.bench.contract import Built
from dyno.bench.devices.discovery import discover
from dyno.bench.devices.sensors import sensing
from dyno.bench.frameworks import framework
from dyno.bench.frameworks.interface import Framework
from dyno.bench.measure.sampling import HostClock, sample
from dyno.bench.measure.statistics import median
from dyno.bench.measure.stopping_rule import StoppingRule
from dyno.bench.runner.case_sampling import take_samples, without_gc
from dyno.bench.runner.frame_writer import FrameWriter
from dyno.models.result import Sensors
from dyno.settings import Settings

STATE = Path("build") / "cost"
PROCESSES, ROUNDS = 12, 10
AIM = 0.01
WAYS = ("off", "on")
# Any samples meet this target, so a block ends early: turns must be short, because a machine's speed drifts.
RULE = StoppingRule(target_rel_ci=1.0, min_samples=10, min_s=1.0)
PARAMS: dict[str, dict[str, JsonValue]] = {
    "matmul": {"n": 512, "repeats": 10},
    "mnist_cnn": {"train_samples": 2048, "batch_size": 256, "epochs": 1},
}
_ENDED = b'{"status": 0}\n'  # as a zygote reports the end of a runner

Process = Mapping[str, Any]  # what one process prints


def main(processes: int = PROCESSES, rounds: int = ROUNDS, folder: Path = STATE) -> None:
    files, found = Files(folder, here()), {name: list[Process]() for name in PARAMS}
    try:
        for number in range(processes):
            for name, params in PARAMS.items():
                spec: Spec = {"workload": name, "params": dict(params), "rounds": rounds}
                found[name].append(files.once(f"{name}.{number:02}", spec, partial(_measured, name, rounds)))
    finally:  # also when Ctrl-C ends it
        write("cost", "What measuring costs", lines({name: of for name, of in found.items() if len(of) > 1}))


def _measured(name: str, rounds: int) -> Process:
    found: Process = json.loads(printed("cost", name, json.dumps(PARAMS[name]), rounds))
    return found


def change(processes: Sequence[Process]) -> Ratio:
    """Time per execution of a whole runner divided by that of the sampler alone: over turns, then over processes."""
    turns = [ratio(each["medians_s"]["on"], each["medians_s"]["off"]).value for each in processes]
    return ratio(turns, [1.0] * len(turns))


def lines(found: Mapping[str, Sequence[Process]]) -> list[str]:
    sensors = sorted({f"`{name}`" for of in found.values() for each in of for name in each["sensors"]})
    text = f"""*Off* is the sampler alone. *On* adds what a runner does around and between its samples: sensors, clocks,
        what neighbours used (`/proc`), what the framework has traced, draining its queue, and progress into a pipe to a
        supervisor's monitor, which sends heartbeats to a Redis on this machine. Left out: the launcher's look at a
        runner's memory and files, the API, Celery, and that Redis while it idles. Blocks of {RULE.min_samples} samples
        and {RULE.min_s:g} s, half of a run's minimum, take turns (AB, BA, …) in one process, on all of the device's
        cores. *Change*: the time per execution of *on* divided by that of *off*, less one: the geometric mean over the
        turns of a process, then over the processes (Student's t on logarithms). Aim: a one-sided upper bound below
        {AIM:.0%}. The duration of a *block* includes the work between its samples. *Heartbeats*: the number per
        process. Sensors that answered on this machine:
        {", ".join(sensors) or "none, so *on* pays only for the attempts to read them"}."""
    head = ("workload", "processes", "change [95 %]", "upper bound (95 %)", "block", "block off", "heartbeats")
    params = (f"- `{name}`: `{json.dumps(PARAMS[name])}`" for name in found)
    return [*prose(text), *table(head, [_row(name, of) for name, of in found.items()]), *params]


def _row(name: str, processes: Sequence[Process]) -> list[object]:
    of = change(processes)
    blocks_s = [median([block_s for each in processes for block_s in each["blocks_s"][way]]) for way in ("on", "off")]
    return [
        *(f"`{name}`", len(processes)),
        f"{of.value - 1:+.2%} [{of.low - 1:+.2%} to {of.high - 1:+.2%}]",
        f"**{of.upper_95 - 1:+.2%}**",
        *(f"{block_s:.3f} s" for block_s in blocks_s),
        f"{median([each['heartbeats'] for each in processes]):g}",
    ]


def one_process(name: str, params: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    engine, monitor = framework("tensorflow"), Monitor()
    turns = Turns(compiled(name, dict(params), engine=engine), engine, monitor)
    for way in WAYS:  # what imports or compiles something the first time
        turns.take(way)
    turns.blocks_s = {way: [] for way in WAYS}
    medians_s = in_turns({way: partial(turns.take, way) for way in WAYS}, rounds)
    found = {"medians_s": medians_s, "blocks_s": turns.blocks_s, "sensors": answered(turns.sensors)}
    return {**found, "heartbeats": monitor.close()}


def answered(sensors: Sensors) -> list[str]:
    """The sensors with a value."""
    values = sensors.model_dump(exclude={"looks", "reasons"})
    return [name for name, value in values.items() if value not in (None, {})]


class Turns:
    """Samples `built` in each way; keeps the duration of each block, in the order they were taken."""

    def __init__(self, built: Built, engine: Framework, monitor: Monitor) -> None:
        self._execute, self._engine, self._device = built.execute, engine, discover("cpu", Settings())
        self._frames, self._monitor = FrameWriter(monitor.frames_fd), monitor
        self.blocks_s: dict[str, list[float]] = {way: [] for way in WAYS}
        self.sensors = Sensors(looks=0)

    def take(self, way: str) -> float:
        """The median of a block."""
        with self._monitor.awake() if way == "on" else nullcontext():
            began_s = time.perf_counter()
            samples = self._alone() if way == "off" else self._as_runner()
            self.blocks_s[way].append(time.perf_counter() - began_s)
        return median(samples)

    def _as_runner(self) -> Sequence[float]:
        with sensing(self._device) as source:
            taken = take_samples(self._execute, RULE, self._device, source, self._frames, framework=self._engine)
        self.sensors = taken.sensors
        return taken.samples.samples

    def _alone(self) -> Sequence[float]:
        with without_gc():
            return sample(self._execute, RULE, HostClock(), lambda taken, expected: None).samples


class Monitor:
    """The supervisor's side. SIGSTOP stops it outside `awake`; its Redis is never stopped."""

    def __init__(self) -> None:
        read_fd, self.frames_fd = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cost_monitor", str(read_fd)],
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
        """The monitor reads frames inside the block."""
        self._process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._stop()

    def close(self) -> int:
        """End the monitor. Returns the number of heartbeats that it has sent."""
        os.close(self.frames_fd)
        self._process.send_signal(signal.SIGCONT)
        output, _ = self._process.communicate(_ENDED)
        return int(output)

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


if __name__ == "__main__":
    print(json.dumps(one_process(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))))

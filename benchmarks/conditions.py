"""Conditions that spoil a measurement, made beside one job: a burner, a second TensorFlow on the cores, a CPU quota.

A clock can't be lowered on a virtual machine, so a clock step is replayed on results (`with_clock_step`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import psutil

from benchmarks.repeat import DEFAULT
from dyno.bench.devices.cpu import CGROUP_MOUNT, own_cgroups
from dyno.bench.measure import stability
from dyno.models.result import Result, ResultWarning

BURN = "print('on', flush=True)\nwhile True: pass"
BURN_ON = "import os; os.sched_setaffinity(0, {{{core}}})\n" + BURN
SECOND_TENSORFLOW = """
import tensorflow as tf
a = tf.random.normal((1024, 1024))
tf.linalg.matmul(a, a).numpy()
print("on", flush=True)
while True: tf.linalg.matmul(a, a).numpy()
"""
PERIOD_US = 100_000
QUOTA_CORES = 1.0
# Recorded: the share of a change of the clock by which a figure changes (`dyno.bench.measure.series`).
ELASTICITY = {"matmul": 0.89}
ELASTICITY_ELSEWHERE = 0.42


@contextmanager
def beside_process(code: str) -> Iterator[None]:
    """Run Python `code`, which prints a line once it is at work, until the end of the block."""
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("the disturbing process ended before its work began")
            yield
        finally:
            process.kill()


@contextmanager
def cpu_quota(cores: float = QUOTA_CORES) -> Iterator[None]:
    """Limit the children of this process (a Dyno of own_dyno) and their later children to `cores`.

    Raises OSError if no control group can be made.
    """
    folder = _group()
    _limit(folder, round(cores * PERIOD_US))
    _move_children(folder)
    try:
        yield
    finally:
        _limit(folder, -1)
        _move_children(folder.parent)
        folder.rmdir()


CONDITIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    DEFAULT: nullcontext,
    "beside a burner": lambda: beside_process(BURN),
    "beside a second TensorFlow": lambda: beside_process(SECOND_TENSORFLOW),
    f"quota of {QUOTA_CORES:g} core": cpu_quota,
}


def with_clock_step(result: Result, at: int, factor: float) -> ResultWarning | None:
    """CLOCK_DRIFT of the result if the clock were multiplied by `factor` from run `at` on. None if it isn't raised."""
    clocks = [run.clock_hz and run.clock_hz * (factor if number >= at else 1) for number, run in enumerate(result.runs)]
    return stability.clock_drift(clocks, stepped_times_s(result, at, factor))


def stepped_times_s(result: Result, at: int, factor: float) -> list[float]:
    """The runs' times if the clock were multiplied by `factor` from run `at` on."""
    slower = factor ** -ELASTICITY.get(result.workload, ELASTICITY_ELSEWHERE)
    return [(run.median or 0.0) * (slower if number >= at else 1) for number, run in enumerate(result.runs)]


def _group() -> Path:
    """A new control group with a quota, below this process's own or at the mount."""
    for base in [*(own for _, own in own_cgroups("cpu")), CGROUP_MOUNT / "cpu", CGROUP_MOUNT]:
        folder = base / f"dyno-benchmark-{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        if any((folder / name).exists() for name in ("cpu.max", "cpu.cfs_quota_us")):
            return folder
        folder.rmdir()
    raise OSError("no control group with a CPU quota can be made here")


def _limit(folder: Path, quota_us: int) -> None:
    """`quota_us` -1: no limit."""
    if (folder / "cpu.max").exists():
        (folder / "cpu.max").write_text(f"{'max' if quota_us < 0 else quota_us} {PERIOD_US}")
        return
    for name, value in (("cpu.cfs_period_us", PERIOD_US), ("cpu.cfs_quota_us", quota_us)):
        (folder / name).write_text(str(value))


def _move_children(folder: Path) -> None:
    """Move the processes below this one. A process that forks meanwhile needs a second look."""
    for _ in range(2):
        for child in psutil.Process().children(recursive=True):
            try:
                (folder / "cgroup.procs").write_text(str(child.pid))
            except ProcessLookupError:
                continue

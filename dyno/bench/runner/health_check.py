"""Check a worker's device: its peak figures, whether runners can be forked on it, its presence after a failed run.

Peaks and presence are checked in a separate process. This keeps numerical libraries, their threads and pinning out of
the worker, and isolates driver calls, which may hang forever. In the worker, a hanging call would block all other calls
to the driver, and a call that hangs in the kernel would keep even a killed worker from exiting.

At its start, the worker tests whether a process that has imported the default framework can be forked. It tests another
framework just before that framework's first runner. If a test fails, the framework's runners are spawned.
"""

import argparse
import logging
import math
import os
import subprocess
import sys
import time
from contextlib import closing
from functools import partial

from pydantic import TypeAdapter

from dyno import errors, processes
from dyno.bench.devices import cpu
from dyno.bench.devices.discovery import discover
from dyno.bench.devices.locks import hold_locks, lock_paths, shared_lock_paths
from dyno.bench.runner.launcher import DEFAULT_FRAMEWORK, Launcher
from dyno.bench.runner.monitor import RunLimits, RunnerMonitor, StopReason, StopSwitch, failure_of
from dyno.logging import event
from dyno.models.device import Device, PeakFigure
from dyno.models.job import DEVICE_BUSY
from dyno.models.runner_protocol import ProgressFrame, RunRequest
from dyno.models.spec import Measure, Processes, Spec
from dyno.settings import Settings

_TIMEOUT_S = 60.0
_LOCK_TIMEOUT_S = 2.0
_FIGURES = TypeAdapter(dict[str, PeakFigure])
_MEMORY = "memory"  # the key of the memory bandwidth among the figures


def with_measured_peaks(launcher: Launcher, device: Device, locks: list[str]) -> Device:
    """A CPU `device` with its peak figures and memory bandwidth. Accelerators keep their known figures.

    If the measurement fails, the figures are missing, and a warning is logged.
    """
    if device.kind != "cpu":
        return device
    cores = ",".join(map(str, device.cores))
    try:
        printed = launcher.run("dyno.bench.runner.health_check", ["peaks", cores, *locks], _TIMEOUT_S)
        figures = _FIGURES.validate_json(printed)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        event("peaks-not-measured", logging.WARNING, device=device.id, why=str(error))
        figures = {}
    memory = figures.pop(_MEMORY, None)
    return device.model_copy(update={"peak": figures, "memory_bandwidth": memory})


def write_peaks(cores: list[int], locks: list[str]) -> None:
    """In the command's process: measure the peaks and write them to stdout as JSON."""
    try:
        hold_locks(locks, _LOCK_TIMEOUT_S)
    except errors.DeviceUnavailable as busy:
        sys.exit(busy.detail)
    os.sched_setaffinity(0, cores)  # before the import of libraries that start one thread per available core
    from dyno.bench.devices.cpu_speed import measure_cpu_peaks
    from dyno.bench.devices.memory_speed import measure_memory_bandwidth

    share = cpu.memory_bytes() * len(cores) // (os.cpu_count() or 1)  # workers of one host may start together
    size_bytes = cpu.streamed_bytes(cpu.last_cache_bytes(cores), share)
    figures = {**measure_cpu_peaks(cores), _MEMORY: measure_memory_bandwidth(cores, size_bytes)}
    sys.stdout.write(_FIGURES.dump_json(figures).decode())


ANSWER_TIMEOUT_S = 30.0  # without persistence mode, NVML takes seconds for each GPU, one after the other


def device_loss(launcher: Launcher, device: Device) -> str | None:
    """The reason why the device is gone, or None. A device that doesn't respond is treated as gone.

    Returns None if the check itself fails.
    """
    try:
        return (
            launcher.run("dyno.bench.runner.health_check", ["presence", device.id, *device.uuids], ANSWER_TIMEOUT_S)
            or None
        )
    except subprocess.TimeoutExpired:
        return f"{device.id} didn't respond within {ANSWER_TIMEOUT_S:g} s"
    except (OSError, subprocess.SubprocessError) as error:
        event("device-not-looked-for", logging.WARNING, device=device.id, why=str(error))
        return None


def write_loss(device_id: str, uuids: list[str]) -> None:
    """In the command's process: write to stdout why the device is gone, or nothing if it is present.

    After the loss of a GPU, NVML may give its number to another GPU, whose UUID differs.
    """
    try:
        present = discover(device_id, Settings())
    except errors.DeviceUnavailable as error:
        sys.stdout.write(error.detail)
    else:
        if present.uuids != uuids:
            sys.stdout.write(f"{device_id} is another GPU now: {', '.join(present.uuids)}")


PROOF_TIMEOUT_S = 45.0  # an import without compiled bytecode takes 6 s on an idle machine
_LEASE_SHARE = 0.75  # a self-test's maximum share of the lease: during the test, no heartbeat extends the job's lease
# The smallest possible job: it starts the device, multiplies, reads the product back and checks it.
_SPEC = Spec(
    workload="matmul",
    params={"n": 64, "repeats": 1},
    measure=Measure(processes=Processes(min=1, max=1), min_samples=1, min_s=0, max_s=1),
)


class _NoHeartbeat:
    """A self-test has no lease, so it needs no heartbeats."""

    due_s = math.inf

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None:
        return None


def prove_fork(launcher: Launcher, device: Device, settings: Settings, deadline_s: float = PROOF_TIMEOUT_S) -> None:
    """Test forking with the default framework now. The launcher tests any other framework before its first runner.

    Falls back to spawning if a tiny forked job fails, or hasn't ended after `deadline_s`. If another runner still holds
    the device, or the host is full, the test is inconclusive: the first job then forks.
    """
    if DEFAULT_FRAMEWORK in device.frameworks and launcher.forks(DEFAULT_FRAMEWORK)[0]:
        _prove(launcher, device, settings, deadline_s, DEFAULT_FRAMEWORK)
    with_a_job_s = min(deadline_s, _LEASE_SHARE * settings.lease_s)
    launcher.prove_with(partial(_prove, launcher, device, settings, with_a_job_s), proven=DEFAULT_FRAMEWORK)


def _prove(launcher: Launcher, device: Device, settings: Settings, deadline_s: float, framework: str) -> None:
    spec = _SPEC.model_copy(update={"framework": framework})
    request = RunRequest(
        job="proof",
        spec=spec,
        run=0,
        runs=1,
        device=device,
        lock_paths=lock_paths(device, settings),
        shared_lock_paths=shared_lock_paths(device, settings),
    )
    limits = RunLimits(deadline_s, settings.term_grace_s, time.monotonic() + deadline_s)
    with closing(StopSwitch()) as stop, launcher.start(request) as runner:
        ended = RunnerMonitor(runner, 0, limits, _NoHeartbeat(), stop, time.monotonic).until_ended()
    failure = failure_of(ended, deadline_s, deadline_s)
    if failure is None or (ended.failed is not None and ended.first_op_at_s is not None):
        event("fork-proved", framework=framework, device=device.id)  # an error frame means that the fork worked
    elif failure.reason == DEVICE_BUSY or ended.exit.passing:
        event("fork-not-proved", logging.WARNING, framework=framework, device=device.id, why=failure.message)
    else:
        launcher.fall_back(framework, f"a forked runner failed at start: {failure.reason}: {failure.message}")
        event(
            "fork-failed",
            logging.WARNING,
            framework=framework,
            reason=failure.reason,
            message=failure.message,
            log=failure.log_tail,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="dyno.bench.runner.health_check")
    parser.add_argument("--parent", type=int, required=True)
    commands = parser.add_subparsers(dest="command", required=True)
    presence = commands.add_parser("presence")
    presence.add_argument("device")
    presence.add_argument("uuids", nargs="*")
    peaks = commands.add_parser("peaks")
    peaks.add_argument("cores")
    peaks.add_argument("locks", nargs="*")
    arguments = parser.parse_args()
    processes.die_with_parent(arguments.parent)
    if arguments.command == "peaks":
        write_peaks([int(core) for core in arguments.cores.split(",")], arguments.locks)
    else:
        write_loss(arguments.device, arguments.uuids)


if __name__ == "__main__":
    main()

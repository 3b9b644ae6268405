"""Check a device in a separate process: its peak figures at a worker's start, its presence after a failed run.

The process keeps numerical libraries, their threads and pinning out of the worker. It also isolates calls to a driver
that may hang forever. In the worker, such a call would block all other calls to the driver, and a call that hangs in
the kernel would keep even a killed worker from exiting.
"""

import argparse
import logging
import os
import subprocess
import sys

from pydantic import TypeAdapter

from dyno import errors, processes
from dyno.bench.devices.discovery import discover
from dyno.bench.devices.locks import hold_locks
from dyno.bench.runner.launcher import Launcher
from dyno.logging import event
from dyno.models.device import Device, PeakFigure
from dyno.settings import Settings

_TIMEOUT_S = 60.0
_LOCK_TIMEOUT_S = 2.0
_FIGURES = TypeAdapter(dict[str, PeakFigure])


def measured_peaks(launcher: Launcher, device: Device, locks: list[str]) -> dict[str, PeakFigure]:
    """Peak figures by dtype; empty, with a warning, if the measurement fails. Accelerators keep their known peaks."""
    if device.kind != "cpu":
        return device.peak
    try:
        printed = launcher.run(
            "dyno.bench.runner.health_check", ["peaks", ",".join(map(str, device.cores)), *locks], _TIMEOUT_S
        )
        return _FIGURES.validate_json(printed)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        event("peaks-not-measured", logging.WARNING, device=device.id, why=str(error))
        return {}


def write_peaks(cores: list[int], locks: list[str]) -> None:
    """In the command's process: measure the peaks and write them to stdout as JSON."""
    try:
        hold_locks(locks, _LOCK_TIMEOUT_S)
    except errors.DeviceUnavailable as busy:
        sys.exit(busy.detail)
    os.sched_setaffinity(0, cores)  # before importing libraries, which size themselves by the available cores
    from dyno.bench.devices.cpu_speed import measure_cpu_peaks

    sys.stdout.write(_FIGURES.dump_json(measure_cpu_peaks(cores)).decode())


ANSWER_TIMEOUT_S = 30.0  # without persistence mode, NVML takes seconds for each GPU, one after the other


def device_loss(launcher: Launcher, device: Device) -> str | None:
    """Why the device is gone, or None. A device that doesn't respond counts as gone.

    If the check itself fails, the answer is None.
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

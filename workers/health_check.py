"""Checks of a device in a process of their own: its peaks at a worker's start, its presence after a failed run.

The worker stays clean: no numerical library, none of its threads, nothing pinned. And a driver may hang for ever. In
the worker, a call that does would keep all other calls to the driver waiting; where it hangs in the kernel, not even
the worker's own end would end it.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys

from pydantic import TypeAdapter

from dyno.devices.device import Device, PeakFigure
from dyno.devices.discovery import discover
from dyno.devices.locks import hold_locks
from dyno.errors import DeviceUnavailable
from dyno.processes import die_with_parent
from dyno.settings import Settings
from workers.launcher import Launcher
from workers.log import event

_TIMEOUT_S = 60.0
_LOCK_TIMEOUT_S = 2.0
_FIGURES = TypeAdapter(dict[str, PeakFigure])


def measured_peaks(launcher: Launcher, device: Device, locks: list[str]) -> dict[str, PeakFigure]:
    """By dtype; empty where they couldn't be measured, which a warning says. Accelerators bring theirs along."""
    if device.kind != "cpu":
        return device.peak
    try:
        printed = launcher.run("workers.health_check", ["peaks", ",".join(map(str, device.cores)), *locks], _TIMEOUT_S)
        return _FIGURES.validate_json(printed)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        event("peaks-not-measured", logging.WARNING, device=device.id, why=str(error))
        return {}


def write_peaks(cores: list[int], locks: list[str]) -> None:
    """The command's part: measure, and write the figures to stdout as JSON."""
    try:
        hold_locks(locks, _LOCK_TIMEOUT_S)
    except DeviceUnavailable as busy:
        sys.exit(busy.detail)
    os.sched_setaffinity(0, cores)  # before a library is imported that sizes itself by the cores it sees
    from dyno.devices.cpu_speed import measure_cpu_peaks

    sys.stdout.write(_FIGURES.dump_json(measure_cpu_peaks(cores)).decode())


ANSWER_TIMEOUT_S = 30.0  # without persistence mode NVML takes seconds for each GPU, all one after the other


def device_loss(launcher: Launcher, device_id: str) -> str | None:
    """Why it is gone, or None. One that doesn't answer is: it serves no job. A look that breaks says nothing of it."""
    try:
        return launcher.run("workers.health_check", ["presence", device_id], ANSWER_TIMEOUT_S) or None
    except subprocess.TimeoutExpired:
        return f"{device_id} didn't answer within {ANSWER_TIMEOUT_S:g} s"
    except (OSError, subprocess.SubprocessError) as error:
        event("device-not-looked-for", logging.WARNING, device=device_id, why=str(error))
        return None


def write_loss(device_id: str) -> None:
    """The command's part: write to stdout why the device is gone, nothing where it is there."""
    try:
        discover(device_id, Settings())
    except DeviceUnavailable as error:
        sys.stdout.write(error.detail)


def main() -> None:
    parser = argparse.ArgumentParser(prog="workers.health_check")
    parser.add_argument("--parent", type=int, required=True)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("presence").add_argument("device")
    peaks = commands.add_parser("peaks")
    peaks.add_argument("cores")
    peaks.add_argument("locks", nargs="*")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    if arguments.command == "peaks":
        write_peaks([int(core) for core in arguments.cores.split(",")], arguments.locks)
    else:
        write_loss(arguments.device)


if __name__ == "__main__":
    main()

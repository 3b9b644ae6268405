"""The peaks of a device, measured once at a worker's start in a process that ends afterwards.

The worker itself stays clean: no numerical library, no threads of one, nothing pinned.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys

from pydantic import TypeAdapter

from dyno.devices.device import Device, PeakFigure
from dyno.devices.locks import hold_locks
from dyno.errors import DeviceUnavailable
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
        printed = launcher.run("workers.second_look", ["peaks", ",".join(map(str, device.cores)), *locks], _TIMEOUT_S)
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

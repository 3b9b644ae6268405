"""Whether a device that was there when its worker started still is, after a run on it has failed.

A process of its own looks, as a driver may hang for ever. In the worker a call that does would keep every other one to
the driver waiting; where it hangs in the kernel, not even the worker's own end would end it.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys

from dyno.devices.discovery import discover
from dyno.errors import DeviceUnavailable
from dyno.processes import die_with_parent
from dyno.settings import Settings
from workers.launcher import Launcher
from workers.log import event
from workers.peaks import write_peaks

ANSWERS_WITHIN_S = 30.0  # without persistence mode NVML takes seconds for each GPU, all one after the other


def lost(launcher: Launcher, device_id: str) -> str | None:
    """Why it is gone, or None. One that doesn't answer is: it serves no job. A look that breaks says nothing of it."""
    try:
        return launcher.run("workers.second_look", ["presence", device_id], ANSWERS_WITHIN_S) or None
    except subprocess.TimeoutExpired:
        return f"{device_id} didn't answer within {ANSWERS_WITHIN_S:g} s"
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
    parser = argparse.ArgumentParser(prog="workers.second_look")
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

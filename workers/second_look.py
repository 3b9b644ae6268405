"""Whether a device that was there when its worker started still is, after a run on it has failed.

A process of its own looks, as a driver may hang for ever. In the worker a call that does would keep every other one to
the driver waiting; where it hangs in the kernel, not even the worker's own end would end it.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys

from dyno.devices.discover import discover
from dyno.errors import DeviceUnavailable
from dyno.processes import die_with_parent
from dyno.settings import Settings
from workers.launcher import Launcher
from workers.log import event

ANSWERS_WITHIN_S = 30.0  # without persistence mode NVML takes seconds for each GPU, all one after the other


def lost(launcher: Launcher, device_id: str) -> str | None:
    """Why it is gone, or None. One that doesn't answer is: it serves no job. A look that breaks says nothing of it."""
    try:
        return launcher.run("workers.second_look", [device_id], ANSWERS_WITHIN_S) or None
    except subprocess.TimeoutExpired:
        return f"{device_id} didn't answer within {ANSWERS_WITHIN_S:g} s"
    except (OSError, subprocess.SubprocessError) as error:
        event("device-not-looked-for", logging.WARNING, device=device_id, why=str(error))
        return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="workers.second_look")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("device")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    try:
        discover(arguments.device, Settings())
    except DeviceUnavailable as error:
        sys.stdout.write(error.detail)


if __name__ == "__main__":
    main()

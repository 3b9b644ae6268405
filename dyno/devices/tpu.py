"""Looking for a TPU. This version finds and names one; it can't run on it yet and says so."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import NoReturn

from dyno.errors import DeviceUnavailable

DEV = Path("/dev")


def discover_tpu(dev: Path = DEV) -> NoReturn:
    """Always raises DeviceUnavailable, which tells what was looked at and what was there."""
    nodes = sorted(node.name for node in dev.glob("accel*"))
    library = importlib.util.find_spec("libtpu") is not None
    name = os.environ.get("TPU_NAME")
    if nodes or library or name:
        seen = [f"/dev/{node}" for node in nodes] + ["libtpu"] * library + ["TPU_NAME"] * bool(name)
        raise DeviceUnavailable(f"TPU can't be used: this version runs on CPUs and GPUs; there is {', '.join(seen)}")
    raise DeviceUnavailable("TPU not found: no /dev/accel*, no libtpu, TPU_NAME unset")

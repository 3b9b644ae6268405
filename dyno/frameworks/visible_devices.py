"""The devices that each installed framework sees on this host, asked in a process of its own.

A process can hold one framework only. `python -P -m dyno.frameworks.visible_devices jax` prints that framework's
devices as JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from dyno.frameworks import framework

_TIMEOUT_S = 120.0


def query_visible_devices(name: str) -> dict[str, Any]:
    """`devices` as that framework tells them, or `reason` why it told none. Takes as long as its import."""
    command = [sys.executable, "-P", "-m", "dyno.frameworks.visible_devices", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
        return {"devices": json.loads(done.stdout.splitlines()[-1])}
    except subprocess.CalledProcessError as error:
        told = error.stderr.strip().splitlines()
        return {"devices": [], "reason": told[-1] if told else f"it ended with {error.returncode}"}
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"devices": [], "reason": f"{type(error).__name__}: {error}"}


def _main() -> None:
    parser = argparse.ArgumentParser(prog="dyno.frameworks.visible_devices")
    parser.add_argument("name")
    chosen = framework(parser.parse_args().name)
    chosen.load()
    sys.stdout.write(json.dumps(chosen.seen()) + "\n")


if __name__ == "__main__":
    _main()

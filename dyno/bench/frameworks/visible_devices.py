"""Query the devices that each installed framework sees on this host, in a separate process.

A process can load only one framework. `python -P -m dyno.bench.frameworks.visible_devices jax` prints JAX's devices as
JSON.
"""

import argparse
import json
import subprocess
import sys
from typing import Any

from dyno.bench.frameworks import framework

_TIMEOUT_S = 120.0


def query_visible_devices(name: str) -> dict[str, Any]:
    """`devices` as the framework reports them, or the `reason` for none. It takes as long as the framework's import."""
    command = [sys.executable, "-P", "-m", "dyno.bench.frameworks.visible_devices", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
        return {"devices": json.loads(done.stdout.splitlines()[-1])}
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        return {"devices": [], "reason": lines[-1] if lines else f"the process exited with {error.returncode}"}
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"devices": [], "reason": f"{type(error).__name__}: {error}"}


def _main() -> None:
    parser = argparse.ArgumentParser(prog="dyno.bench.frameworks.visible_devices")
    parser.add_argument("name")
    chosen = framework(parser.parse_args().name)
    chosen.load()
    sys.stdout.write(json.dumps(chosen.visible_devices()) + "\n")


if __name__ == "__main__":
    _main()

"""Show frameworks only the worker's device, and query the devices that each installed framework sees on this host.

Environment variables hide the other devices. Set them before a framework is imported: CUDA, XLA and TensorFlow read
them once. UUIDs don't change with the order in which CUDA or NVML numbers the GPUs, and are the only way to choose a
slice of a divided GPU (MIG). CUDA numbers the visible devices from 0, in the order of the variable.

A process can load only one framework. `python -P -m dyno.bench.frameworks.visible_devices jax` prints JAX's devices as
JSON.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from dyno.bench.frameworks.jax import JAX_PLATFORMS

_NO_GPU = "-1"


def isolating_variables(kind: str, uuids: Sequence[str] = ()) -> dict[str, str]:
    """The variables for runners on a device of `kind`; they replace the worker's own values.

    `uuids`: the UUIDs of the device's GPUs, or of its slice.
    """
    gpus, torch_device = (",".join(uuids), "cuda") if kind == "gpu" else (_NO_GPU, "cpu")
    return {
        "CUDA_VISIBLE_DEVICES": gpus,
        "JAX_PLATFORMS": JAX_PLATFORMS[kind],
        # Without this variable, Keras looks for a GPU at its import. If Keras asks CUDA, forked children can't use
        # GPUs. If Keras asks NVML, a second thread stays in the zygote, which then can't fork.
        "KERAS_TORCH_DEVICE": torch_device,
    }


_TIMEOUT_S = 120.0


def query_visible_devices(name: str) -> dict[str, Any]:
    """`devices` as the framework reports them, or the `reason` why it reports none. As slow as the import."""
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
    from dyno.bench.frameworks import framework

    parser = argparse.ArgumentParser(prog="dyno.bench.frameworks.visible_devices")
    parser.add_argument("name")
    chosen = framework(parser.parse_args().name)
    chosen.load()
    sys.stdout.write(json.dumps(chosen.visible_devices()) + "\n")


if __name__ == "__main__":
    _main()

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dyno.devices.device import Device
from dyno.frameworks.contract import Framework
from dyno.frameworks.tensorflow import TensorFlow
from dyno.workloads.contract import BuildContext

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="session")
def tensorflow() -> TensorFlow:
    """The real one, started once for the whole process: its threads can't be set twice."""
    framework = TensorFlow()
    framework.load()
    framework.start("cpu", len(CORES))
    return framework


@pytest.fixture(scope="session")
def device() -> Device:
    """A CPU with a small cache, so that rotating operands stay few."""
    return Device(
        id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=8 << 30, last_cache_bytes=1 << 20
    )


@pytest.fixture(scope="session")
def context(tensorflow: TensorFlow, device: Device) -> Callable[..., BuildContext]:
    """Makes a context; `framework` and `run` can be given."""

    def make(framework: Framework = tensorflow, run: int = 0, data_dir: Path | None = None) -> BuildContext:
        framework.seed(5)
        return BuildContext(
            framework=framework,
            seed=5,
            run=run,
            cores=len(CORES),
            phase=lambda name: nullcontext(),
            report=_unheard,
            device=device,
            data_dir=data_dir,
            tuned={"jit_compile": False},  # as a first run chose: measuring it takes seconds, see test_jit
        )

    return make


def _unheard(phase: str, completed: int, total: int | None, unit: str) -> Any:
    return None

"""Build a workload in this process as a runner does, for benchmarks that interleave it with something else."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from dyno.bench.contract import BuildContext, Built
from dyno.bench.devices.discovery import discover
from dyno.bench.frameworks import framework
from dyno.bench.frameworks.interface import Framework
from dyno.bench.registry import validate_params, workload
from dyno.settings import Settings


def compiled(
    name: str, params: dict[str, Any], tuned: dict[str, Any] | None = None, engine: Framework | None = None
) -> Built:
    """Build, compile and execute the workload once, on all cores of the device, pinned to them like a runner.

    `tuned`: see BuildContext. `engine`: the framework to load and start, by default TensorFlow.
    """
    device = discover("cpu", Settings())
    os.sched_setaffinity(0, device.cores)
    engine = engine or framework("tensorflow")
    engine.load()
    engine.start("cpu", len(device.cores))
    engine.seed(0)
    context = BuildContext(
        framework=engine,
        seed=0,
        run=0,
        cores=len(device.cores),
        phase=lambda name: contextlib.nullcontext(),
        report=lambda *_: None,
        device=device,
        data_dir=Settings().data_dir,
        tuned=tuned or {},
    )
    chosen = workload(name)
    built = chosen.build(validate_params(chosen, params), context)
    built.compile()
    built.execute(1)
    return built

"""A workload built in this process as a runner builds it, for benchmarks that interleave with something else."""

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
    """The workload built, compiled and executed once, on every core of the device and pinned to them as a runner is.

    `tuned`: see BuildContext. `engine`: what to load and start, TensorFlow unless given.
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

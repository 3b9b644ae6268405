"""Records of runs whose figures are chosen, so that what follows from them can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dyno.devices.device import Device, PeakFigure
from dyno.frames import RunRecord
from dyno.measure.sampling import Samples
from dyno.measure.summary import summarise
from dyno.result import Phases

MakeRecord = Callable[..., RunRecord]


def make_record(
    samples: Sequence[float],
    *,
    work: float = 1000.0,
    executions_per_sample: int = 1,
    steady: bool = True,
    stopped_because: str = "target",
    first_execution_s: float | None = 0.5,
    **fields: Any,
) -> RunRecord:
    wall_s = sum(samples) * executions_per_sample
    taken = Samples(
        warmup=[1.0],
        samples=list(samples),
        executions_per_sample=executions_per_sample,
        steady=steady,
        stopped_because=stopped_because,  # type: ignore[arg-type]
        sample_cpu_s=[(0.1, 0.0)] * len(samples),
        warmup_s=1.0,
        wall_s=wall_s,
        user_s=2 * wall_s,
        system_s=0.5,
        epoch_s=wall_s,
    )
    phases = Phases(compile_s=0.25, first_execution_s=first_execution_s)
    summary = summarise(taken, process_start="forked", pid=1, phases=phases, started_at_s=0.0)
    return RunRecord(summary=summary, warmup=taken.warmup, samples=taken.samples, work=work, **fields)


@pytest.fixture
def record() -> MakeRecord:
    return make_record


@pytest.fixture
def device() -> Device:
    return Device(
        id="cpu:0-1",
        kind="cpu",
        model="GenuineIntel family 6 model 85 stepping 7",
        host="h",
        cores=[0, 1],
        memory_bytes=2**33,
        last_cache_bytes=2**25,
        isa=["avx2"],
        peak={
            "float32": PeakFigure(value=10_000.0, provenance="measured here"),
            "bfloat16": PeakFigure(value=None, reason="no unit"),
        },
    )

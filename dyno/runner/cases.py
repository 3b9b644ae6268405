"""A run of several cases: each is executed once, warmed up and sampled as if it were alone, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dyno.devices.device import Device
from dyno.devices.sensors.source import Source
from dyno.frameworks.contract import Framework
from dyno.models.result import RunSummary
from dyno.models.runner_protocol import CaseRecord
from dyno.models.spec import Measure
from dyno.runner.samples import Taken, take_samples
from dyno.runner.writer import FrameWriter
from dyno.workloads.contract import Built, Case, Several

Summarise = Callable[[Taken, float | None], RunSummary]  # of these samples, after a first execution of so many seconds


@dataclass(frozen=True)
class Sampled:
    """One case and what was taken of it; `first_execution_s` is null for the run's own."""

    case: Case
    taken: Taken
    first_execution_s: float | None = None


def sample_all(
    built: Built, measure: Measure, device: Device, source: Source, frames: FrameWriter, framework: Framework
) -> tuple[Taken, list[Sampled]]:
    """The run's own samples, with what disturbed any case, and every case there is with its samples."""
    cases = built.cases if isinstance(built, Several) else ()
    count = max(1, len(cases))
    own = take_samples(built.execute, measure, device, source, frames, (0, count), framework)
    found = [Sampled(case, own) for case in cases[:1]]
    for place, case in enumerate(cases[1:], start=1):
        began_s = time.perf_counter()
        case.execute(1)
        first_execution_s = time.perf_counter() - began_s
        taken = take_samples(case.execute, measure, device, source, frames, (place, count), framework)
        found.append(Sampled(case, taken, first_execution_s))
        own.disturbances.extend(taken.disturbances)
    return own, found


def case_records(found: Sequence[Sampled], summarise: Summarise) -> list[CaseRecord]:
    return [
        CaseRecord(
            name=each.case.name,
            work=each.case.work,
            flops=each.case.flops,
            dtype=each.case.dtype,
            amounts=dict(each.case.amounts),
            summary=summarise(each.taken, each.first_execution_s),
            warmup=each.taken.samples.warmup,
            samples=each.taken.samples.samples,
            sample_cpu_s=each.taken.samples.sample_cpu_s,
        )
        for each in found
    ]

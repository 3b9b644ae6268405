"""A run of several cases: each is executed once, warmed up and sampled as if it were alone, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dyno.devices.device import Device
from dyno.frames import CaseRecord
from dyno.measure.sampling import Samples
from dyno.result import ResultWarning, RunSummary
from dyno.runner.samples import take_samples
from dyno.runner.writer import FrameWriter
from dyno.spec import Measure
from dyno.workloads.contract import Built, Case, Several

Summarise = Callable[
    [Samples, float | None], RunSummary
]  # of these samples, after a first execution of so many seconds


@dataclass(frozen=True)
class Sampled:
    """One case and what was taken of it; `first_execution_s` is null for the run's own."""

    case: Case
    samples: Samples
    first_execution_s: float | None = None


def sample_all(
    built: Built, measure: Measure, device: Device, frames: FrameWriter
) -> tuple[Samples, list[Sampled], list[ResultWarning]]:
    """The run's own samples, every case there is with its samples, and what disturbed any of them."""
    cases = built.cases if isinstance(built, Several) else ()
    count = max(1, len(cases))
    own, disturbances = take_samples(built.execute, measure, device, frames, (0, count))
    found = [Sampled(case, own) for case in cases[:1]]
    for place, case in enumerate(cases[1:], start=1):
        began_s = time.perf_counter()
        case.execute(1)
        first_execution_s = time.perf_counter() - began_s
        samples, disturbed = take_samples(case.execute, measure, device, frames, (place, count))
        found.append(Sampled(case, samples, first_execution_s))
        disturbances += disturbed
    return own, found, disturbances


def case_records(found: Sequence[Sampled], summarise: Summarise) -> list[CaseRecord]:
    return [
        CaseRecord(
            name=each.case.name,
            work=each.case.work,
            flops=each.case.flops,
            dtype=each.case.dtype,
            amounts=dict(each.case.amounts),
            summary=summarise(each.samples, each.first_execution_s),
            warmup=each.samples.warmup,
            samples=each.samples.samples,
            sample_cpu_s=each.samples.sample_cpu_s,
        )
        for each in found
    ]

"""One run in figures."""

from __future__ import annotations

from typing import Literal

from dyno.measure.sampling import Samples
from dyno.measure.statistics import mad, median_interval, quartiles
from dyno.models.result import CoreShares, Cpu, Phases, RunSummary, Sensors


def summarise(
    samples: Samples,
    *,
    process_start: Literal["forked", "spawned"],
    pid: int,
    phases: Phases,
    started_at_s: float,
    first_op_at_s: float | None = None,
    clock_hz: float | None = None,
    sensors: Sensors | None = None,
    core_shares: CoreShares | None = None,
) -> RunSummary:
    """The summary of one run; times per execution in seconds. `phases` gets its `warmup_s` and `steady_s` here."""
    interval = median_interval(samples.samples)
    first, third = quartiles(samples.samples)
    return RunSummary(
        process_start=process_start,
        pid=pid,
        median=interval.value,
        low=interval.low,
        high=interval.high,
        q1=first,
        q3=third,
        min=min(samples.samples),
        max=max(samples.samples),
        mad=mad(samples.samples),
        samples=len(samples.samples),
        executions_per_sample=samples.executions_per_sample,
        warmup_samples=len(samples.warmup),
        steady=samples.steady,
        stopped_because=samples.stopped_because,
        phases=phases.model_copy(update={"warmup_s": samples.warmup_s, "steady_s": samples.wall_s}),
        cpu=Cpu(wall_s=samples.wall_s, user_s=samples.user_s, system_s=samples.system_s),
        core_shares=core_shares,
        clock_hz=clock_hz,
        sensors=sensors,
        started_at_s=started_at_s,
        first_op_at_s=first_op_at_s,
    )

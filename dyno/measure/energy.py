"""Energy over the sampled windows of all runs, and what one sample or one operation took of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dyno.models.result import Energy, Sensors
from dyno.models.runner_protocol import RunRecord

_OPERATIONS = ("FLOP/s", "OP/s")


def energy(records: Sequence[RunRecord], rate_unit: str | None, flops: float) -> Energy:
    """`rate_unit`: that of the throughput ("FLOP/s", "images/s"), which `work` of a record is counted in.

    Null, with the reason, unless every run tells its energy. `flops` per execution.
    """
    windows = [record.summary.sensors for record in records]
    known = [each for each in windows if each is not None and each.energy_j is not None and each.energy_s]
    if len(known) < len(records):
        return Energy(reason=_reason(windows))
    joules, seconds = (
        math.fsum(each.energy_j or 0.0 for each in known),
        math.fsum(each.energy_s or 0.0 for each in known),
    )
    each_j = joules / seconds * _mean_execution_s(records)
    counted = rate_unit is not None and rate_unit not in _OPERATIONS and each_j > 0
    return Energy(
        joules=joules,
        window_s=seconds,
        joules_per_sample=each_j / records[0].work if counted else None,
        flop_per_joule=flops / each_j if flops and each_j > 0 else None,
        covers=known[0].energy_of,
    )


def _mean_execution_s(records: Sequence[RunRecord]) -> float:
    """Of the whole windows, what lies between samples included: the energy of that is counted too."""
    summaries = [record.summary for record in records]
    executions = sum(summary.samples * summary.executions_per_sample for summary in summaries)
    return math.fsum(summary.phases.steady_s or 0.0 for summary in summaries) / executions


def _reason(windows: Sequence[Sensors | None]) -> str:
    told = [each.reasons.get("energy_j") for each in windows if each is not None and each.energy_j is None]
    return next((reason for reason in told if reason), "no energy counter was read")

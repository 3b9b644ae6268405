"""From the records of all runs to the readings that are kept beside a result."""

from __future__ import annotations

from collections.abc import Sequence

from dyno.models.result import RunSamples
from dyno.models.runner_protocol import CaseRecord, RunRecord


def raw_samples(records: Sequence[RunRecord]) -> list[RunSamples]:
    """Every reading of every run and case, in the order they were taken."""
    return [_of(number, measured) for number, record in enumerate(records) for measured in _measured(record)]


def _measured(record: RunRecord) -> Sequence[RunRecord | CaseRecord]:
    return record.cases or [record]


def _of(run: int, measured: RunRecord | CaseRecord) -> RunSamples:
    return RunSamples(
        run=run,
        case=measured.name if isinstance(measured, CaseRecord) else None,
        warmup=measured.warmup,
        samples=measured.samples,
        sample_cpu_s=measured.sample_cpu_s,
        executions_per_sample=measured.summary.executions_per_sample,
    )

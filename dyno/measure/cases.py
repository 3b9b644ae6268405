"""A job of several cases, seen as so many jobs of one: every figure and check of the method holds for each."""

from __future__ import annotations

from collections.abc import Sequence

from dyno.models.runner_protocol import RunRecord


def by_case(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """The runs of each case by its name, in the order they were taken; empty where the job has but one."""
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        for case, alone in zip(record.cases, parts(record), strict=False):
            found.setdefault(case.name, []).append(alone)
    return found


def parts(record: RunRecord) -> list[RunRecord]:
    """The run as one record per case, with the case's own samples; the run itself where it has but one."""
    return [
        record.model_copy(
            update={
                "cases": [],
                "summary": case.summary,
                "warmup": case.warmup,
                "samples": case.samples,
                "sample_cpu_s": case.sample_cpu_s,
                "work": case.work,
                "amounts": {**record.amounts, **case.amounts},
            }
        )
        for case in record.cases
    ] or [record]

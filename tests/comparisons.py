"""Succeeded jobs with chosen figures, for comparisons without a measurement."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from dyno.bench.measure.compare_results import ComparisonEntry
from dyno.bench.measure.statistics import mean_interval
from dyno.models.job import Job, QueuePlace, Status, Urls, new_job_id
from dyno.models.result import Metric, Peak, Precision
from dyno.models.spec import Spec
from tests.results import a_result

RATES = [100.0, 101.0, 99.0, 100.5, 99.5]


def a_metric(name="throughput", by_run=RATES, better="higher"):
    """A metric with these figures of its runs; without figures, one that is taken once."""
    interval = mean_interval(by_run) if by_run else None
    return Metric(
        name=name,
        unit="FLOP/s" if better == "higher" else "s",
        value=fmean(by_run) if by_run else 0.9,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        better=better,
        runs=len(by_run) or 1,
        samples=20,
        by_run=list(by_run),
    )


def of_metrics(metrics, **result):
    known: dict[str, Any] = {
        "workload": "matmul",
        "metrics": list(metrics),
        "peak": Peak(value=1e12, fraction=0.7),
        "precision": Precision(requested="float32", observed="float32", rel_error=3e-7),
        "device": {"id": "cpu:0-1", "host": "here", "model": "Test CPU", "kind": "cpu"},
        "environment": {"python": "CPython 3.11", "packages": {"jax": "0.10.2"}},
        "hardware_id": "hw_1",
        "context_id": "ctx_1",
    }
    return a_result(new_job_id()).model_copy(update=known | result)


def an_entry(by_run=RATES, *, metrics=None, spec=None, **result):
    """A job and its result. `by_run` are the figures of its throughput; `metrics` replace that metric."""
    now, asked = datetime.now(UTC), {"workload": "matmul", "params": {"n": 64, "dtype": "float32"}} | (spec or {})
    ran = {"params": asked["params"]} | result
    found = of_metrics([a_metric(by_run=by_run)] if metrics is None else metrics, **ran)
    job = Job(
        id=found.job,
        status=Status.SUCCEEDED,
        done=True,
        attempt=1,
        spec=Spec.model_validate(asked),
        queue=QueuePlace(name="cpu"),
        created_at=now,
        queued_at=now,
        finished_at=now,
        urls=Urls(self="", result="", cancel=""),
        schema=1,
        version=3,
    )
    return ComparisonEntry(job, found)


def times(factor, by_run=RATES):
    return [factor * value for value in by_run]

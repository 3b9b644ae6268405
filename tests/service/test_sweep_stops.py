"""Which points of a sweep are stopped, from figures alone."""

import json
from datetime import UTC, datetime

import pytest

from dyno.bench.registry import workload
from dyno.models.job import new_job_id
from dyno.models.result import ResultSummary, Verdict
from dyno.models.sweep import BatchLimit, Stop, StoredPoint, SweepRecord, new_sweep_id
from dyno.store.records import QueueState, StoredJob
from dyno.store.sweeps import StoredSweep
from service.sweeps.results import Measured
from service.sweeps.stops import points_to_stop
from tests.comparisons import a_metric, of_metrics

MATMUL = workload("matmul")
NAME = "throughput"


def a_job(n, status="succeeded", reason=None):
    spec = {"workload": "matmul", "params": {"n": n, "dtype": "float32"}}
    record = {"id": new_job_id(), "status": status, "spec": json.dumps(spec)}
    return StoredJob(record | ({"status_reason": reason} if reason else {}), QueueState())


def a_result(value, name=NAME, better="higher", scatter=0.01, **more):
    by_run = [value * (1 + scatter * place) for place in (-1, 0, 1)]
    return ResultSummary.model_validate_json(of_metrics([a_metric(name, by_run, better)], **more).model_dump_json())


def measured(*results, waiting=1, n=64):
    jobs = [a_job(n) for _ in results] + [a_job(n, "queued") for _ in range(waiting)]
    ran = [each.model_copy(update={"params": {"n": n}}) for each in results]
    return Measured(jobs, [*ran, *[None] * waiting])


def a_sweep(points, bases=None, metric=NAME, **more):
    bases = bases or [None] * len(points)
    stored = [StoredPoint(values=values, jobs=[], base=base) for values, base in zip(points, bases, strict=True)]
    record = SweepRecord(workload="matmul", metric=metric, axes={}, points=stored, **more)
    return StoredSweep(new_sweep_id(), None, datetime.now(UTC), None, record)


def of_two(first, second, **more):
    stored = a_sweep([{"params.n": 64}, {"params.n": 128}], stop_hopeless=True, **more)
    return dict(points_to_stop(stored, [first, second], MATMUL))


def test_a_point_that_is_surely_less_than_half_as_good_is_hopeless():
    slow, fast = a_result(40), a_result(100)
    stop = Stop(reason="hopeless", by=1, bound=slow.metrics[0].high, best_bound=fast.metrics[0].low)
    assert of_two(measured(slow), measured(fast)) == {0: stop}
    assert of_two(measured(fast), measured(slow)) == {1: stop.model_copy(update={"by": 0})}


def test_of_times_the_longer_is_hopeless():
    long, short = (a_result(value, "time_per_sample", "lower") for value in (5.0, 2.0))
    stop = Stop(reason="hopeless", by=1, bound=long.metrics[0].low, best_bound=short.metrics[0].high)
    assert of_two(measured(long), measured(short), metric="time_per_sample") == {0: stop}


def test_rounds_give_the_interval_over_jobs():
    steady, unsteady = [a_result(40), a_result(40.4)], [a_result(10), a_result(60)]
    best = measured(a_result(100), a_result(101))
    assert of_two(measured(*steady), best).keys() == {0}
    assert of_two(measured(*unsteady), best) == {}


@pytest.mark.parametrize(
    ("slow", "fast"),
    [
        (measured(a_result(49)), measured(a_result(100))),
        (measured(a_result(20, scatter=0.9)), measured(a_result(100))),
        (measured(a_result(20)), measured(a_result(100, scatter=0.9))),
        (measured(a_result(20), waiting=0), measured(a_result(100))),
        (measured(a_result(20)), measured(waiting=2)),
        (measured(a_result(20)), measured(a_result(100, verdict=Verdict.UNTRUSTED))),
        (measured(a_result(20, verdict=Verdict.UNTRUSTED)), measured(a_result(100))),
        (measured(a_result(20, device={"emulated": True})), measured(a_result(100))),
    ],
    ids=["near", "wide", "wide_best", "no_more_jobs", "no_best", "untrusted_best", "untrusted", "emulated"],
)
def test_a_point_is_not_stopped_in_doubt(slow, fast):
    assert of_two(slow, fast) == {}


def test_totals_of_other_work_stop_nothing():
    long, short = (a_result(value, "execution_time", "lower") for value in (50.0, 2.0))
    alike = of_two(measured(long, n=64), measured(short, n=64), metric="execution_time")
    unlike = of_two(measured(long, n=128), measured(short, n=64), metric="execution_time")
    assert (alike.keys(), unlike) == ({0}, {})


def test_a_base_goes_on():
    stored = a_sweep([{"params.n": 64}, {"params.n": 128}], [None, 0], stop_hopeless=True)
    both = [measured(a_result(20)), measured(a_result(100))]
    assert points_to_stop(stored, both, MATMUL) == {}


def test_a_point_is_stopped_once_and_only_if_asked():
    both = measured(a_result(20)), measured(a_result(100))
    stored = a_sweep([{"params.n": 64}, {"params.n": 128}])
    assert points_to_stop(stored, both, MATMUL) == {}
    found = StoredSweep(stored.id, None, stored.created_at, None, stored.record, {0: Stop(reason="hopeless", by=1)})
    found.record.__dict__.update(stop_hopeless=True)
    assert points_to_stop(found, both, MATMUL) == {}


def test_larger_batches_than_one_that_ran_out_of_memory_are_stopped():
    """Only at the same values of the other axes; a failure for another reason stops nothing."""
    points = [
        {"params.batch_size": size, "device": device} for device in ("cpu:0-0", "cpu:1-1") for size in (32, 64, 128)
    ]
    limits = [BatchLimit(values={"device": device}) for device in ("cpu:0-0", "cpu:1-1")]
    jobs = [a_job(1), a_job(1, "failed", "out_of_memory"), a_job(1, "queued")]
    jobs += [a_job(1, "failed", "nonfinite_loss"), a_job(1, "queued"), a_job(1, "queued")]
    each = [Measured([job], [None]) for job in jobs]
    found = points_to_stop(a_sweep(points, batch_limits=limits), each, MATMUL)
    assert found == {place: Stop(reason="out_of_memory", by=1) for place in (1, 2)}

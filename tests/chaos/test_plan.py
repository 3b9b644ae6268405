"""The plan of faults and jobs depends on the seed alone."""

from collections import Counter
from itertools import pairwise

import pytest

from chaos.plan import _LANES, API, WORKERS, FaultKind, Span, clear_s, job_count, plan_faults, plan_jobs
from dyno.bench.registry import resolve
from dyno.models.spec import Spec


def test_a_seed_has_one_plan():
    assert plan_faults(7, 600) == plan_faults(7, 600, set(FaultKind)) != plan_faults(8, 600)
    assert plan_jobs(7, 100, 60, (0, 1)) == plan_jobs(7, 100, 60, (0, 1)) != plan_jobs(8, 100, 60, (0, 1))


@pytest.mark.parametrize("duration_s", [10, 48, 600])
def test_every_kind_comes_in_every_run_and_each_fault_ends_before_the_run_and_the_next_of_its_lane(duration_s):
    for seed in range(50):
        faults = plan_faults(seed, duration_s)
        assert {fault.kind for fault in faults} == set(FaultKind)
        for lane in _LANES:
            ends = [(fault.at_s, fault.at_s + fault.lasts_s) for fault in faults if fault.kind in lane]
            assert all(end_s <= begin_s for (_, end_s), (begin_s, _) in pairwise([*ends, (duration_s, duration_s)]))


def test_ten_minutes_reach_every_process_with_every_signal_and_outlast_leases():
    faults = [fault for seed in range(3) for fault in plan_faults(seed, 600)]
    assert len(faults) > 3 * 80
    for kind in (FaultKind.KILL, FaultKind.STOP, FaultKind.TERM):
        assert {fault.target for fault in faults if fault.kind is kind} == {*WORKERS, API}
    assert all(fault.lasts_s > 6 for fault in faults if fault.kind is FaultKind.STOP)
    asked = {FaultKind.KILL, FaultKind.RESET}
    assert {fault.kind for fault in plan_faults(7, 600, asked)} == asked


def test_jobs_are_spread_over_the_run_and_most_are_tiny():
    jobs = plan_jobs(7, 1250, 600, (0, 1))
    assert len({job.key for job in jobs}) == 1250
    assert 0 < jobs[0].at_s < 6 < 594 < jobs[-1].at_s < 600
    sizes = Counter(job.size for job in jobs)
    assert sizes["tiny"] >= 1000
    assert sizes["long"] + sizes["longer"] >= 125
    assert sizes["failing"] > 0
    assert min(sum(job.cancel_after_s is not None for job in jobs), sum(job.twice for job in jobs)) > 20
    for job in jobs[:200]:
        spec = resolve(Spec.model_validate(job.body)).spec
        assert (spec.queue_if_absent, spec.device.kind) == (True, "cpu")


@pytest.mark.parametrize(
    ("minutes", "cores", "jobs"),
    [(10, 2, 1250), (10, 64, 1250), (4, 2, 500), (4, 1, 250), (0.001, 1, 1), (600, 2, 2000)],
)
def test_the_number_of_jobs_follows_from_the_minutes_and_the_cores(minutes, cores, jobs):
    assert job_count(minutes, cores) == jobs


def test_time_outside_of_all_spans_counts_once():
    assert clear_s(10, 20, []) == 10
    assert clear_s(10, 20, [Span(18, 30), Span(0, 12), Span(11, 13), Span(11, 12)]) == 5
    assert clear_s(10, 20, [Span(0, 30)]) == clear_s(10, 10, [Span(0, 12)]) == clear_s(10, 20, [Span(10, 20)]) == 0

"""The plan of faults and jobs depends on the seed alone."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from chaos.plan import API, WORKERS, Fault, FaultKind, plan_faults, plan_jobs
from dyno.models.spec import Spec
from dyno.workloads import resolve

LANES = (
    {FaultKind.KILL, FaultKind.STOP, FaultKind.TERM},
    {FaultKind.RESTART, FaultKind.AWAY, FaultKind.SLOW, FaultKind.RESET},
    {FaultKind.FULL, FaultKind.JUMP},
)


def test_one_seed_has_one_schedule_and_another_seed_another() -> None:
    assert plan_faults(7, 600) == plan_faults(7, 600)
    assert plan_faults(7, 600) != plan_faults(8, 600)


@pytest.mark.parametrize("duration_s", [10, 48, 600])
def test_every_kind_comes_in_every_run_and_all_is_over_at_its_end(duration_s: float) -> None:
    for seed in range(50):
        faults = plan_faults(seed, duration_s)
        assert {fault.kind for fault in faults} == set(FaultKind)
        assert faults == sorted(faults)
        assert all(fault.at_s > 0 and fault.at_s + fault.lasts_s < duration_s for fault in faults)


def test_kinds_that_are_not_asked_for_do_not_come() -> None:
    asked = {FaultKind.KILL, FaultKind.RESET}
    assert {fault.kind for fault in plan_faults(7, 600, asked)} == asked
    assert plan_faults(7, 600, set(FaultKind)) == plan_faults(7, 600)


def test_faults_of_one_kind_of_place_come_one_after_the_other() -> None:
    for lane in LANES:
        faults = [fault for fault in plan_faults(3, 600) if fault.kind in lane]
        overlapping = [(one, other) for one, other in pairwise(faults) if one.at_s + one.lasts_s > other.at_s]
        assert overlapping == []


def test_ten_minutes_reach_every_process_with_every_signal() -> None:
    faults = [fault for seed in range(3) for fault in plan_faults(seed, 600)]
    for kind in LANES[0]:
        assert {fault.target for fault in faults if fault.kind is kind} == {*WORKERS, API}
    assert len(faults) > 3 * 80


def test_a_stopped_worker_mostly_sleeps_for_longer_than_its_lease() -> None:
    stops: list[Fault] = [fault for fault in plan_faults(1, 600) if fault.kind is FaultKind.STOP]
    assert all(fault.lasts_s > 6 for fault in stops)


def test_one_seed_has_one_list_and_another_seed_another() -> None:
    assert plan_jobs(7, 100, 60, (0, 1)) == plan_jobs(7, 100, 60, (0, 1))
    assert plan_jobs(7, 100, 60, (0, 1)) != plan_jobs(8, 100, 60, (0, 1))


def test_jobs_are_spread_over_the_run_a_thousand_of_them_tiny_and_one_in_ten_long_enough_to_be_met() -> None:
    asked = plan_jobs(7, 1250, 600, (0, 1))
    assert len({order.key for order in asked}) == 1250
    assert all(early.at_s <= late.at_s for early, late in pairwise(asked))
    assert asked[0].at_s < 6
    assert 594 < asked[-1].at_s < 600
    sizes = Counter(order.size for order in asked)
    assert sizes["tiny"] >= 1000
    assert sizes["long"] + sizes["longer"] >= 125
    assert sizes["failing"] > 0
    assert sum(order.cancel_after_s is not None for order in asked) > 20
    assert sum(order.twice for order in asked) > 20


def test_every_order_is_a_spec_that_a_workload_takes() -> None:
    for order in plan_jobs(7, 200, 600, (0, 1)):
        spec = resolve(Spec.model_validate(order.body)).spec
        assert spec.queue_if_absent
        assert spec.device.kind == "cpu"

"""Which fault comes when is a matter of the seed alone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from chaos.schedule import API, WORKERS, Fault, Kind, schedule

LANES = (
    {Kind.KILL, Kind.STOP, Kind.TERM},
    {Kind.RESTART, Kind.AWAY, Kind.SLOW, Kind.RESET},
    {Kind.FULL, Kind.JUMP},
)


def test_one_seed_has_one_schedule_and_another_seed_another() -> None:
    assert schedule(7, 600) == schedule(7, 600)
    assert schedule(7, 600) != schedule(8, 600)


@pytest.mark.parametrize("duration_s", [10, 48, 600])
def test_every_kind_comes_in_every_run_and_all_is_over_at_its_end(duration_s: float) -> None:
    for seed in range(50):
        faults = schedule(seed, duration_s)
        assert {fault.kind for fault in faults} == set(Kind)
        assert faults == sorted(faults)
        assert all(fault.at_s > 0 and fault.at_s + fault.lasts_s < duration_s for fault in faults)


def test_kinds_that_are_not_asked_for_do_not_come() -> None:
    asked = {Kind.KILL, Kind.RESET}
    assert {fault.kind for fault in schedule(7, 600, asked)} == asked
    assert schedule(7, 600, set(Kind)) == schedule(7, 600)


def test_faults_of_one_kind_of_place_come_one_after_the_other() -> None:
    for lane in LANES:
        faults = [fault for fault in schedule(3, 600) if fault.kind in lane]
        overlapping = [(one, other) for one, other in pairwise(faults) if one.at_s + one.lasts_s > other.at_s]
        assert overlapping == []


def test_ten_minutes_reach_every_process_with_every_signal() -> None:
    faults = [fault for seed in range(3) for fault in schedule(seed, 600)]
    for kind in LANES[0]:
        assert {fault.target for fault in faults if fault.kind is kind} == {*WORKERS, API}
    assert len(faults) > 3 * 80


def test_a_stopped_worker_mostly_sleeps_for_longer_than_its_lease() -> None:
    stops: list[Fault] = [fault for fault in schedule(1, 600) if fault.kind is Kind.STOP]
    assert all(fault.lasts_s > 6 for fault in stops)

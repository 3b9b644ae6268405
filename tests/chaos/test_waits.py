"""How long jobs waited with nothing wrong any more."""

from __future__ import annotations

from chaos.streams import Event
from chaos.waits import longest_wait_s


def event(at_s: float, job: str, name: str, status: str) -> Event:
    return Event(at_s, job, name, status, 1)


LIFE = [
    event(10, "a", "submit", "queued"),
    event(12, "b", "submit", "queued"),
    event(15, "a", "claim", "running"),
    event(16, "a", "expire", "queued"),
    event(30, "b", "claim", "running"),
    event(36, "a", "claim", "running"),
]


def test_a_wait_is_counted_from_the_queue_or_from_the_end_of_the_last_fault_before_the_claim() -> None:
    assert longest_wait_s(LIFE, []) == 20
    assert longest_wait_s(LIFE, [29, 20]) == 7
    assert longest_wait_s(LIFE, [40]) == 20


def test_jobs_that_were_never_claimed_waited_for_nothing() -> None:
    assert longest_wait_s(LIFE[:2], [3]) == 0

"""How long jobs waited though there was a worker to take them."""

from __future__ import annotations

import pytest

from chaos.spans import Span, clear_s
from chaos.streams import Event
from chaos.waits import REDIS, longest_wait_s


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
TAKERS = {"a": {"one", "other"}, "b": {"one"}}


def test_what_spans_leave_clear_is_counted_once_however_they_overlap() -> None:
    assert clear_s(10, 20, []) == 10
    assert clear_s(10, 20, [Span(0, 12), Span(11, 13), Span(18, 30)]) == 5
    assert clear_s(10, 20, [Span(0, 30)]) == 0
    assert clear_s(10, 10, [Span(0, 12)]) == 0


def test_faults_that_leave_a_job_a_worker_take_nothing_of_its_wait() -> None:
    assert longest_wait_s(LIFE, TAKERS, {}) == 20
    assert longest_wait_s(LIFE, TAKERS, {"one": [Span(17, 20), Span(33, 34)]}) == 20


def test_no_time_counts_in_which_nobody_could_take_the_job() -> None:
    away = {"one": [Span(0, 29)], "other": [Span(20, 22), Span(24, 26)]}
    assert longest_wait_s(LIFE, TAKERS, away) == pytest.approx(20 - 2 - 2)
    assert longest_wait_s(LIFE, {**TAKERS, "a": {"one"}}, away) == 36 - 29
    assert longest_wait_s(LIFE, TAKERS, {REDIS: [Span(14, 35)]}) == 4  # of "a", before that


def test_jobs_that_were_never_claimed_waited_for_nothing() -> None:
    assert longest_wait_s(LIFE[:2], TAKERS, {}) == 0

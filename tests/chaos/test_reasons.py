"""What a job fails for, or is given back for, has to be the doing of a fault that there was."""

from __future__ import annotations

import pytest

from chaos.breach import Breach
from chaos.reasons import CAUSES, unexplained
from chaos.schedule import Kind
from chaos.streams import Event, Streams


def life(event: str, status: str, reason: str | None) -> Streams:
    return Streams([], {"a": [Event(1.0, "a", "claim", "running", 2), Event(2.0, "a", event, status, 3, reason)]})


@pytest.mark.parametrize(
    ("event", "status", "reason"),
    [
        ("fail", "failed", "disk_full"),
        ("exhaust", "failed", "worker_lost"),
        ("expire", "queued", "worker_lost"),
        ("requeue", "queued", "worker_shutdown"),
    ],
)
def test_a_reason_is_explained_by_its_own_faults_and_by_no_others(event: str, status: str, reason: str) -> None:
    streams = life(event, status, reason)
    assert list(unexplained(streams, CAUSES[reason], ())) == []
    [violation] = unexplained(streams, set(Kind) - set(CAUSES[reason]), ())
    assert violation.breach is Breach.REASON
    assert reason in violation.what


@pytest.mark.parametrize("reason", ["newer_schema", "internal", "workload_error", "worker_error", "stalled", None])
def test_no_fault_explains_what_is_a_bug(reason: str | None) -> None:
    for event, status in [("fail", "failed"), ("exhaust", "failed"), ("requeue", "queued")]:
        assert len([*unexplained(life(event, status, reason), set(Kind), ["a"])]) == 1


def test_a_timeout_is_for_jobs_that_ask_for_too_little_time() -> None:
    assert list(unexplained(life("fail", "failed", "timeout"), (), ["a"])) == []
    assert len([*unexplained(life("fail", "failed", "timeout"), set(Kind), ["b"])]) == 1


def test_jobs_that_succeed_or_are_canceled_need_no_reason() -> None:
    assert list(unexplained(life("succeed", "succeeded", None), (), ())) == []
    assert list(unexplained(life("stop", "canceled", "worker_lost"), (), ())) == []

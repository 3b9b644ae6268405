"""When a job's turn is likely: learned from real jobs, told of those that wait."""

from __future__ import annotations

from typing import Any

import pytest

from tests.waiting import eventually

FAR_OFF = 20.0  # times: what is told may be so wrong on a busy host, with other tests' jobs among those learned from
RUNS_S = 55.0  # the `long` fixture's


@pytest.fixture
def learned(api: Any, tiny: dict[str, Any]) -> None:
    """Three jobs of the workload have succeeded."""
    for job in [api.submit(tiny) for _ in range(3)]:
        assert api.finished(job)["status"] == "succeeded"


def test_a_queued_job_has_an_eta(api: Any, tiny: dict[str, Any], learned: None, long: dict[str, Any]) -> None:
    assert api.job(long)["queue"]["eta_s"] is None
    device = f"{long['worker']['device'].partition('@')[0]}@{long['worker']['host']}"
    waiting = [api.submit(tiny, device=device) for _ in range(3)]
    etas = eventually(lambda: settled([api.job(job)["queue"]["eta_s"] for job in waiting]), 60, "ETAs")
    assert etas == sorted(etas)
    assert 0 < etas[0] < FAR_OFF * RUNS_S
    assert 0 < etas[2] - etas[0] < FAR_OFF * 2 * 10  # two tiny jobs
    assert [api.job(job)["version"] for job in waiting] == [job["version"] for job in waiting]
    for job in waiting:
        api.cancel(job)
        assert api.job(job)["queue"]["eta_s"] is None


def settled(etas: list[float | None]) -> list[float | None] | None:
    """Jobs that came within one second are told the same at first."""
    return None if None in etas or len(set(etas)) < len(etas) else etas

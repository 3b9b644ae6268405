"""ETAs of queued jobs, learned from real jobs."""

import pytest

from tests.waiting import eventually

FAR_OFF = 20.0  # factor by which an ETA may be wrong on a busy host, as it is also learned from other tests' jobs
RUNS_S = 55.0  # duration of the `long` fixture


@pytest.fixture
def learned(api, tiny):
    """Run three jobs of the workload to success."""
    for job in [api.submit(tiny) for _ in range(3)]:
        assert api.finished(job)["status"] == "succeeded"


def test_a_queued_job_has_an_eta(api, tiny, learned, long):
    assert api.job(long)["queue"]["eta_s"] is None
    device = f"{long['worker']['device'].partition('@')[0]}@{long['worker']['host']}"
    waiting = [api.submit(tiny, device=device) for _ in range(3)]
    etas = eventually(lambda: settled(etas_of(api, waiting)), 60, "ETAs")
    assert etas == sorted(etas)
    assert 0 < etas[0] < FAR_OFF * RUNS_S
    assert 0 < etas[2] - etas[0] < FAR_OFF * 2 * 10  # two tiny jobs
    assert [api.job(job)["version"] for job in waiting] == [job["version"] for job in waiting]
    for job in waiting:
        api.cancel(job)
        assert api.job(job)["queue"]["eta_s"] is None


def etas_of(api, jobs):
    """From one page, and so from one forecast: it is made anew every second."""
    page = api.http.get("/v1/jobs", params={"status": "queued"}).json()["data"]
    found = {job["id"]: job["queue"]["eta_s"] for job in page}
    return [found.get(job["id"]) for job in jobs]


def settled(etas):
    """The ETAs once they differ: jobs submitted within one second first have the same."""
    return None if None in etas or len(set(etas)) < len(etas) else etas

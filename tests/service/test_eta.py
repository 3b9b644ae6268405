"""`queue.eta_s` over HTTP with the workloads' own estimates; past jobs are planted, and no job runs."""

import pytest

from dyno.models.spec import Spec
from dyno.store.eta import FORECAST_FRESH_S, MIN_DURATIONS, duration_series
from dyno.store.redis import Keys
from tests.waiting import eventually

TINY = {"workload": "matmul", "params": {"n": 64}, "device": "cpu"}
IN_TURNS = {"specs": [TINY, {"workload": "matmul", "params": {"n": 64, "repeats": 20}}], "pairs": 4}
TOOK = 2.0  # planted jobs took this many times their estimates


@pytest.fixture
def learned(client, settings, offered):
    series = Keys(settings.namespace).paces(duration_series(Spec(workload="matmul"), offered))
    client.lpush(series, *[f"work 1.0 {TOOK}"] * MIN_DURATIONS)


def estimate_s(http):
    answer = http.post("/v1/jobs", params={"validate_only": "true"}, json=TINY).raise_for_status()
    return float(answer.json()["estimate"]["time_s"])


def once_fresh(http, job_id, expected):
    """The job once its ETA accounts for all queued jobs."""
    return eventually(
        lambda: (now := http.get(f"/v1/jobs/{job_id}").json())["queue"]["eta_s"] == expected and now,
        30 * FORECAST_FRESH_S,
        f"an ETA of {expected}",
    )


def test_a_queued_job_has_an_eta_without_a_new_version(http, learned, submitted, offered):
    first, second = submitted(), submitted()
    seen = once_fresh(http, second, pytest.approx(TOOK * estimate_s(http)))
    assert once_fresh(http, first, 0.0)["queue"]["position"] == 0
    etag = http.get(f"/v1/jobs/{second}").headers["etag"]

    http.post(f"/v1/devices/{offered.full_id}/cordon").raise_for_status()
    cordoned = once_fresh(http, second, None)
    assert cordoned["version"] == seen["version"]
    assert http.get(f"/v1/jobs/{second}", headers={"If-None-Match": etag}).status_code == 304
    http.post(f"/v1/devices/{offered.full_id}/uncordon").raise_for_status()
    once_fresh(http, second, pytest.approx(TOOK * estimate_s(http)))


def test_an_interleaved_job_takes_the_time_of_all_its_runs(http, learned, submitted):
    begun = http.post("/v1/comparisons", json=IN_TURNS).raise_for_status().json()
    behind = submitted()
    # Both specs and the control have the default budget each, as the other job has.
    once_fresh(http, behind, pytest.approx(3 * TOOK * estimate_s(http), rel=0.05))
    http.post(f"/v1/jobs/{begun['job']}/cancel").raise_for_status()


def test_a_submit_while_another_client_polls_has_an_eta_at_once(http, learned, submitted, monkeypatch):
    monkeypatch.setattr("dyno.store.eta.FORECAST_TIMEOUT_S", 30.0)  # however busy the machine is
    first = submitted()
    once_fresh(http, first, 0.0)
    answers = [http.post("/v1/jobs", json=TINY).raise_for_status().json() for _ in range(3)]
    for job in answers:
        http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
    assert [job["queue"]["eta_s"] for job in answers if job["queue"]["eta_s"] is None] == []


def test_a_job_that_fits_no_live_device_has_no_eta(http, learned, submitted):
    absent = submitted(device="gpu", queue_if_absent=True)
    too_big = submitted(params={"n": 65536}, queue_if_absent=True)
    fits = submitted()
    once_fresh(http, fits, 0.0)
    assert [http.get(f"/v1/jobs/{job}").json()["queue"]["eta_s"] for job in (absent, too_big)] == [None, None]
    http.post(f"/v1/jobs/{absent}/cancel")

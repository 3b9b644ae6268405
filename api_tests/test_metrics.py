"""GET /metrics as Prometheus sees it: counters grow, and are the same in every API process."""

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import eventually

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(http):
    answer = http.get("/metrics").raise_for_status()
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert len(found) == sum(not line.startswith("#") for line in answer.text.splitlines())
    return found


def of(samples, name, **labels):
    return samples[name, frozenset(labels.items())]


SUCCEEDED = {"workload": "matmul", "status": "succeeded", "failure_class": "none"}
CANCELED = {"workload": "matmul", "status": "canceled", "failure_class": "none"}


def test_a_job_s_life_is_counted_once(api, tiny):
    before = scraped(api.http)
    assert api.finished(api.submit(tiny))["status"] == "succeeded"
    after = scraped(api.http)

    def grown(name, **labels):
        return of(after, name, **labels) - of(before, name, **labels)

    assert grown("dyno_jobs_submitted_total", workload="matmul") >= 1
    assert grown("dyno_jobs_ended_total", **SUCCEEDED) >= 1
    assert grown("dyno_queue_wait_seconds_count", kind="cpu") >= 1
    assert grown("dyno_attempt_duration_seconds_count", workload="matmul") >= 1
    run_s = grown("dyno_attempt_duration_seconds_sum", workload="matmul")
    assert run_s > 0
    assert grown("dyno_device_busy_seconds_total", kind="cpu") > 0
    assert of(after, "dyno_store_up") == 1
    assert of(after, "dyno_jobs", status="succeeded") >= 1


def test_queued_and_running_jobs_are_reported(api, long, tiny):
    held_up = api.submit(tiny | {"device": "tpu", "queue_if_absent": True})
    before = scraped(api.http)
    assert of(before, "dyno_queue_depth", queue="tpu") >= 1
    assert of(before, "dyno_jobs", status="running") >= 1
    device = long["worker"]["device"]
    eventually(lambda: of(scraped(api.http), "dyno_device_busy", device=device, kind="cpu") == 1, what="busy")
    busy = "dyno_device_busy_seconds_total"
    eventually(lambda: of(scraped(api.http), busy, kind="cpu") > of(before, busy, kind="cpu"), what="it grows")
    api.cancel(held_up)
    assert of(scraped(api.http), "dyno_jobs_ended_total", **CANCELED) > of(before, "dyno_jobs_ended_total", **CANCELED)


def test_requests_are_counted_by_route_and_never_by_path(api, tiny):
    job = api.finished(api.submit(tiny))
    api.job(job)
    assert api.http.get("/v1/jobs/job_00000000000000000000000000").status_code == 404
    assert api.http.get("/nowhere/at/all").status_code == 404
    text = api.http.get("/metrics").text
    assert job["id"] not in text
    assert "nowhere" not in text
    found, name = scraped(api.http), "dyno_http_request_duration_seconds_count"
    assert of(found, name, method="POST", route="/v1/jobs", status="202", held="no") >= 1
    assert of(found, name, method="GET", route="/v1/jobs/{job_id}", status="200", held="no") >= 1
    assert of(found, name, method="GET", route="/v1/jobs/{job_id}", status="200", held="yes") >= 1
    assert of(found, name, method="GET", route="/v1/jobs/{job_id}", status="404", held="no") >= 1
    assert of(found, name, method="GET", route="unmatched", status="404", held="no") >= 1


@pytest.mark.verify
def test_a_new_api_process_reports_the_same_jobs(api, house, tiny):
    api.finished(api.submit(tiny))
    known = scraped(api.http)
    with house.another_api() as (_, other):
        found = scraped(other.http)
    shared = [key for key in known if key[0].startswith(("dyno_jobs_", "dyno_queue_wait", "dyno_attempt"))]
    assert shared
    assert all(found[key] >= known[key] for key in shared)
    assert of(found, "dyno_jobs_ended_total", **SUCCEEDED) >= 1

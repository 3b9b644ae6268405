"""A job's log over HTTP, read or followed; streams are limited, and end with the job or the service."""

import threading

import pytest
from fastapi import Request

from dyno.client import Client
from dyno.store.leases import LogPiece
from dyno.store.redis import Keys
from service import streaming
from service.app import create_app
from tests.waiting import eventually


def test_running_failed_and_queued_jobs_have_a_text_log(http, claimed, submitted):
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, "<b>é</b>\n"))
    for _ in range(2):
        answer = http.get(f"/v1/jobs/{claim.job_id}/logs")
        assert (answer.status_code, answer.text) == (200, "<b>é</b>\n")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        leases.finish(claim, "fail")
    assert http.get(f"/v1/jobs/{submitted()}/logs").text == ""
    with Client(str(http.base_url)) as api:
        assert api.logs(claim.job_id) == "<b>é</b>\n"


@pytest.mark.parametrize("follow", ["false", "true"])
def test_an_unknown_job_has_no_log(http, follow):
    answer = http.get(f"/v1/jobs/job_{'0' * 26}/logs", params={"follow": follow})
    assert (answer.status_code, answer.json()["code"]) == (404, "job-not-found")


@pytest.fixture
def paused(monkeypatch):
    """Released whenever a stream starts to wait for news; by itself it would check only after ten minutes."""
    count, pause = threading.Semaphore(0), streaming.wait_for_news

    async def counted(*arguments):
        count.release()
        await pause(*arguments)

    monkeypatch.setattr(streaming, streaming.wait_for_news.__name__, counted)
    monkeypatch.setattr(streaming, "LOOK_EVERY_S", 600.0)
    return count


def test_a_log_is_followed_until_the_job_is_done(http, claimed, paused):
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, "one\n"))
    with http.stream("GET", f"/v1/jobs/{claim.job_id}/logs", params={"follow": "true"}) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        lines = answer.iter_lines()
        assert next(lines) == "one"
        assert paused.acquire(timeout=30)
        leases.heartbeat(claim, None, LogPiece(1, "two\n"))
        assert next(lines) == "two"
        leases.heartbeat(claim, None, LogPiece(2, "three\n"))
        leases.finish(claim, "fail")
        assert list(lines) == ["three"]


def test_a_followed_log_ends_when_its_job_expires(http, claimed, client, settings, monkeypatch):
    monkeypatch.setattr(streaming, "LOOK_EVERY_S", 0.02)
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, "one\n"))
    record = Keys(settings.namespace).job(claim.job_id)
    with http.stream("GET", f"/v1/jobs/{claim.job_id}/logs", params={"follow": "true"}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "one"
        client.rename(record, f"{record}-gone")
        assert list(lines) == []
    client.rename(f"{record}-gone", record)


def test_followed_logs_end_when_the_service_stops(settings, claimed, serve, paused):
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, "one\n"))
    app = create_app(settings)
    app.add_api_route("/stop", _stop)
    with serve(app) as http, http.stream("GET", f"/v1/jobs/{claim.job_id}/logs", params={"follow": "true"}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "one"
        assert paused.acquire(timeout=30)
        assert http.get("/stop").status_code == 200
        assert list(lines) == []


async def _stop(request: Request):
    """Stop the service as a signal does."""
    request.app.state.stopping.set()


def test_the_number_of_open_streams_is_limited(settings, claimed, serve):
    _, claim = claimed()
    path, follow = f"/v1/jobs/{claim.job_id}/logs", {"follow": "true"}
    with serve(create_app(settings.model_copy(update={"max_streams": 1}))) as http:
        with http.stream("GET", path, params=follow):
            refused = http.get(path, params=follow)
            assert (refused.status_code, refused.json()["code"]) == (503, "too-many-streams")
            assert refused.headers["retry-after"]
            assert http.get(path).status_code == 200
        eventually(lambda: _opens(http, path, follow))


def _opens(http, path, follow):
    with http.stream("GET", path, params=follow) as answer:
        return answer.status_code == 200

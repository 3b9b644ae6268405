"""Response headers: the service sends exactly those in the document."""

import pytest

from dyno.settings import Settings
from service import middleware
from service.app import create_app
from tests.service.openapi.conftest import answers
from tests.service.openapi.house import IN_TURNS, SWEEP, TINY, house

# Headers of every response, or of HTTP itself.
BESIDE = {name.lower() for name in middleware.DEFAULT_HEADERS} | {"date", "server", "connection", "x-accel-buffering"}
BESIDE |= {"content-type", "content-length", "transfer-encoding"}
JOB, FILE = "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/artifacts/{name}"
ELSEWHERE = {("GET", "/v1/webhook-deliveries", "200")}  # requested in tests/service/webhooks
CROWDED = {
    ("GET", JOB, status): {"retry-after"} for status in ("200", "304")
}  # requested in tests/service/keys/test_polls.py


@pytest.fixture(scope="module")
def asked(settings, serve, tmp_path_factory):
    """Responses of every route with headers of its own, by method, path and status."""
    found = {}
    with house(settings, tmp_path_factory.mktemp("house"), serve) as here:
        for ask in (
            _of_jobs,
            _of_comparisons,
            _of_baselines,
            _of_schedules,
            _of_sweeps,
            _of_files,
            _of_lists,
            _refused,
        ):
            for path, answer in ask(here):
                found.setdefault((answer.request.method, path, str(answer.status_code)), []).append(answer)
    return found


@pytest.fixture(scope="module")
def documented():
    return {
        (method, path, status): {name.lower() for name in answer["headers"]}
        for method, path, status, answer in answers(create_app(Settings()).openapi())
    }


def own(answer):
    return {name.lower() for name in answer.headers} - BESIDE


def test_sent_headers_match_the_document(asked, documented):
    sent = {row: CROWDED.get(row, set[str]()).union(*map(own, told)) for row, told in asked.items()}
    assert sent == {row: documented[row] for row in sent}


def test_every_response_with_its_own_headers_was_requested(asked, documented):
    special = {row for row, names in documented.items() if row[2] < "400" and names != {"x-request-id"}}
    assert special - asked.keys() - ELSEWHERE == set()


def test_every_error_has_all_headers_of_its_status(asked, documented):
    errors = [(row, answer) for row, told in asked.items() for answer in told if answer.is_error]
    assert {answer.json()["code"] for _, answer in errors} >= {"limit-reached", "queue-full", "store-unavailable"}
    for row, answer in errors:
        assert own(answer) == documented[row], answer.json()["code"]


def _of_jobs(here):
    again = f"/v1/jobs/{here.finished()}/rerun"
    for path, url, body in (("/v1/jobs", "/v1/jobs", TINY), (f"{JOB}/rerun", again, None)):
        key = {"Idempotency-Key": url}
        first = here.http.post(url, json=body, headers=key)
        yield path, first
        job = f"/v1/jobs/{first.json()['id']}"
        yield f"{JOB}/cancel", here.http.post(f"{job}/cancel")
        yield path, here.http.post(url, json=body, headers=key | {"Prefer": "wait=1"})  # the job is already done
        seen = here.http.get(job)
        yield JOB, seen
        yield JOB, here.http.get(job, headers={"If-None-Match": seen.headers["ETag"]})
    yield f"{JOB}/cancel", here.http.post(f"/v1/jobs/{here.claimed().job_id}/cancel")
    result = here.http.get(f"/v1/jobs/{here.finished()}/result")
    yield f"{JOB}/result", result
    yield f"{JOB}/result", here.http.get(result.request.url, headers={"If-None-Match": result.headers["ETag"]})


def _of_comparisons(here):
    made = here.http.post("/v1/comparisons", json={"jobs": [here.finished(), here.finished()]})
    yield "/v1/comparisons", made
    yield "/v1/comparisons/{comparison_id}/bars.svg", here.http.get(made.json()["urls"]["bars"])
    for _ in range(2):
        yield "/v1/comparisons", here.http.post("/v1/comparisons", json=IN_TURNS, headers={"Idempotency-Key": "turns"})


def _of_baselines(here):
    for _ in range(2):
        limit = {"metric": "throughput", "at_least": 1}
        yield "/v1/baselines/{name}", here.http.put("/v1/baselines/headers", json=limit)


def _of_schedules(here):
    for _ in range(2):
        nightly = {"cron": "0 3 * * *", "spec": SWEEP["spec"]}
        yield "/v1/schedules/{name}", here.http.put("/v1/schedules/headers", json=nightly)


def _of_sweeps(here):
    for _ in range(2):
        yield "/v1/sweeps", here.http.post("/v1/sweeps", json=SWEEP, headers={"Idempotency-Key": "sweep"})
    made = here.http.post("/v1/sweeps", json=SWEEP).json()["urls"]
    yield "/v1/sweeps", here.http.get("/v1/sweeps", params={"limit": 1})
    yield "/v1/sweeps/{sweep_id}", here.http.get(made["self"])
    yield "/v1/sweeps/{sweep_id}/table", here.http.get(made["table"], params={"format": "csv"})
    yield "/v1/sweeps/{sweep_id}/plot", here.http.get(made["plot"])
    yield "/v1/sweeps/{sweep_id}/cancel", here.http.post(made["cancel"])


def _of_files(here):
    url = f"/v1/jobs/{here.finished('notes.txt')}/artifacts/notes.txt"
    for method in ("GET", "HEAD"):
        sent = here.http.request(method, url)
        yield FILE, sent
        yield FILE, here.http.request(method, url, headers={"If-None-Match": sent.headers["ETag"]})


def _of_lists(here):
    jobs = [here.finished() for _ in range(2)]
    yield "/v1/jobs", here.http.get("/v1/jobs", params={"limit": 1})
    yield "/v1/results", here.http.get("/v1/results", params={"limit": 1, "format": "csv"})
    yield "/v1/history", here.http.get("/v1/history", params={"limit": 1})
    yield f"{JOB}/samples", here.http.get(f"/v1/jobs/{jobs[0]}/samples", params={"format": "csv"})


def _refused(here):
    yield "/v1/keys", here.http.get("/v1/keys")
    yield "/v1/jobs", here.reader.post("/v1/jobs", json=TINY)
    yield "/v1/jobs", here.poor.post("/v1/jobs", json=TINY)
    yield "/v1/jobs", here.poor.post("/v1/jobs", json=TINY)
    yield "/v1/jobs", here.admin.post("/v1/jobs", json=TINY)
    yield "/v1/jobs", here.admin.post("/v1/jobs", json=TINY)
    yield "/v1/jobs", here.away.get("/v1/jobs")

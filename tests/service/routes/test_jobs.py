import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dyno.models.job import Failure, FailureClass, new_ulid
from dyno.store.redis import Keys
from service.app import create_app
from tests.waiting import eventually

BODY = {"workload": "matmul", "params": {"n": 64}}


def submit(http, headers=None, **changes):
    answer = http.post("/v1/jobs", json=BODY | changes, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()


def test_a_repeated_request_is_a_replay_even_without_its_device(http, offered, client, settings):
    key = {"Idempotency-Key": "after a broken connection"}
    first = submit(http, key)
    client.delete(Keys(settings.namespace).worker("worker-1"))
    eventually(lambda: http.post("/v1/jobs", json=BODY).status_code == 422, 10)  # devices are read once a second
    again = http.post("/v1/jobs", json=BODY, headers=key)
    assert again.status_code == 202
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["id"] == first["id"]


def test_a_broken_record_is_a_clear_error_and_other_jobs_are_listed(http, offered, client, settings):
    broken, sound = submit(http, labels={"broken": "yes"}), submit(http, labels={"broken": "yes"})
    client.hset(Keys(settings.namespace).job(broken["id"]), "status", "dreaming")
    answer = http.get(broken["urls"]["self"])
    assert (answer.status_code, answer.json()["code"]) == (500, "record-unreadable")
    assert broken["id"] in answer.json()["detail"]
    assert [job["id"] for job in http.get("/v1/jobs?label=broken").json()["data"]] == [sound["id"]]


@pytest.mark.parametrize("path", ["result", "samples", "artifacts", "artifacts/a.txt"])
def test_ended_and_unfinished_jobs_without_a_result_differ(http, claimed, path):
    leases, claim = claimed()
    url = f"/v1/jobs/{claim.job_id}/{path}"
    assert http.get(url).json()["code"] == "result-not-ready"
    failure = Failure(failure_class=FailureClass.RESOURCE, reason="out_of_memory", message="9 GiB are too many")
    assert leases.finish(claim, "fail", status_reason=failure.reason, failure=failure)
    answer = http.get(url)
    assert (answer.status_code, answer.json()["code"], answer.json()["job_status"]) == (409, "no-result", "failed")
    assert answer.json()["detail"] == f"{claim.job_id} failed and has no result: out_of_memory: 9 GiB are too many"


@pytest.mark.parametrize(
    "path", ["/v1/jobs?created_after", "/v1/jobs?created_before", "/v1/results?from", "/v1/results?to"]
)
@pytest.mark.parametrize("number", ["0.5", "179532829", "-1"])
def test_plain_numbers_are_invalid_times(http, path, number):
    answer = http.get(f"{path}={number}")
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["pointer"]) == (422, f"/query/{path.partition('?')[2]}")
    assert error["detail"] == "Input should be a time as in 2026-01-31T12:00:00Z"


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there"])
def test_an_invalid_idempotency_key_is_refused(http, key):
    answer = http.post("/v1/jobs", json=BODY, headers={"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert answer.json()["errors"][0]["pointer"] == "/header/idempotency-key"


@pytest.mark.parametrize("name", ["validate-only", "validate_onyl", "a/b", "a~b"])
def test_a_misspelled_parameter_is_named_and_queues_nothing(http, offered, name):
    label = new_ulid()
    answer = http.post("/v1/jobs", params={name: "true"}, json={"workload": "matmul", "labels": {"mine": label}})
    [error] = answer.json()["errors"]
    pointer = "/query/" + name.replace("~", "~0").replace("/", "~1")
    assert (answer.status_code, error["pointer"], error["code"]) == (422, pointer, "extra-forbidden")
    assert http.get("/v1/jobs", params={"label": f"mine={label}"}).json()["data"] == []
    assert http.get("/v1/jobs", params={name: "true"}).json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("given", ['W/"{}"', '"{}"', '"0", W/"{}"', "*"])
def test_a_version_with_a_matching_etag_is_not_sent_again(http, offered, given):
    job = submit(http)
    answer = http.get(job["urls"]["self"], headers={"If-None-Match": given.format(job["version"])})
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"] == f'W/"{job["version"]}"'


def test_if_none_match_may_have_several_lines(http, offered):
    job = submit(http)
    lines = [("If-None-Match", '"0"'), ("If-None-Match", f'W/"{job["version"]}"')]
    assert http.get(job["urls"]["self"], headers=lines).status_code == 304


@pytest.mark.parametrize("given", ['"0"', 'W/"99"', "garbage", ""])
def test_any_other_version_is_answered_in_full_at_once(http, offered, given):
    job = submit(http)
    answer = http.get(job["urls"]["self"], params={"wait": 20}, headers={"If-None-Match": given}, timeout=5)
    assert answer.json()["id"] == job["id"]


def test_a_long_poll_ends_when_the_version_changes(http, offered):
    job = submit(http)
    with ThreadPoolExecutor() as pool:
        headers = {"If-None-Match": f'"{job["version"]}"'}
        poll = pool.submit(http.get, job["urls"]["self"], params={"wait": 20}, headers=headers)
        done = pool.submit(http.get, job["urls"]["self"], params={"wait": 20})
        http.post(job["urls"]["cancel"])
        assert poll.result().json()["status"] == "canceled"
        assert done.result().json()["done"] is True


def test_a_long_poll_without_news_ends_in_time(http, offered):
    job = submit(http)
    start_s = time.monotonic()
    answer = http.get(job["urls"]["self"], params={"wait": 0.2}, headers={"If-None-Match": f'"{job["version"]}"'})
    assert answer.status_code == 304
    assert 0.2 <= time.monotonic() - start_s < 20


def test_a_preferred_wait_is_applied_and_confirmed(http, offered):
    start_s = time.monotonic()
    headers = [("Prefer", "handling=lenient"), ("Prefer", "respond-async, wait=1")]
    answer = http.post("/v1/jobs", json=BODY, headers=headers)
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=1"
    assert 1 <= time.monotonic() - start_s < 20


@pytest.mark.parametrize("prefer", ["wait=soon", "waiting=5", "return=minimal", "wait=0"])
def test_a_preference_that_can_t_be_met_is_ignored(http, offered, prefer):
    answer = http.post("/v1/jobs", json=BODY, headers={"Prefer": prefer}, timeout=5)
    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers


@pytest.mark.parametrize("wait", ["61", "-1", "soon", "nan", "inf"])
def test_a_wait_out_of_bounds_is_refused(http, wait):
    answer = http.get(f"/v1/jobs/job_{'0' * 26}", params={"wait": wait})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/wait")


@pytest.mark.parametrize("job_id", ["x", "job_" + "0" * 26, "job_" + "0" * 25 + "I", "job_*", "..%2f..", "%00", "%ff"])
def test_an_unknown_job_id_is_not_found(http, job_id):
    for answer in (
        http.get(f"/v1/jobs/{job_id}"),
        http.get(f"/v1/jobs/{job_id}/result"),
        http.post(f"/v1/jobs/{job_id}/cancel"),
    ):
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


def test_the_list_continues_at_its_link(http, offered):
    ids = [submit(http, labels={"batch": "a b&c"})["id"] for _ in range(5)]
    seen = []
    answer = http.get("/v1/jobs", params={"label": "batch=a b&c", "limit": 2})
    while True:
        seen += [job["id"] for job in answer.json()["data"]]
        if not answer.json()["has_more"]:
            break
        assert answer.links["next"]["url"].endswith(answer.json()["next_cursor"])
        answer = http.get(answer.links["next"]["url"])
    assert seen == ids[::-1]
    assert "link" not in answer.headers


def test_an_operator_limits_how_long_jobs_run(settings, offered, serve, http):
    """`http` keeps the first service, and with it the device, alive."""
    with serve(create_app(settings.model_copy(update={"max_timeout_s": 100.0}))) as limited:
        assert submit(limited)["spec"]["timeout_s"] == 100
        assert submit(limited, timeout_s=60)["spec"]["timeout_s"] == 60
        longer = limited.post("/v1/jobs", json=BODY | {"timeout_s": 101})
        [error] = longer.json()["errors"]
        assert (longer.status_code, error["pointer"], error["code"]) == (422, "/timeout_s", "limit-exceeded")
        assert "DYNO_MAX_TIMEOUT_S" in error["detail"]
        hours = limited.post("/v1/jobs", json=BODY | {"measure": {"min_s": 60, "processes": 100}}).json()
        assert (hours["code"], {error["code"] for error in hours["errors"]}) == ("exceeds-timeout", {"exceeds-timeout"})
        pair = {"specs": [BODY | {"measure": {"min_s": 60}}] * 2, "pairs": 10}
        assert limited.post("/v1/comparisons", json=pair).json()["code"] == "exceeds-timeout"
    longer = submit(http, timeout_s=200)
    with serve(create_app(settings.model_copy(update={"max_timeout_s": 100.0}))) as limited:
        again = limited.post(f"/v1/jobs/{longer['id']}/rerun").json()
        assert again["spec"]["timeout_s"] == 100

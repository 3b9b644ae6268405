"""Owners of jobs, limits of keys, and audit lines."""

import logging

import pytest

from dyno.models.api_key import Scope
from dyno.models.job import WorkerRef
from dyno.store.leases import Leases
from dyno.store.redis import Keys
from tests.service.keys.conftest import problem
from tests.service.workers import claim_of, succeed
from tests.waiting import eventually

BODY = {"workload": "matmul", "params": {"n": 64}, "device": "tpu", "queue_if_absent": True}
ANY = Scope.READ, Scope.SUBMIT, Scope.ADMIN


def test_jobs_and_comparisons_belong_to_their_key(owner, caller, finished):
    stranger, admin = caller(), caller(Scope.ADMIN)
    jobs = [finished(), finished()]
    assert {owner.http.get(f"/v1/jobs/{each}").json()["owner"] for each in jobs} == {owner.id}
    assert stranger.http.get("/v1/jobs").json()["data"] == []
    assert set(jobs) <= {job["id"] for job in admin.http.get("/v1/jobs").json()["data"]}
    assert stranger.http.get("/v1/results").json() == []
    assert stranger.http.get("/v1/history").json()["series"] == []
    for who in (owner, admin):
        series = who.http.get("/v1/history").json()["series"]
        assert set(jobs) <= {point["job"] for each in series for point in each["points"]}
        assert set(jobs) <= {row["job"] for row in who.http.get("/v1/results").json()}
    assert problem(stranger.http.post("/v1/comparisons", json={"jobs": jobs})) == (404, "job-not-found")
    made = owner.http.post("/v1/comparisons", json={"jobs": jobs}).json()
    assert made["owner"] == owner.id
    assert problem(stranger.http.get(made["urls"]["self"])) == (404, "comparison-not-found")
    assert admin.http.get(made["urls"]["self"]).json() == made


def test_weights_of_another_keys_job_are_unknown(job_id, caller, owner):
    def told(who, job):
        spec = {"workload": "mnist_cnn", "params": {"weights": {"job": job, "name": "model.weights.h5"}}}
        [error] = who.http.post("/v1/jobs", json=spec | {"queue_if_absent": True}).json()["errors"]
        return error["code"], error["detail"].replace(job, "it")

    stranger, nobodys = caller(), "job_01J00000000000000000000000"
    assert told(stranger, job_id) == told(stranger, nobodys)
    assert told(stranger, job_id)[0] == "unknown-job"
    assert told(owner, job_id)[0] == "artifact-not-found"


def test_a_rerun_belongs_to_the_caller(job_id, owner, caller):
    for who in (owner, caller(Scope.ADMIN)):
        again = who.http.post(f"/v1/jobs/{job_id}/rerun").json()
        assert (again["rerun_of"], again["owner"]) == (job_id, who.id)
        assert who.http.post(f"{again['urls']['self']}/cancel").json()["done"]


def test_one_idempotency_key_of_two_api_keys_is_two_jobs(caller):
    answers = [who.http.post("/v1/jobs", json=BODY, headers={"Idempotency-Key": "x"}) for who in (caller(), caller())]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] != answers[1].json()["id"]


def test_every_key_sees_workers_but_only_its_own_jobs(owner, caller, client, settings, offered, job_id):
    name = Keys(settings.namespace).worker("worker-1")
    record = str(client.get(name))
    client.set(name, record.replace('"job":null', f'"job":"{job_id}"'), keepttl=True)
    seen = [who.http.get("/v1/workers").json()["data"][0] for who in (owner, caller(Scope.ADMIN), caller())]
    assert [worker["id"] for worker in seen] == ["worker-1"] * 3
    assert [worker["job"] for worker in seen] == [job_id, job_id, None]


@pytest.mark.parametrize("scope", ANY)
def test_me_returns_the_keys_scopes(caller, scope):
    who = caller(scope, queued_jobs=7)
    told = who.http.get("/v1/me").json()
    assert told["scopes"] == list(ANY[: ANY.index(scope) + 1])
    assert told["key"]["id"] == who.id
    others = ("device_s_per_day", "requests_per_s", "stored_jobs", "expires_in_s")
    assert told["key"]["limits"] == {"queued_jobs": 7, **dict.fromkeys(others)}
    assert who.secret not in str(told)


def test_creating_and_revoking_keys_is_audited_without_secrets(caller, service, caplog, offered):
    admin = caller(Scope.ADMIN)
    asked = {"name": "night run", "scope": "submit", "limits": {"queued_jobs": 2}}
    with caplog.at_level(logging.DEBUG):
        answer = admin.http.post("/v1/keys", json=asked)
        made = answer.json()
        mine = {"Authorization": f"Bearer {made['secret']}"}
        assert service.get("/v1/me", headers=mine).json()["key"]["name"] == "night run"
        assert admin.http.delete(f"/v1/keys/{made['id']}").status_code == 204
        assert problem(service.get("/v1/me", headers=mine)) == (401, "not-authorized")
        assert admin.http.delete(f"/v1/keys/{made['id']}").status_code == 204
        for what in ("cordon", "uncordon"):
            assert admin.http.post(f"/v1/devices/{offered.id}/{what}").status_code == 200
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    listed = {key["id"]: key for key in admin.http.get("/v1/keys").json()["data"]}
    assert listed[made["id"]]["revoked_at"] is not None
    assert "secret" not in listed[made["id"]]
    lines = [record.getMessage() for record in caplog.records if record.name == "dyno.audit"]
    assert lines == [
        f'key-created by="{admin.id}" key="{made["id"]}" name="night run" scope="submit"',
        f'key-revoked by="{admin.id}" key="{made["id"]}"',
        f'device-cordoned by="{admin.id}" device="{offered.full_id}"',
        f'device-uncordoned by="{admin.id}" device="{offered.full_id}"',
    ]
    assert not [record for record in caplog.records if made["secret"][5:] in record.getMessage()]


def test_an_expired_key_is_refused_but_still_listed(caller, service, client, settings):
    admin = caller(Scope.ADMIN)
    made = admin.http.post("/v1/keys", json={"name": "guest", "scope": "read", "expires_in_s": 3600}).json()
    mine = {"Authorization": f"Bearer {made['secret']}"}
    assert service.get("/v1/me", headers=mine).json()["key"]["expires_at"] == made["expires_at"]
    assert admin.http.get("/v1/me").json()["key"]["expires_at"] is None
    client.hset(Keys(settings.namespace).api_key(made["id"]), "expires_at", "1700000000.000000")
    for path in ("/v1/me", "/v1/jobs", "/v1/events"):
        answer = service.get(path, headers=mine)
        assert problem(answer) == (401, "key-expired")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    listed = {key["id"]: key for key in admin.http.get("/v1/keys").json()["data"]}
    assert listed[made["id"]]["expires_at"] == "2023-11-14T22:13:20Z"
    assert listed[made["id"]]["revoked_at"] is None


def test_deleting_and_canceling_other_owners_jobs_is_audited(owner, caller, job_id, caplog):
    def told(what):
        return [record.getMessage() for record in caplog.records if record.name == f"dyno.{what}"]

    admin = caller(Scope.ADMIN)
    own, others = (owner.http.post("/v1/jobs", json=BODY).json()["id"] for _ in range(2))
    with caplog.at_level(logging.INFO, "dyno.access"):
        assert owner.http.post(f"/v1/jobs/{own}/cancel").status_code == 200
        for _ in range(2):
            admin.http.post(f"/v1/jobs/{others}/cancel")
        assert owner.http.delete(f"/v1/jobs/{own}").status_code == 204
        assert admin.http.delete(f"/v1/jobs/{job_id}").status_code == 204
        eventually(lambda: len(told("access")) == 5)  # each is written after the last byte of its response
    assert told("audit") == [
        f'job-canceled by="{admin.id}" job="{others}" owner="{owner.id}"',
        f'job-deleted by="{owner.id}" job="{own}" owner="{owner.id}"',
        f'job-deleted by="{admin.id}" job="{job_id}" owner="{owner.id}"',
    ]
    by = [owner.id, admin.id, admin.id, owner.id, admin.id]
    assert [line.rpartition(" ")[2] for line in told("access")] == [f'key="{each}"' for each in by]


def test_an_invalid_new_key_is_refused_with_every_wrong_field(caller):
    limits = {"queued_jobs": 0, "requests_per_s": "5"}
    asked = {"name": "two\nlines", "scope": "all", "limits": limits, "expires_in_s": 0, "more": 1}
    answer = caller(Scope.ADMIN).http.post("/v1/keys", json=asked)
    assert problem(answer) == (422, "invalid-key")
    pointers = ["/name", "/scope", "/limits/queued_jobs", "/limits/requests_per_s", "/expires_in_s", "/more"]
    assert [error["pointer"] for error in answer.json()["errors"]] == pointers
    assert problem(caller(Scope.ADMIN).http.delete("/v1/keys/key_0000000000000000")) == (404, "key-not-found")


def test_a_reached_limit_is_returned_with_its_quota_and_retry_after(caller, client, settings):
    few = caller(queued_jobs=1, requests_per_s=100)
    assert few.http.post("/v1/jobs", json=BODY).status_code == 202
    answer = few.http.post("/v1/jobs", json=BODY)
    assert problem(answer) == (429, "limit-reached")
    assert answer.headers["RateLimit-Policy"] == '"queued-jobs";q=1'
    assert answer.headers["RateLimit"].startswith('"queued-jobs";r=0;t=')
    tired = caller(device_s_per_day=5)
    keys, today = Keys(settings.namespace), client.time()[0] // 86400
    for day in (today, today + 1):
        client.hset(keys.spent(tired.id, day), "device_ms", 5000)
    answer = tired.http.post("/v1/jobs", json=BODY)
    assert problem(answer) == (429, "limit-reached")
    assert answer.headers["RateLimit-Policy"] == '"device-seconds";q=5;w=86400'
    assert 0 < int(answer.headers["Retry-After"]) <= 86400
    client.hset(keys.api_key(few.id), mapping={"tokens": "0.5", "filled_ms": (client.time()[0] + 4) * 1000})
    answer = few.http.get("/v1/jobs")
    assert problem(answer) == (429, "limit-reached")
    assert answer.headers["RateLimit-Policy"] == '"requests";q=100;w=1'
    assert answer.headers["RateLimit"] == '"requests";r=0;t=1'
    assert answer.headers["Retry-After"] == "1"


def test_an_attempt_token_reads_only_the_weights_of_its_job(service, owner, job_id, settings, offered, client):
    spec = BODY | {"params": {"n": 64}, "device": "cpu"}
    own = owner.http.post("/v1/jobs", json=spec).json()["id"]
    claim = claim_of(Leases(client, settings), offered)
    assert claim.job_id == own
    name = Keys(settings.namespace).job(own)
    ref = f'"weights":{{"job":"{job_id}","name":"model.weights.h5"}}'
    client.hset(name, "spec", str(client.hget(name, "spec")).replace('"params":{', f'"params":{{{ref},', 1))

    def told(path, job=own, token=claim.token):
        return problem(service.get(path, headers={"Dyno-Job": job, "Authorization": f"Bearer {token}"}))

    files = f"/v1/jobs/{job_id}/artifacts"
    assert told(f"{files}/model.weights.h5") == (404, "artifact-not-found")  # authorized: the job has no such file
    assert told(f"{files}/other.weights.h5") == (404, "job-not-found")
    assert told(f"/v1/jobs/{own}/artifacts/model.weights.h5") == (404, "job-not-found")
    assert told(f"{files}/model.weights.h5", token="0" * 32) == (409, "stale-token")
    assert told(f"{files}/model.weights.h5", job=job_id) == (409, "stale-token")
    assert told(f"{files}/model.weights.h5", job="any") == (401, "not-authorized")
    for other in (files, f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/result", "/v1/jobs"):
        assert told(other) == (401, "not-authorized")
    Leases(client, settings).finish(claim, "stop")


def test_after_a_rotation_the_jobs_of_the_revoked_key_go_on(caller, everyone, settings, client):
    """docs/operations.md, "Rotating secrets"."""
    first, second, admin = caller(), caller(), everyone[Scope.ADMIN].http
    asked = BODY | {"device": "cpu:9-9@rotated"}
    ids = [one.http.post("/v1/jobs", json=asked).raise_for_status().json()["id"] for one in (first, second)]
    assert admin.delete(f"/v1/keys/{first.id}").is_success
    assert first.http.get("/v1/jobs").status_code == 401
    leases, ref = Leases(client, settings), WorkerRef(id="w", device="cpu:9-9", host="rotated")
    for _ in ids:
        claim = leases.claim("cpu:9-9@rotated", ["cpu:9-9@rotated"], ref)
        assert claim is not None
        succeed(leases, claim)
    results = [f"/v1/jobs/{job_id}/result" for job_id in ids]
    assert [admin.get(result).status_code for result in results] == [200, 200]
    assert [second.http.get(result).status_code for result in results] == [404, 200]

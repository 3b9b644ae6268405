"""Reruns of jobs: admitted again, once per idempotency key."""

import pytest

from dyno.store.redis import Keys
from tests.waiting import eventually


@pytest.fixture
def rerun(http):
    def again(job_id, key=None, **headers):
        given = headers | ({"Idempotency-Key": key} if key else {})
        return http.post(f"/v1/jobs/{job_id}/rerun", headers=given)

    return again


def test_the_same_key_makes_one_job_even_if_the_first_was_deleted(rerun, submitted, client, settings):
    first = submitted()
    made = rerun(first, "one")
    client.delete(Keys(settings.namespace).job(first))
    again = rerun(first, "one")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
    assert again.json()["id"] == made.json()["id"]
    assert rerun(first, "another").json()["code"] == "job-not-found"


def test_an_idempotency_key_belongs_to_the_rerun_job(rerun, submitted):
    assert rerun(submitted(), "two").status_code == 202
    other = rerun(submitted(), "two")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")


def test_a_rerun_without_its_device_is_refused(rerun, submitted, client, settings):
    first = submitted()
    client.delete(Keys(settings.namespace).worker("worker-1"))
    refused = eventually(lambda: (it := rerun(first)).status_code != 202 and it, 10)  # devices are read once a second
    assert (refused.status_code, refused.json()["code"]) == (422, "no-device-fits")


def test_an_interleaved_job_is_rerun_interleaved(http, offered, rerun):
    spec = {"workload": "matmul", "params": {"n": 64}, "device": "cpu"}
    other = {"workload": "matmul", "params": {"n": 64, "repeats": 20}}
    first = http.post("/v1/comparisons", json={"specs": [spec, other]}).raise_for_status().json()["job"]
    again = rerun(first).raise_for_status().json()
    assert again["spec"] == http.get(f"/v1/jobs/{first}").json()["spec"]
    assert "against" in again["spec"]
    comparison = http.get(f"/v1/comparisons/{again['id'].replace('job_', 'cmp_')}").json()
    assert (comparison["status"], comparison["job"]) == ("running", again["id"])

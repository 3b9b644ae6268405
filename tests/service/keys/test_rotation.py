"""A client changes its key: docs/operations.md, "Rotating secrets"."""

from dyno.models.api_key import Scope
from dyno.models.job import WorkerRef
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from tests.results import a_result

BODY = {"workload": "matmul", "device": "cpu:9-9@rotated", "queue_if_absent": True}


def test_both_keys_work_until_the_first_is_revoked_and_its_jobs_go_on(caller, everyone, settings):
    first, second, admin = caller(), caller(), everyone[Scope.ADMIN].http
    ids = [one.http.post("/v1/jobs", json=BODY).raise_for_status().json()["id"] for one in (first, second)]
    assert admin.delete(f"/v1/keys/{first.id}").is_success
    assert first.http.get("/v1/jobs").status_code == 401
    with sync_client(settings) as client:
        leases = Leases(client, settings)
        for job_id in ids:
            claim = leases.claim(
                "cpu:9-9@rotated", ["cpu:9-9@rotated"], WorkerRef(id="w", device="cpu:9-9", host="rotated")
            )
            assert claim is not None
            assert claim.job_id == job_id
            assert leases.finish(claim, "succeed", result=a_result(job_id))
    seen = [admin.get(f"/v1/jobs/{job_id}/result").status_code for job_id in ids]
    assert seen == [200, 200]
    assert [second.http.get(f"/v1/jobs/{job_id}/result").status_code for job_id in ids] == [404, 200]

"""Done jobs are deleted for good; live ones can't be deleted."""


def test_a_done_job_is_deleted_with_all_its_data(api):
    body = {"workload": "device_info", "measure": {"processes": 1, "max_s": 1}}
    key = {"Idempotency-Key": "of a job that is deleted"}
    job = api.finished(api.http.post("/v1/jobs", json=body, headers=key).json())
    assert job["status"] == "succeeded", job
    answer = api.http.delete(job["urls"]["self"])
    assert (answer.status_code, answer.content) == (204, b"")
    for path in ("", "/result", "/samples", "/artifacts"):
        assert api.http.get(job["urls"]["self"] + path).json()["code"] == "job-not-found"
    listed = api.http.get("/v1/jobs", params={"workload": "device_info"}).json()["data"]
    assert job["id"] not in [each["id"] for each in listed]
    again = api.http.delete(job["urls"]["self"])
    assert (again.status_code, again.json()["code"]) == (404, "job-not-found")
    retried = api.http.post("/v1/jobs", json=body, headers=key)
    assert (retried.status_code, retried.json()["code"]) == (409, "job-expired")


def test_a_live_job_is_not_deleted(api, long):
    waiting = api.submit()
    for job in (long, waiting):
        answer = api.http.delete(job["urls"]["self"])
        assert (answer.status_code, answer.json()["code"]) == (409, "job-live")
        assert api.job(job)["status"] == job["status"]
    assert api.cancel(waiting).json()["done"]
    assert api.http.delete(waiting["urls"]["self"]).status_code == 204

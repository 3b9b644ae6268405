"""Reruns of jobs."""


def test_a_job_runs_again_as_a_new_one_that_names_the_first(api):
    first = api.finished(api.submit(labels={"commit": "abc"}))
    answer = api.http.post(f"{first['urls']['self']}/rerun")
    again = answer.json()
    assert answer.status_code == 202
    assert (answer.headers["location"], answer.headers["retry-after"]) == (again["urls"]["self"], "1")
    assert answer.headers["etag"]
    assert (again["rerun_of"], again["spec"]) == (first["id"], first["spec"])
    assert again["id"] != first["id"]
    assert api.finished(again)["status"] == "succeeded"
    assert api.job(first) == first


def test_a_job_that_has_not_ended_can_be_run_again_too(api, long):
    again = api.http.post(f"{long['urls']['self']}/rerun").json()
    assert (again["rerun_of"], again["status"]) == (long["id"], "queued")
    assert api.cancel(again).json()["status"] == "canceled"

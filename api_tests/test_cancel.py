import time

from tests.waiting import promised


def test_a_running_job_is_canceled_within_seconds_and_its_device_is_free(api, long):
    answer = api.cancel(long)
    assert answer.status_code == 202
    assert answer.json()["cancel_requested_at"]
    start_s = time.monotonic()
    job = api.finished(long)
    assert time.monotonic() - start_s < promised(5)
    assert (job["status"], job["done"], job["failure"]) == ("canceled", True, None)
    assert api.finished(api.submit())["status"] == "succeeded"


def test_a_waiting_job_is_canceled_at_once_and_again_without_change(api, long):
    waiting = api.submit()
    assert api.job(waiting)["queue"]["position"] == 0
    answer = api.cancel(waiting)
    assert (answer.status_code, answer.json()["status"]) == (200, "canceled")
    again = api.cancel(waiting)
    assert (again.status_code, again.json()) == (200, answer.json())


def test_a_running_job_has_no_result_yet_but_progress(api, long):
    answer = api.http.get(long["urls"]["result"])
    assert (answer.status_code, answer.json()["code"]) == (409, "result-not-ready")
    assert answer.json()["job_status"] == "running"
    job = long
    while not job["progress"]:
        known = {"If-None-Match": f'"{job["version"]}"'}
        job = api.job(job, params={"wait": 20}, headers=known)
    assert 0 <= job["progress"]["fraction"] <= 1
    assert job["progress"]["runs"] == 1


def test_a_job_that_succeeded_can_t_be_canceled(api):
    answer = api.cancel(api.finished(api.submit()))
    assert (answer.status_code, answer.json()["code"]) == (409, "job-finished")

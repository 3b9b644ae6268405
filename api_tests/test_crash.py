def test_a_job_survives_the_api_that_accepted_it(house, api):
    body = {"workload": "matmul", "params": {"n": 256}, "measure": {"processes": 1, "min_s": 3, "max_s": 4}}
    with house.another_api() as (process, doomed):
        job = doomed.running(doomed.submit(body))
        assert job["status"] == "running"
        process.kill()
        process.wait()
    with house.another_api() as (_, successor):
        assert successor.finished(job)["status"] == "succeeded"
        assert successor.http.get(job["urls"]["result"]).json()["job"] == job["id"]
    assert api.job(job)["attempt"] == 1

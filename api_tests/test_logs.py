"""Logs of jobs, read and followed."""

import pytest


@pytest.mark.verify
def test_a_done_job_has_a_log(api, tiny):
    # TensorFlow Lite's converter prints.
    talkative = {"workload": "quantized_inference", "params": {"train_samples": 256}}
    job = api.finished(api.submit(tiny | talkative))
    answer = api.http.get(f"{job['urls']['self']}/logs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text.startswith("[attempt 1, run 1]\n")  # followed by its output


def test_a_followed_log_ends_with_its_job(api, long):
    with api.http.stream("GET", f"{long['urls']['self']}/logs", params={"follow": "true"}) as answer:
        assert answer.status_code == 200
        api.cancel(long)
        followed = answer.read().decode()
    assert api.job(long)["status"] == "canceled"
    assert api.http.get(f"{long['urls']['self']}/logs").text == followed

"""Many long polls and streams at once."""

from contextlib import ExitStack

import httpx
import pytest

from tests.service.abuse.conftest import JOB, MOST, problem
from tests.service.abuse.test_slow import answered
from tests.waiting import eventually


@pytest.mark.verify
def test_streams_use_at_most_a_quarter_of_the_connections(run_api):
    with run_api(max_connections=str(MOST), head_timeout_s="600") as api, ExitStack() as stack:
        for _ in range(MOST // 4):
            stream = api.call().get("/v1/events")
            stack.enter_context(stream.socket)
            assert b" 200 " in stream.some()
        assert problem(api.call().get("/v1/events").answer())["code"] == "too-many-streams"


def test_long_polls_use_at_most_half_of_the_connections(run_api):
    with run_api(max_connections=str(MOST), head_timeout_s="600") as api, ExitStack() as stack:
        job = api.http.post("/v1/jobs", json=JOB).json()
        path, count = job["urls"]["self"], MOST * 3 // 4
        polls = [api.call().get(f"{path}?wait=60") for _ in range(count)]
        for poll in polls:
            stack.enter_context(poll.socket)
        eventually(lambda: answered(api, "/v1/jobs/{job_id}") == count - MOST // 2, what="the rest is answered")
        asked = {"wait": "60"}
        with httpx.Client(base_url=api.http.base_url) as http:
            at_once = http.get(path, params=asked)
            unchanged = http.get(path, params=asked, headers={"If-None-Match": at_once.headers["etag"]})
            preferred = http.post(f"{path}/rerun", headers={"Prefer": "wait=60"})
        assert (at_once.status_code, unchanged.status_code, preferred.status_code) == (200, 304, 202)
        assert int(at_once.headers["retry-after"]) == int(unchanged.headers["retry-after"]) > 0
        assert "preference-applied" not in preferred.headers
        api.http.post(preferred.json()["urls"]["cancel"])
        api.http.post(job["urls"]["cancel"])
        assert {poll.answer().status_code for poll in polls} == {200}

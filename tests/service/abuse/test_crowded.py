"""More connections than the limit allows, and more than the system allows open files."""

import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from service.openapi.components import recorded_examples
from tests.service.abuse.conftest import MOST, problem
from tests.service.openapi.house import plain
from tests.waiting import eventually

IDLE = 120
CLOSE = "Connection: close"


def crowd(api, stack, count):
    callers = [api.call() for _ in range(count)]
    for caller in callers:
        stack.enter_context(caller.socket)
    return callers


def test_beyond_the_limit_a_new_connection_gets_retry_after(run_api):
    with run_api(max_connections=str(MOST), head_timeout_s="600") as api, ExitStack() as stack:
        assert api.http.get("/livez").status_code == 200  # on a connection that stays
        first, *_ = crowd(api, stack, MOST - 1)
        eventually(lambda: api.connections() == MOST)
        [answer] = api.call().answers()
        assert (answer.status_code, problem(answer)["code"]) == (503, "too-many-connections")
        assert plain(problem(answer)) == plain(recorded_examples()["problems"]["too-many-connections"])
        assert int(answer.headers["retry-after"]) > 0
        assert api.ended()["full"] == 1
        first.socket.close()
        eventually(lambda: 200 in [each.status_code for each in api.call().get("/livez", CLOSE).answers()])


@pytest.mark.verify
def test_connections_without_a_request_make_room_after_the_head_timeout(run_api):
    with run_api(max_connections=str(MOST), head_timeout_s="1") as api, ExitStack() as stack:
        crowd(api, stack, IDLE)
        eventually(lambda: 200 in [each.status_code for each in api.call().get("/livez", CLOSE).answers()])
        eventually(lambda: api.ended()["silent"] + api.ended()["full"] >= IDLE)


@pytest.mark.verify
def test_it_reserves_files_for_its_work_and_raises_the_soft_limit(run_api):
    most = 2 * MOST
    with run_api(files=(most, most), head_timeout_s="600") as api, ExitStack() as stack:
        assert api.http.get("/v1/jobs").status_code == 200
        crowd(api, stack, IDLE)
        assert api.http.get("/v1/jobs").status_code == 200
        assert resource.prlimit(api.pid, resource.RLIMIT_NOFILE) == (most, most)
        assert len(list(Path(f"/proc/{api.pid}/fd").iterdir())) < most
        assert f"allows {MOST} connections" in api.log.read_text()
    with run_api(files=(50, 1000), max_connections="300") as api:
        assert resource.prlimit(api.pid, resource.RLIMIT_NOFILE) == (600, 1000)
        assert api.log.read_text() == ""

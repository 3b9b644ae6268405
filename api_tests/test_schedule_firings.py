"""A schedule of each minute on two APIs, with Redis on a clock that the test sets forward: each time fires once."""

import contextlib
import os
import random
import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest
import redis

from api_tests.conftest import ROOT, House, worker_process
from dyno.store.embedded import EmbeddedServer
from tests.cores import CORE, HERE, OTHER_CORE, THERE
from tests.server_clock import ServerClock
from tests.servers import kill_once_written, server_binary
from tests.waiting import eventually

MINUTE = timedelta(minutes=1)
SPEC = {"workload": "matmul", "params": {"n": 64}, "measure": {"processes": 1, "min_samples": 3, "min_s": 0}}
BOTH = f"cpu:{min(CORE, OTHER_CORE)}-{max(CORE, OTHER_CORE)}"


@pytest.fixture
def clock(tmp_path):
    return ServerClock(tmp_path, server_binary("redis"))


@pytest.fixture
def server(clock):
    with EmbeddedServer(binary=clock.binary) as server:
        yield server


@pytest.fixture
def own(server, tmp_path):
    """A Dyno of this test's own. Leases and the records of workers outlast the jumps of the clock."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    env |= {"DYNO_REDIS_URL": server.url, "DYNO_PORT": "0"}
    env |= {"DYNO_ALARMS_EVERY_S": "0"}  # an alarm would rerun jobs, with the label of the schedule
    env |= {"DYNO_SCHEDULES_EVERY_S": "0.03", "DYNO_ARTIFACT_DIR": str(tmp_path / "artifacts")}
    env |= {"DYNO_LEASE_S": "1e6", "DYNO_DEVICE_TTL_S": "1e6", "DYNO_SPOOL_DIR": str(tmp_path / "spool")}
    return House("", env)


class Apis:
    """Two APIs. `kill` ends one with SIGKILL, and `restart` starts another in its place."""

    def __init__(self, house, stack):
        self._house, self._stack = house, stack
        self._running = [self._start() for _ in range(2)]

    def _start(self):
        return self._stack.enter_context(self._house.another_api())

    def ask(self):
        return self._running[-1][1]

    def kill(self):
        process, _ = self._running.pop(0)
        process.kill()
        process.wait()

    def restart(self):
        self._running.append(self._start())


class Minutes:
    """Sets the clock forward to five seconds after the next minute, and looks until that minute has fired."""

    def __init__(self, clock, server, read):
        self._clock, self._server, self._read = clock, server, read
        self.fired: dict[str, str] = {}  # due time -> job

    def forward(self):
        with redis.Redis.from_url(self._server.url) as client:
            now = self._server_time(client)
        due = now.replace(second=0, microsecond=0) + MINUTE
        self._clock.forward(due + timedelta(seconds=5) - now)
        return due

    @staticmethod
    def _server_time(client):
        seconds, micros = client.time()
        return datetime.fromtimestamp(seconds).astimezone() + timedelta(microseconds=micros)

    def until_fired(self, due):
        def has_fired():
            for each in self._read()["firings"]:
                assert each["code"] is None, each
                assert self.fired.setdefault(each["due_at"], each["job"]) == each["job"], "fired twice"
            return any(datetime.fromisoformat(at) == due for at in self.fired)

        eventually(has_fired, 30, f"{due} fired")


def _read(apis):
    def answered():
        with contextlib.suppress(httpx.TransportError):  # its Redis was restarted
            answer = apis.ask().http.get("/v1/schedules/minutely")
            return answer.status_code == 200 and answer.json()

    return eventually(answered, 60, "the schedule is read")


def _jobs(http):
    found, cursor = list[dict[str, Any]](), {}
    while True:
        page = http.get("/v1/jobs", params={"label": "schedule=minutely", "limit": 200} | cursor).json()
        found += page["data"]
        if not page["has_more"]:
            return found
        cursor = {"cursor": page["next_cursor"]}


@pytest.mark.parametrize(("times", "workers"), [(12, 0), pytest.param(200, 3, marks=pytest.mark.verify)])
def test_each_time_fires_once_through_deaths_of_apis_and_of_redis(own, clock, server, times, workers, tmp_path):
    moments = random.Random(times)
    with ExitStack() as stack:
        apis = Apis(own, stack)
        for number, device in enumerate((HERE, THERE, BOTH)[:workers]):
            of_worker = {"DYNO_RUN_DIR": str(tmp_path / f"run{number}"), "DYNO_API_URL": str(apis.ask().http.base_url)}
            of_worker["PYTHONPATH"] = f"{ROOT / 'tests' / 'numpy_runners'}:{own.env.get('PYTHONPATH', '')}"
            stack.enter_context(worker_process(own.env | of_worker, device, f"worker-{number}"))
        body = {"cron": "* * * * *", "timezone": "Europe/Zurich", "spec": SPEC | {"queue_if_absent": True}}
        minutes = Minutes(clock, server, lambda: _read(apis))
        minutes.forward()  # or the minute might change by itself while the schedule is saved
        apis.ask().http.put("/v1/schedules/minutely", json=body).raise_for_status()
        for number in range(times):
            due = minutes.forward()
            if number % 50 == 5:
                time.sleep(moments.uniform(0, 0.06))  # to kill at any moment of a firing: the APIs look every 30 ms
                apis.kill()
                minutes.until_fired(due)
                apis.restart()
            elif number % 50 == 9:
                kill_once_written(server)
                server.revive()
            minutes.until_fired(due)
        document = _read(apis)
        assert (document["missed_count"], document["missed"]) == (0, [])
        due_times = sorted(datetime.fromisoformat(at) for at in minutes.fired)
        assert {later - before for before, later in pairwise(due_times)} == {MINUTE}
        assert len(due_times) >= times
        jobs = _jobs(apis.ask().http)
        assert sorted(job["id"] for job in jobs) == sorted(minutes.fired.values())
        if workers:
            eventually(lambda: all(job["status"] == "succeeded" for job in _jobs(apis.ask().http)), 120, "all jobs ran")
            ran_on = {job["worker"]["id"] for job in _jobs(apis.ask().http)}
            assert len(ran_on) == workers

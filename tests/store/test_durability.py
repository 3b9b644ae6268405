"""Accepted jobs survive a crash of Redis and a power loss, within the promised limits.

The power-loss test covers what `everysec` may lose in a crash, because a power loss takes more. For the reasons see
docs/dev/decisions/0009-what-a-death-of-redis-can-take.md.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

import httpx
import pytest

from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys, sync_client
from service.app import create_app
from tests.servers import KINDS, server_binary
from tests.service.conftest import serving
from tests.store.power_loss import Power
from tests.waiting import eventually, promised

JOBS, KILLED_AT = 1000, (250, 500, 750)
CALLERS = 8
BODY = {"workload": "matmul", "params": {"n": 64}, "device": "cpu", "queue_if_absent": True}


@pytest.fixture(params=KINDS)
def binary(request):
    return server_binary(request.param)


@dataclass
class Callers:
    """Submits one job after the other through the service, each with retries until it is accepted."""

    http: httpx.Client
    accepted: list[tuple[str, float]] = field(default_factory=list)  # job and time of the response, s
    ended: Event = field(default_factory=Event)

    def submit(self, key):
        def answer():
            answer = self.http.post("/v1/jobs", json=BODY, headers={"Idempotency-Key": key})
            assert answer.status_code in (202, 503), answer.text
            return answer if answer.status_code == 202 or self.ended.is_set() else None

        answered = eventually(answer)
        if answered.status_code == 202:
            self.accepted.append((answered.json()["id"], time.monotonic()))

    def submit_for_ever(self, name):
        number = 0
        while not self.ended.is_set():
            self.submit(f"{name}-{number}")
            number += 1


@contextmanager
def calling(settings):
    with serving(create_app(settings)) as http, ThreadPoolExecutor(CALLERS) as pool:
        callers = Callers(http)
        try:
            yield callers, pool
        finally:
            callers.ended.set()


def kept(settings):
    """The queued jobs of a server, found in every possible way."""
    keys = Keys(settings.namespace)
    with sync_client(settings) as client:
        found = set(client.zrange(keys.jobs, 0, -1))
        for index in (keys.queue("cpu"), keys.jobs_with_status("queued"), keys.jobs_of_workload("matmul")):
            assert set(client.zrange(index, 0, -1)) == found
        for job_id in found:
            assert client.hget(keys.job(job_id), "status") == "queued"
            assert client.xlen(keys.job_events(job_id)) == 1
    return found


def test_strict_durability_loses_and_duplicates_no_job_when_the_server_is_killed(binary, namespace):
    with EmbeddedServer(binary=binary, appendfsync="always") as server:
        there = Settings(redis_url=server.url, namespace=namespace)
        with calling(there) as (callers, pool):
            submits = [pool.submit(callers.submit, str(number)) for number in range(JOBS)]
            for number in KILLED_AT:
                eventually(lambda number=number: len(callers.accepted) >= number or failed(submits))
                server.kill()
                server.revive()
            for submit in submits:
                submit.result()
        assert len(callers.accepted) == JOBS
        assert kept(there) == {job for job, _ in callers.accepted}


def failed(calls):
    return any(call.done() and call.exception() for call in calls)


@pytest.mark.parametrize(
    ("durability", "busy_s", "may_lose_s"),
    [pytest.param("everysec", 8.0, promised(2.0), marks=pytest.mark.verify), ("always", 1.0, 0.0)],
)
def test_a_power_loss_takes_only_jobs_of_the_last_seconds_and_none_with_strict_durability(
    durability, busy_s, may_lose_s, binary, namespace, tmp_path
):
    power, data_dir = Power(tmp_path, binary), tmp_path / "data"
    with (
        EmbeddedServer(data_dir, power.binary, durability) as server,
        calling(Settings(redis_url=server.url, namespace=namespace)) as (callers, pool),
    ):
        calls = [pool.submit(callers.submit_for_ever, name) for name in range(CALLERS)]
        eventually(lambda: failed(calls) or [1 for _, at_s in callers.accepted[:1] if time.monotonic() - at_s > busy_s])
        killed_s = time.monotonic()
        server.kill()
        callers.ended.set()
        for call in calls:
            call.result()
    power.fail(data_dir)
    with EmbeddedServer(data_dir, binary) as server:
        found = kept(Settings(redis_url=server.url, namespace=namespace))
    lost_s = [max(killed_s - at_s, 0) for job, at_s in callers.accepted if job not in found]
    assert all(before_s < may_lose_s for before_s in lost_s), f"of {len(callers.accepted)} jobs {len(lost_s)} are gone"

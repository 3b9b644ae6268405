"""A Redis that submits have filled up to its `maxmemory`: it refuses new jobs, keeps the others, and recovers."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor, wait

import httpx
import pytest
import redis

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.models.job import Progress, WorkerRef
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.leases import Leases, LogPiece
from dyno.store.redis import Keys, sync_client
from service.app import create_app
from tests.results import a_result
from tests.waiting import eventually, promised

BODY = {"workload": "matmul", "params": {"n": 64}, "queue_if_absent": True}
ROOM_BYTES = 2 * 2**20
WORKER = WorkerRef(id="w", device="cpu:0", host="alpha")


@pytest.fixture
def server():
    with EmbeddedServer() as server:
        yield server


class Client:
    """Submits jobs, each with an idempotency key; `accepted`: the ids by key."""

    def __init__(self, http):
        self._http, self._numbers = http, itertools.count()
        self.accepted = {}
        self.refused = {}

    def submit(self, key=None):
        key = key or f"key {next(self._numbers)}"
        try:
            answer = self._http.post("/v1/jobs", json=BODY, headers={"Idempotency-Key": key})
        except (httpx.ReadError, httpx.RemoteProtocolError):  # httpx took a connection that the server was closing
            return self.submit(key)
        if answer.status_code == 202:
            self.accepted[key] = answer.json()["id"]
        else:
            self.refused[key] = answer
        return answer.status_code == 202

    def submit_until(self, deadline_s):
        """Until many are refused and the deadline is over."""
        while len(self.refused) < 50 or time.monotonic() < deadline_s:
            self.submit()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [1, pytest.param(300, marks=pytest.mark.verify)])
def test_a_redis_filled_up_by_submits_refuses_jobs_loses_none_and_recovers(server, serve, seconds):
    settings = Settings(redis_url=server.url, max_queued=10**6, reap_every_s=0.2)
    keys = Keys(settings.namespace)
    with serve(create_app(settings)) as http, sync_client(settings) as client, ThreadPoolExecutor(4) as pool:
        clients, leases = Client(http), Leases(client, settings)
        assert clients.submit()
        claim = leases.claim("cpu:0@alpha", ["cpu", "any"], WORKER)
        assert claim is not None
        limit = client.info("memory")["used_memory"] + ROOM_BYTES
        client.config_set("maxmemory", limit)
        deadline_s = time.monotonic() + seconds
        submitting = {pool.submit(clients.submit_until, deadline_s) for _ in range(4)}
        while wait(submitting, timeout=1).not_done:
            assert not leases.heartbeat(claim, Progress(phase="warmup", run=1, runs=1)).superseded
        for each in submitting:
            each.result()

        for answer in clients.refused.values():
            assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
            assert int(answer.headers["retry-after"]) > 0
        assert http.get("/readyz").status_code == 200, "reads, cancels and workers go on"
        memory = client.info("memory")
        taken = memory["used_memory"] - memory["mem_aof_buffer"]  # the buffer waits for the disk
        assert taken < limit + 2**20, "refused submits take no memory"

        # The running job goes on and ends, with a log and a result.
        assert not leases.heartbeat(
            claim, Progress(phase="sampling", run=1, runs=1), LogPiece(0, "x" * 16_000)
        ).superseded
        assert leases.finish(claim, "succeed", result=a_result(claim.job_id), samples=["x" * 16_000])
        assert http.get(f"/v1/jobs/{claim.job_id}/result").json()["job"] == claim.job_id
        assert not clients.submit(), "Redis is still full"

        stored = {str(job_id) for job_id in client.zrange(keys.jobs, 0, -1)}
        assert stored == set(clients.accepted.values())
        assert client.exists(*(keys.job(job_id) for job_id in stored)) == len(stored)
        key, job_id = next(iter(clients.accepted.items()))
        assert http.post("/v1/jobs", json=BODY, headers={"Idempotency-Key": key}).json().get("id", job_id) == job_id

        assert http.get(f"/v1/jobs/{claim.job_id}/samples").status_code == 409, "they would take reserved memory"
        http.delete(f"/v1/jobs/{claim.job_id}").raise_for_status()
        _make_room(http, sorted(stored - {claim.job_id})[:200])
        refused = next(iter(clients.refused))
        eventually(lambda: clients.submit(refused), promised(10), "a refused submit is accepted")
        eventually(lambda: http.get("/readyz").status_code == 200)
        client.config_set("maxmemory", 0)  # for the transaction that reads all
        assert list(state_violations(read(client, keys))) == []


def _make_room(http, job_ids):
    for job_id in job_ids:
        http.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()
        http.delete(f"/v1/jobs/{job_id}").raise_for_status()


@pytest.mark.verify
def test_with_a_limit_below_maxmemory_old_jobs_make_room_for_new_ones(server, serve):
    with redis.Redis.from_url(server.url) as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", used + 8 * 2**20)
        settings = Settings(redis_url=server.url, max_store_bytes=used + 6 * 2**20, reap_every_s=0.05)
        with serve(create_app(settings)) as http, sync_client(settings) as own:
            clients, leases = Client(http), Leases(own, settings)
            samples = ["x" * 2**17, *(f"{number:x}" for number in range(40_000))]  # 100 kB compressed
            for _ in range(150):
                eventually(clients.submit, promised(10), "there is room")
                claim = leases.claim("cpu:0@alpha", ["cpu", "any"], WORKER)
                assert claim is not None
                assert leases.finish(claim, "succeed", result=a_result(claim.job_id), samples=samples)
            assert 10 < len(http.get("/v1/jobs?limit=200").json()["data"]) < 150
            assert http.get(f"/v1/jobs/{claim.job_id}/result").status_code == 200

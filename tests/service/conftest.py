"""Fixtures: the service on a real port with a real store, and a published device without a worker."""

import threading
import uuid
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner

from dyno.cli import app
from dyno.models.device import Device, PeakFigure
from dyno.settings import Settings
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from service.app import create_app
from tests.comparisons import RATES, a_metric
from tests.service.workers import claim_of, publish, succeed

START_WITHIN_S = 20


class Server(uvicorn.Server):
    def __init__(self, app, port):
        super().__init__(uvicorn.Config(app, port=port, log_config=None))
        self.ready = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def serving(app, port=0):
    """A client of `app`, served from a thread of this process."""
    server = Server(app, port)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.ready.wait(START_WITHIN_S)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            yield http
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def namespace():
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def settings(redis_url, namespace):
    return Settings(redis_url=redis_url, namespace=namespace, device_ttl_s=600)


@pytest.fixture(scope="module")
def http(settings):
    """One server per file: its tests share the jobs, so each checks only its own."""
    with serving(create_app(settings)) as http:
        yield http


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch):
    """A busy disk doesn't make the service unready."""
    monkeypatch.setattr("service.sharing.FILES_WITHIN_S", 30.0)


@pytest.fixture(scope="session")
def serve():
    return serving


@pytest.fixture
def dyno(http):
    """Run the command against the service, in a wide terminal."""
    return lambda *words: CliRunner().invoke(
        app, [*map(str, words), "--url", str(http.base_url)], env={"COLUMNS": "250"}
    )


@pytest.fixture
def device():
    """Make a device with the given fields changed."""

    def make(**changes):
        known = {
            "id": "cpu:0-1",
            "kind": "cpu",
            "model": "Test CPU",
            "host": "here",
            "cores": [0, 1],
            "memory_bytes": 8 * 2**30,
            "peak": {"float32": PeakFigure(value=1e11, provenance="measured here")},
            "frameworks": {"tensorflow": "2.21.0"},
        }
        return Device(**known | changes)

    return make


@pytest.fixture
def offered(client, settings, device):
    """A device, published as by its worker: jobs are admitted and stay queued."""
    offered = device()
    publish(client, settings, offered, id="worker-1")
    return offered


@pytest.fixture
def submitted(http, offered):
    """Queue a matmul. Jobs still queued at the end are canceled, so that no other test claims them."""
    ids = []

    def one(**spec):
        body = {"workload": "matmul", "params": {"n": 64}, "device": "cpu", "expires_in_s": 3600} | spec
        answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        ids.append(answer.json()["id"])
        return ids[-1]

    yield one
    for job_id in ids:
        http.post(f"/v1/jobs/{job_id}/cancel")


@pytest.fixture
def finished(submitted, settings, offered):
    """Make a succeeded job, from the throughputs of its runs and further fields of its spec and result."""
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def one(by_run=RATES, spec=None, metrics=None, **result):
            job_id = submitted(**spec or {})
            claim = claim_of(leases, offered)
            assert claim.job_id == job_id
            succeed(leases, claim, metrics or [a_metric(by_run=by_run)], **result)
            return job_id

        yield one


@pytest.fixture
def claimed(submitted, settings, offered):
    """A running job, whose worker the test plays. It is stopped at the end."""
    claims = []
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def one():
            submitted()
            claims.append(claim := claim_of(leases, offered))
            return leases, claim

        yield one
        for claim in claims:
            leases.finish(claim, "stop")

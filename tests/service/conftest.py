"""Fixtures: the service on a real port with a real store, and a published device without a worker."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import redis
import uvicorn
from fastapi import FastAPI

from dyno.models.device import Device, PeakFigure
from dyno.models.inventory import WorkerRecord
from dyno.models.job import WorkerRef
from dyno.models.result import Metric
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.leases import Claim, Leases
from dyno.store.placement import queues_served
from dyno.store.redis import sync_client
from service.app import create_app
from tests.comparisons import RATES, a_metric, of_metrics

START_WITHIN_S = 20


class Server(uvicorn.Server):
    def __init__(self, app: FastAPI, port: int) -> None:
        super().__init__(uvicorn.Config(app, port=port, log_config=None))
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def serving(app: FastAPI, port: int = 0) -> Iterator[httpx.Client]:
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
def namespace() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def settings(redis_url: str, namespace: str) -> Settings:
    return Settings(redis_url=redis_url, namespace=namespace, device_ttl_s=600)


@pytest.fixture(scope="module")
def http(settings: Settings) -> Iterator[httpx.Client]:
    """One server per file: its tests share the jobs, so each checks only its own."""
    with serving(create_app(settings)) as http:
        yield http


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy disk doesn't make the service unready."""
    monkeypatch.setattr("service.readiness.FILES_WITHIN_S", 30.0)


@pytest.fixture(scope="session")
def serve() -> Callable[[FastAPI], AbstractContextManager[httpx.Client]]:
    return serving


@pytest.fixture
def device() -> Callable[..., Device]:
    """Make a device with the given fields changed."""

    def make(**changes: Any) -> Device:
        known: dict[str, Any] = {
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
def offered(client: redis.Redis, settings: Settings, device: Callable[..., Device]) -> Device:
    """A device, published as by its worker: jobs are admitted and stay queued."""
    offered = device()
    worker = WorkerRecord(
        id="worker-1",
        host=offered.host,
        pid=1,
        device=offered.full_id,
        state="idle",
        version="0",
        started_at=datetime.now(UTC),
    )
    fleet.publish(client, settings, offered, worker)
    return offered


@pytest.fixture
def submitted(http: httpx.Client, offered: Device) -> Iterator[Callable[..., str]]:
    """Queue a matmul. Jobs still queued at the end are canceled, so that no other test claims them."""
    ids: list[str] = []

    def one(**spec: Any) -> str:
        body = {"workload": "matmul", "params": {"n": 64}, "device": "cpu", "expires_in_s": 3600} | spec
        answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        ids.append(answer.json()["id"])
        return ids[-1]

    yield one
    for job_id in ids:
        http.post(f"/v1/jobs/{job_id}/cancel")


@pytest.fixture
def finished(submitted: Callable[..., str], settings: Settings, offered: Device) -> Iterator[Callable[..., str]]:
    """Make a succeeded job, from the throughputs of its runs and further fields of its spec and result."""
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def one(
            by_run: list[float] = RATES,
            spec: dict[str, Any] | None = None,
            metrics: list[Metric] | None = None,
            **result: Any,
        ) -> str:
            job_id = submitted(**spec or {})
            worker = WorkerRef(id="w", device=offered.id, host=offered.host)
            claim = leases.claim(offered.full_id, queues_served(offered), worker)
            assert claim is not None
            assert claim.job_id == job_id
            ran = {"params": claim.spec.params} | result
            found = of_metrics(metrics or [a_metric(by_run=by_run)], **ran).model_copy(update={"job": job_id})
            assert leases.finish(claim, "succeed", result=found)
            return job_id

        yield one


@pytest.fixture
def claimed(
    submitted: Callable[..., str], settings: Settings, offered: Device
) -> Iterator[Callable[[], tuple[Leases, Claim]]]:
    """A running job, whose worker the test plays. It is stopped at the end."""
    claims: list[Claim] = []
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def one() -> tuple[Leases, Claim]:
            submitted()
            ref = WorkerRef(id="w", device=offered.id, host=offered.host)
            claim = leases.claim(offered.full_id, queues_served(offered), ref)
            assert claim is not None
            claims.append(claim)
            return leases, claim

        yield one
        for claim in claims:
            leases.finish(claim, "stop")


@pytest.fixture
def asked(http: httpx.Client) -> Callable[..., Any]:
    """Run `dyno` against the service."""
    from typer.testing import CliRunner

    from dyno.cli import app

    env = {"COLUMNS": "250"}
    return lambda *words: CliRunner().invoke(app, [*map(str, words), "--url", str(http.base_url)], env=env)

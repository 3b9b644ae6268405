"""A Dyno to be asked anything: real store, real service, and a worker that ends jobs without running them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from dyno.access import NewKey
from dyno.devices.device import Device, PeakFigure
from dyno.job import Failure, FailureClass, WorkerRef
from dyno.result import Artifact, Result
from dyno.samples import RunSamples
from dyno.settings import Settings
from dyno.spec import InterleavedSpec
from dyno.store import fleet
from dyno.store.api_keys import ApiKeys
from dyno.store.connect import async_client, sync_client
from dyno.store.fleet import WorkerRecord
from dyno.store.leases import Claim, Leases
from dyno.store.queues import queues_served
from dyno.store.server import EmbeddedServer
from service.app import create_app
from tests.comparisons import a_metric, of_metrics
from tests.service.conftest import serving

WAITS_AT_MOST_S = 0.3  # a job that fits no device; whoever asked to be told of its end is told then
LOOK_EVERY_S = 0.02
LOOKS = 10  # for a job, until what waits is looked at
SAMPLES = RunSamples(run=0, warmup=[0.3], samples=[0.1], sample_cpu_s=[(0.1, 0.0)], executions_per_sample=4)


@dataclass(frozen=True)
class House:
    """Where it is, what it says of itself, and an admin's key where there are keys."""

    url: str
    document: dict[str, Any]
    key_id: str | None
    secret: str | None


@contextlib.contextmanager
def house(folder: Path, *, keys: bool) -> Iterator[House]:
    with EmbeddedServer() as server:
        settings = Settings(
            redis_url=server.url,
            device_ttl_s=3600,
            artifact_dir=folder / "artifacts",
            run_dir=folder / "run",
            spool_dir=folder / "spool",
        )
        key_id, secret = asyncio.run(_an_admin(settings)) if keys else (None, None)
        with serving(create_app(settings)) as http:
            if secret is not None:
                http.headers["Authorization"] = f"Bearer {secret}"
            with _worker(settings, http):
                yield House(str(http.base_url), http.get("/openapi.json").json(), key_id, secret)


async def _an_admin(settings: Settings) -> tuple[str, str]:
    async with async_client(settings) as client:
        key, secret = await ApiKeys(client, settings).create(NewKey(name="fuzz", scope="admin"))
        return key.id, secret


@contextlib.contextmanager
def _worker(settings: Settings, http: httpx.Client) -> Iterator[None]:
    with sync_client(settings) as client:
        device = Device(
            id="cpu:0-1",
            kind="cpu",
            model="Test CPU",
            host="here",
            cores=[0, 1],
            memory_bytes=8 * 2**30,
            peak={"float32": PeakFigure(value=1e11, provenance="measured here")},
            frameworks={"tensorflow": "2.21.0", "jax": "0.10.2"},
        )
        record = WorkerRecord(
            id="w", host="here", pid=1, device=device.full_id, state="idle", version="0", started_at=datetime.now(UTC)
        )
        fleet.publish(client, settings, device, record)
        ended = threading.Event()
        worker = _StandIn(Leases(client, settings), http, device)
        thread = threading.Thread(target=worker.work, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class _StandIn:
    """Ends what it claims, two in three with a result, cancels what waits for a device that isn't there, and submits a
    job of its own from time to time, so that whoever follows all of them is told of something."""

    def __init__(self, leases: Leases, http: httpx.Client, device: Device) -> None:
        self._leases, self._http, self._device = leases, http, device

    def work(self, ended: threading.Event) -> None:
        ref = WorkerRef(id="w", device=self._device.id, host=self._device.host)
        for number in count():
            if ended.wait(LOOK_EVERY_S):
                return
            claim = self._leases.claim(self._device.full_id, queues_served(self._device), ref)
            if claim is not None:
                self._end(claim, well=number % 3 > 0)
            elif number % LOOKS == 0:
                self._http.post(f"/v1/devices/{self._device.full_id}/uncordon")  # or nothing is taken from then on
                self._cancel_what_waits()
                self._http.post("/v1/jobs", json={"workload": "matmul", "device": "cpu", "expires_in_s": 3600})

    def _end(self, claim: Claim, *, well: bool) -> None:
        if not well:
            failure = Failure(failure_class=FailureClass.BENCHMARK, reason="why", message="why")
            self._leases.finish(claim, "fail", failure=failure)
            return
        url = f"/v1/jobs/{claim.job_id}/artifacts/model.weights.h5"
        sent = self._http.put(url, content=b"weights", headers={"Authorization": f"Bearer {claim.token}"})
        artifacts = [Artifact.model_validate(sent.json())] if sent.is_success else []
        arms = [_result(claim, []) for _ in range(2)] if isinstance(claim.spec, InterleavedSpec) else []
        self._leases.finish(claim, "succeed", result=_result(claim, artifacts, arms=arms), samples=[SAMPLES])

    def _cancel_what_waits(self) -> None:
        for job in self._http.get("/v1/jobs", params={"status": "queued", "limit": 200}).json()["data"]:
            age_s = time.time() - datetime.fromisoformat(job["created_at"]).timestamp()
            if age_s > WAITS_AT_MOST_S:
                self._http.post(f"/v1/jobs/{job['id']}/cancel")


def _result(claim: Claim, artifacts: list[Artifact], **more: Any) -> Result:
    found = of_metrics([a_metric()], workload=claim.spec.workload, artifacts=artifacts, **more)
    return found.model_copy(update={"job": claim.job_id})

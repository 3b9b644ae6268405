"""Fixtures for forecasts on a real store: devices, jobs and past jobs. `now` is the clock for the age of a forecast."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
import redis.asyncio

from dyno.models.device import Device
from dyno.models.inventory import WorkerRecord
from dyno.models.job import Job, WorkerRef
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store import eta, fleet
from dyno.store.eta import Forecasts, duration_series
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.placement import DYNO_VERSION, queues_served
from dyno.store.redis import Keys

EXPECTED_S = {"matmul": 10.0, "mnist_cnn": 100.0}
PATIENCE_S = 60.0  # on a busy host
READY = threading.Event()
READY.set()
TOOK = 2.0  # ratio of actual to estimated duration in all planted readings


def device(number: int, **fields: Any) -> Device:
    known = {"id": f"gpu:{number}", "kind": "gpu", "model": "H100", "host": "alpha", "memory_bytes": 1}
    return Device.model_validate(known | {"frameworks": {"tensorflow": "2"}} | fields)


ONE, TWO = device(0), device(1)


def estimate(spec: Spec, on: Device) -> float | None:
    """Jobs with too many replicas don't fit a device. Blocks until READY is set."""
    assert READY.wait(PATIENCE_S)
    return EXPECTED_S[spec.workload] if spec.replicas <= on.units else None


@pytest.fixture
def offer(client: redis.Redis, settings: Settings) -> Callable[..., None]:
    def offered(*devices: Device, **fields: Any) -> None:
        for one in devices:
            known = {"id": one.id, "host": one.host, "pid": 1, "device": one.full_id, "version": DYNO_VERSION}
            known |= {"state": "idle", "started_at": datetime.now(UTC)} | fields
            record = WorkerRecord.model_validate(known)
            fleet.publish(client, settings, one, record)

    return offered


@pytest.fixture
def take(leases: Leases, worker: WorkerRef, client: redis.Redis, keys: Keys) -> Callable[..., Claim]:
    def claimed(one: Device, elapsed_s: float = 0) -> Claim:
        held = leases.claim(one.full_id, queues_served(one), worker)
        assert held is not None
        begun = client.hget(keys.job(held.job_id), "started_at")
        client.hset(keys.job(held.job_id), "started_at", float(begun) - elapsed_s)
        return held

    return claimed


@pytest.fixture
def learn(client: redis.Redis, keys: Keys) -> Callable[..., None]:
    def planted(*workloads: str, on: Device = ONE, times: int = 3) -> None:
        for name in workloads:
            reading = f"{EXPECTED_S[name]} {TOOK * EXPECTED_S[name]}"
            client.lpush(keys.paces(duration_series(Spec(workload=name), on)), *[reading] * times)

    return planted


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def jobs(
    async_redis: redis.asyncio.Redis, settings: Settings, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> Jobs:
    monkeypatch.setattr(eta, "FORECAST_TIMEOUT_S", PATIENCE_S)
    return Jobs(async_redis, settings, Forecasts(async_redis, settings, estimate, lambda: now[0]).latest)


@pytest.fixture
def submit(jobs: Jobs, a_spec: Callable[..., Spec], now: list[float]) -> Callable:
    async def submitted(**fields: Any) -> Job:
        now[0] += 60
        return (await jobs.submit(a_spec(**{"device": "gpu"} | fields))).job

    return submitted


@pytest.fixture
def damage(client: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """Make forecasts fail or time out. Returns a function that undoes it."""
    series = keys.paces(duration_series(Spec(workload="matmul"), ONE))

    def done(how: str) -> Callable[[], object]:
        if how == "damaged":
            client.set(series, "no list")
            return lambda: client.delete(series)
        monkeypatch.setattr(eta, "FORECAST_TIMEOUT_S", 0.05)
        READY.clear()
        return in_time

    def in_time() -> None:
        monkeypatch.setattr(eta, "FORECAST_TIMEOUT_S", PATIENCE_S)
        READY.set()

    yield done
    READY.set()


@pytest.fixture
def etas(jobs: Jobs, now: list[float]) -> Callable:
    async def told(*waiting: Job) -> list[float | None]:
        now[0] += 60
        return [(await jobs.get(job.id)).queue.eta_s for job in waiting]

    return told

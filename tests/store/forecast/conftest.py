"""Fixtures for forecasts on a real store: devices, jobs and past jobs. `now` is the clock for the age of a forecast."""

import threading

import pytest

from dyno.models.spec import Spec
from dyno.store import eta
from dyno.store.eta import Forecasts, duration_series
from dyno.store.jobs import Jobs
from dyno.store.placement import queues_served
from tests.store.fleets import gpu

EXPECTED_S = {"matmul": 10.0, "mnist_cnn": 100.0}
PATIENCE_S = 60.0  # on a busy host
READY = threading.Event()
READY.set()
TOOK = 2.0  # ratio of actual to estimated duration in all planted readings


ONE, TWO = gpu(0), gpu(1)


def estimate(spec, on):
    """Jobs with too many replicas don't fit a device. Blocks until READY is set."""
    assert READY.wait(PATIENCE_S)
    return EXPECTED_S[spec.workload] if spec.replicas <= on.units else None


@pytest.fixture
def take(leases, worker, client, keys):
    def claimed(one, elapsed_s=0):
        held = leases.claim(one.full_id, queues_served(one), worker)
        assert held is not None
        begun = client.hget(keys.job(held.job_id), "started_at")
        client.hset(keys.job(held.job_id), "started_at", float(begun) - elapsed_s)
        return held

    return claimed


@pytest.fixture
def learn(client, keys):
    def planted(*workloads, on=ONE, times=3):
        for name in workloads:
            reading = f"work {EXPECTED_S[name]} {TOOK * EXPECTED_S[name]}"
            client.lpush(keys.paces(duration_series(Spec(workload=name), on)), *[reading] * times)

    return planted


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def jobs(async_redis, settings, now, monkeypatch):
    monkeypatch.setattr(eta, "FORECAST_TIMEOUT_S", PATIENCE_S)
    return Jobs(async_redis, settings, Forecasts(async_redis, settings, estimate, lambda: now[0]).latest)


@pytest.fixture
def submit(jobs, a_spec, now):
    async def submitted(**fields):
        now[0] += 60
        return (await jobs.submit(a_spec(**{"device": "gpu"} | fields))).job

    return submitted


@pytest.fixture
def damage(client, keys, monkeypatch):
    """Make forecasts fail or time out. Returns a function that undoes it."""
    series = keys.paces(duration_series(Spec(workload="matmul"), ONE))

    def done(how):
        if how == "damaged":
            client.set(series, "no list")
            return lambda: client.delete(series)
        monkeypatch.setattr(eta, "FORECAST_TIMEOUT_S", 0.05)
        READY.clear()
        return in_time

    def in_time():
        monkeypatch.setattr(eta, "FORECAST_TIMEOUT_S", PATIENCE_S)
        READY.set()

    yield done
    READY.set()


@pytest.fixture
def etas(jobs, now):
    async def told(*waiting):
        now[0] += 60
        return [(await jobs.get(job.id)).queue.eta_s for job in waiting]

    return told

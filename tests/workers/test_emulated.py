"""A whole worker with an emulated TPU: routing, replicas, and untrusted results."""

import asyncio
import os
import subprocess
import sys

import pytest

from dyno.celery_app import send_wake_up
from dyno.models.job import Status
from dyno.settings import Settings
from dyno.store.fleet import devices
from dyno.store.redis import async_client
from tests.waiting import eventually
from tests.workers.conftest import Store, tiny
from tests.workers.whole.looking import environment_of

DIGITS = {"data": "sample", "epochs": 1, "batch_size": 32, "train_samples": 32, "test_samples": 6}


@pytest.fixture(scope="module")
def own(redis_url, tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulated")
    return Settings(
        redis_url=redis_url, namespace="emulated", run_dir=folder, artifact_url=f"file://{folder}/artifacts"
    )


@pytest.fixture(scope="module")
def emulated(own):
    """A worker for tpu:0, emulated with 8 virtual CPU devices."""
    command = [sys.executable, "-P", "-m", "workers", "--emulate", "tpu:8", "--name", "emulated"]
    with subprocess.Popen(command, env=os.environ | environment_of(own)) as worker:
        try:
            eventually(lambda: _state(own) == "idle", within_s=60)
            yield Store(own)
        finally:
            worker.terminate()


def _state(settings):
    async def state():
        async with async_client(settings) as client:
            return next((device.state for device in await devices(client, settings)), None)

    return asyncio.run(state())


def _ended(store, spec):
    job_id = store.submit(spec)
    send_wake_up(store.settings, store.job(job_id).queue.name)
    eventually(lambda: store.job(job_id).done, within_s=150)
    return store.job(job_id)


def _result(store, spec):
    job = _ended(store, spec)
    assert job.status is Status.SUCCEEDED, job.failure
    assert job.worker.device.startswith("tpu:0@")
    return store.result(job.id)


def _spec(**fields):
    return tiny(device="tpu", **fields)


def _distrusted(result):
    codes = {warning.code for warning in result.warnings}
    return result.verdict == "untrusted" and "EMULATED_DEVICE" in codes and result.device["emulated"]


@pytest.mark.verify
@pytest.mark.provokes("EMULATED_DEVICE")
def test_a_product_runs_on_it_and_is_untrusted(emulated):
    result = _result(emulated, _spec())
    assert _distrusted(result)
    assert (result.peak.value, result.peak.reason) == (None, "an emulated device has no peak of its own")


@pytest.mark.verify
def test_digits_are_learnt_over_eight_replicas(emulated):
    result = _result(emulated, _spec(workload="mnist_cnn", params=DIGITS, replicas=8))
    assert _distrusted(result)
    details = result.details
    assert (details["replicas"], details["batch_size"], details["batch_size_per_replica"]) == (8, 32, 4)
    assert details["jit_compile_choice"]["chosen"] is False
    assert result.training.accuracy is not None  # of 6 samples, which 8 replicas can't share evenly


@pytest.mark.verify
def test_a_job_for_more_devices_than_it_has_waits_for_another_while_it_goes_on(emulated):
    job_id = emulated.submit(_spec(workload="mnist_cnn", params=DIGITS, replicas=16))
    assert _result(emulated, _spec()) is not None
    waiting = emulated.job(job_id)
    assert (waiting.status, waiting.attempt) == (Status.QUEUED, 0)
    assert (waiting.queue.position, waiting.queue.passed_over) == (0, True)
    emulated.cancel(job_id)

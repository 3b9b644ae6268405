"""If a device disappears, between jobs or during one, another worker gets the job and its own worker ends.

Nonexistent cores, and a GPU on a host without one, stand for a device that was there when its worker started.
"""

import os
import signal
import threading
from functools import partial

import pytest

from dyno.bench.devices.discovery import discover
from dyno.bench.registry import registry
from dyno.bench.runner.health_check import device_loss
from dyno.errors import DeviceUnavailable
from dyno.models.job import FailureClass, Status, WorkerRef
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from tests.waiting import eventually
from tests.workers.conftest import LONG, tiny, until_gone
from tests.workers.looking import runner_of
from workers.attempt import WorkerContext
from workers.supervisor import Supervisor

# In place of the module pynvml, in a process of its own.
DRIVER = """
from types import SimpleNamespace
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(number): return number
def nvmlDeviceGetUUID(handle): return "GPU-5c89852c"
def nvmlDeviceGetName(handle): return "Tesla T4"
def nvmlDeviceGetMigMode(handle): raise NVMLError
def nvmlDeviceGetMemoryInfo(handle): return SimpleNamespace(total=16 << 30)
def nvmlDeviceGetCudaComputeCapability(handle): return 7, 5
"""
HANGS = """
import ctypes, os, pathlib, signal
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
pathlib.Path(__file__).with_name("hanging").write_text(str(os.getpid()))
while True:
    ctypes.CDLL(None).pause()
"""


class Worker(Supervisor):
    """A supervisor for `device` that records its calls of `leave` and `wake`."""

    def __init__(self, device, settings, launcher, **context):
        self.left, self.woken = 0, list[str]()
        leases = Leases(sync_client(settings), settings)
        ref = WorkerRef(id="w", device=device.full_id, host=device.host)
        made = WorkerContext(device, leases, launcher, settings, registry(), **context)
        super().__init__(made, ref, self.woken.append, leave=self._count)

    def _count(self):
        self.left += 1


@pytest.fixture
def worker_of(quick, forking):
    made = []

    def worker(device, **context):
        made.append(Worker(device, quick, forking, **context))
        return made[-1]

    yield worker
    for one in made:
        one.stop(0)


@pytest.fixture
def gpu(here):
    """The GPU as it was discovered before it disappeared."""
    facts = {"id": "gpu:0", "kind": "gpu", "model": "Tesla T4", "memory_bytes": 16 << 30, "uuids": ["GPU-5c89852c"]}
    return here.model_copy(update=facts)


@pytest.fixture
def driver_is(tmp_path, monkeypatch):
    """Replaces NVML for processes started from now on; returns the file to which HANGS writes its pid."""

    def made(program):
        (tmp_path / "pynvml.py").write_text(program)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        return tmp_path / "hanging"

    return made


def is_handed_to_others(job):
    return (job.status, job.status_reason, job.attempt) == (Status.QUEUED, "no_such_device", 1)


def test_a_job_whose_cores_are_gone_is_run_by_another_worker(here, store, worker_of):
    job_id = store.submit(tiny())
    losing = worker_of(here.model_copy(update={"cores": [4095]}))
    assert losing.serve() == 1
    assert is_handed_to_others(store.job(job_id))
    assert (losing.left, losing.woken) == (1, ["cpu"])
    assert losing.serve() == 0  # whoever wakes it
    assert worker_of(here).serve() == 1
    assert (store.job(job_id).status, store.job(job_id).attempt) == (Status.SUCCEEDED, 2)


def test_a_job_whose_gpu_is_gone_is_left_to_others(gpu, store, worker_of):
    job_id = store.submit(tiny(device="gpu"))
    losing = worker_of(gpu, gone=lambda: "NVML lists 0 here")
    assert losing.serve() == 1
    assert is_handed_to_others(store.job(job_id))
    assert losing.left == 1


def test_the_second_worker_that_loses_its_device_fails_the_job_with_the_reason(gpu, store, worker_of):
    job_id = store.submit(tiny(device="gpu"))
    for _ in range(2):
        assert worker_of(gpu, gone=lambda: "NVML lists 0 here").serve() == 1
    failure = store.job(job_id).failure
    assert (failure.failure_class, failure.reason) == (FailureClass.INFRASTRUCTURE, "no_such_device")
    assert "NVML lists 0 here" in failure.message


def test_a_device_that_goes_in_mid_run_is_found_gone_whatever_its_runner_died_of(
    here, quick, store, worker_of, background
):
    job_id = store.submit(tiny(measure=LONG))
    losing = worker_of(here, gone=lambda: "GPU is lost")
    serving = background.submit(losing.serve)
    os.kill(runner_of(here, quick), signal.SIGBUS)
    assert serving.result(60) == 1
    assert is_handed_to_others(store.job(job_id))
    assert losing.left == 1


@pytest.mark.parametrize(
    ("driver", "found"),
    [
        (DRIVER, None),
        (DRIVER.replace("return 1", "return 0"), "NVML lists none here"),
        (DRIVER.replace("5c89852c", "71b8f36e"), "gpu:0 is another GPU now: GPU-71b8f36e"),
        ("1 / 0", None),
    ],
    ids=["there", "gone", "renumbered", "not known"],
)
def test_the_health_check_runs_in_its_own_process(gpu, forking, driver_is, driver, found):
    driver_is(driver)
    said = device_loss(forking, gpu)
    assert said is None if found is None else found in (said or "")


def test_a_driver_that_hangs_at_the_second_look_is_a_device_that_is_gone(
    gpu, store, worker_of, forking, driver_is, monkeypatch
):
    monkeypatch.setattr("dyno.bench.runner.health_check.ANSWER_TIMEOUT_S", 3.0)
    hanging = driver_is(HANGS)
    job_id = store.submit(tiny(device="gpu"))
    there = worker_of(gpu, gone=partial(device_loss, forking, gpu))
    assert there.serve() == 1
    assert is_handed_to_others(store.job(job_id))
    assert there.left == 1
    if hanging.exists() and (pid := hanging.read_text()):  # on a busy host, it may not have started yet
        assert until_gone(int(pid))


def test_a_slow_health_check_keeps_the_lease_and_obeys_a_cancel(gpu, store, worker_of, background):
    answered = threading.Event()
    job_id = store.submit(tiny(device="gpu"))
    serving = background.submit(worker_of(gpu, gone=lambda: str(answered.wait())).serve)
    try:
        eventually(lambda: (seen := store.job(job_id).progress) is not None and seen.phase == "second_look")
        store.cancel(job_id)
        assert serving.result(60) == 1
    finally:
        answered.set()
    assert store.job(job_id).status is Status.CANCELED


def test_a_device_that_is_there_and_that_a_framework_does_not_know_fails_the_job_alone(gpu, store, worker_of):
    job_id = store.submit(tiny(device="gpu"))
    there = worker_of(gpu)
    assert there.serve() == 1
    job = store.job(job_id)
    assert (job.failure.failure_class, job.failure.reason) == (FailureClass.UNSUPPORTED, "no_such_device")
    assert there.left == 0


def test_no_worker_starts_for_a_device_that_is_gone(gpu, settings):
    with pytest.raises(DeviceUnavailable, match="not found"):
        discover(gpu.id, settings)

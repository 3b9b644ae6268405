"""A device that is gone, between two jobs or in the middle of one: its job goes to another, and its worker ends.

Cores that no host has, and a GPU on a host without one, stand for a device that was there when its worker started.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dyno.devices import discover
from dyno.devices.device import Device
from dyno.errors import DeviceUnavailable
from dyno.job import FailureClass, Job, Status, WorkerRef
from dyno.settings import Settings
from dyno.store.connect import sync_client
from dyno.store.leases import Leases
from dyno.workloads import registry
from tests.workers.conftest import LONG, Store, tiny
from tests.workers.looking import runner_of
from workers.equipment import Equipment
from workers.launcher import Launcher
from workers.supervisor import Supervisor


class Worker(Supervisor):
    """A supervisor for `device` that counts how often it would leave, and whom it calls."""

    def __init__(self, device: Device, settings: Settings, launcher: Launcher, **equipment: Any) -> None:
        self.left, self.woken = 0, list[str]()
        leases = Leases(sync_client(settings), settings)
        ref = WorkerRef(id="w", device=device.full_id, host=device.host)
        made = Equipment(device, leases, launcher, settings, registry(), **equipment)
        super().__init__(made, ref, self.woken.append, leave=self._count)

    def _count(self) -> None:
        self.left += 1


@pytest.fixture
def worker_of(quick: Settings, forking: Launcher) -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def worker(device: Device, **equipment: Any) -> Worker:
        made.append(Worker(device, quick, forking, **equipment))
        return made[-1]

    yield worker
    for one in made:
        one.stop(0)


@pytest.fixture
def gpu(here: Device) -> Device:
    """As it was found, before it went."""
    return here.model_copy(update={"id": "gpu:0", "kind": "gpu", "model": "Tesla T4", "memory_bytes": 16 << 30})


def is_handed_to_others(job: Job) -> bool:
    return (job.status, job.status_reason, job.attempt) == (Status.QUEUED, "no_such_device", 1)


def test_a_job_whose_cores_are_gone_is_run_by_another_worker(
    here: Device, store: Store, worker_of: Callable[..., Worker]
) -> None:
    job_id = store.submit(tiny())
    lost = worker_of(here.model_copy(update={"cores": [4095]}))
    assert lost.serve() == 1
    assert is_handed_to_others(store.job(job_id))
    assert (lost.left, lost.woken) == (1, ["cpu"])
    assert lost.serve() == 0  # whoever wakes it
    assert worker_of(here).serve() == 1
    assert (store.job(job_id).status, store.job(job_id).attempt) == (Status.SUCCEEDED, 2)


def test_a_job_whose_gpu_is_gone_is_left_to_others(gpu: Device, store: Store, worker_of: Callable[..., Worker]) -> None:
    job_id = store.submit(tiny(device="gpu"))
    lost = worker_of(gpu, gone=lambda: "NVML lists 0 here")
    assert lost.serve() == 1
    assert is_handed_to_others(store.job(job_id))
    assert lost.left == 1


def test_the_second_worker_to_lose_its_device_fails_the_job_and_says_why(
    gpu: Device, store: Store, worker_of: Callable[..., Worker]
) -> None:
    job_id = store.submit(tiny(device="gpu"))
    for _ in range(2):
        assert worker_of(gpu, gone=lambda: "NVML lists 0 here").serve() == 1
    failure = store.job(job_id).failure
    assert failure is not None
    assert (failure.failure_class, failure.reason) == (FailureClass.INFRASTRUCTURE, "no_such_device")
    assert "NVML lists 0 here" in failure.message


def test_a_device_that_goes_in_mid_run_is_found_gone_whatever_its_runner_died_of(
    here: Device, quick: Settings, store: Store, worker_of: Callable[..., Worker], background: ThreadPoolExecutor
) -> None:
    job_id = store.submit(tiny(measure=LONG))
    lost = worker_of(here, gone=lambda: "GPU is lost")
    serving = background.submit(lost.serve)
    os.kill(runner_of(here, quick), signal.SIGBUS)
    assert serving.result(30) == 1
    assert is_handed_to_others(store.job(job_id))
    assert lost.left == 1


def test_a_device_that_is_there_and_that_a_framework_does_not_know_fails_the_job_alone(
    gpu: Device, store: Store, worker_of: Callable[..., Worker]
) -> None:
    job_id = store.submit(tiny(device="gpu"))
    there = worker_of(gpu)
    assert there.serve() == 1
    job = store.job(job_id)
    assert job.failure is not None
    assert (job.failure.failure_class, job.failure.reason) == (FailureClass.UNSUPPORTED, "no_such_device")
    assert there.left == 0


def test_no_worker_starts_for_a_device_that_is_gone(gpu: Device, settings: Settings) -> None:
    with pytest.raises(DeviceUnavailable, match="not found"):
        discover(gpu.id, settings)

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from dyno.celery_app import celery_queue
from dyno.models.device import Device, fits
from dyno.models.spec import DeviceSelector, FrameworkName
from dyno.store import fleet
from dyno.store.placement import queue_for, queues_served

DEVICE = Device(
    id="cpu:0-1",
    kind="cpu",
    model="AMD EPYC 9454P (Zen 4)",
    host="alpha",
    memory_bytes=1,
    frameworks={"tensorflow": "2.21.0", "jax": "0.10.2"},
)
FITTING: list[tuple[object, str]] = [
    ("any", "any"),
    ("cpu", "cpu"),
    ({"kind": "cpu", "model": "AMD EPYC 9454P (Zen 4)"}, "cpu/amd-epyc-9454p-zen-4"),
    ({"model": "amd epyc 9454p zen 4"}, "any/amd-epyc-9454p-zen-4"),
    ("cpu:0-1", "cpu:0-1"),
    ("cpu:0-1@alpha", "cpu:0-1@alpha"),
]


def selector(text):
    return DeviceSelector.model_validate(text)


@pytest.mark.parametrize(("asked", "queue"), FITTING)
def test_a_job_waits_in_one_queue_which_the_fitting_device_serves(asked, queue):
    assert queue_for(selector(asked), "tensorflow") == queue
    assert queue_for(selector(asked), "jax") == f"{queue}+jax"
    served = queues_served(DEVICE)
    assert (served.count(queue), served.count(f"{queue}+jax")) == (1, 1)
    assert fits(selector(asked), DEVICE)


@pytest.mark.parametrize("asked", ["gpu", "cpu:0", "cpu:0-1@beta", {"kind": "cpu", "model": "Ryzen"}])
def test_a_device_does_not_serve_what_it_does_not_fit(asked):
    assert not {queue_for(selector(asked), name) for name in DEVICE.frameworks} & set(queues_served(DEVICE))
    assert not fits(selector(asked), DEVICE)


@pytest.mark.parametrize("asked", [asked for asked, _ in FITTING])
def test_a_worker_never_claims_a_job_of_a_missing_framework(asked):
    assert queue_for(selector(asked), "torch") not in queues_served(DEVICE)
    only_jax = DEVICE.model_copy(update={"frameworks": {"jax": "0.10.2"}})
    assert queue_for(selector(asked), "tensorflow") not in queues_served(only_jax)
    assert fits(selector(asked), only_jax)


def test_the_most_specific_queue_comes_first():
    assert queues_served(DEVICE)[:2] == ["cpu:0-1@alpha+jax", "cpu:0-1@alpha"]


def test_no_two_queues_share_a_name_in_the_store_or_in_celery():
    every = DEVICE.model_copy(update={"frameworks": dict.fromkeys(get_args(FrameworkName), "1")})
    served = queues_served(every)
    assert len(set(served)) == len(list(product(FITTING, every.frameworks)))
    assert len({celery_queue(queue).name for queue in served}) == len(served)


@pytest.mark.anyio
async def test_in_a_mixed_fleet_each_job_goes_to_a_worker_with_its_framework(
    async_redis, settings, jobs, leases, worker, a_spec, offer
):
    wants_jax = (await jobs.submit(a_spec(framework="jax"))).job
    wants_tensorflow = (await jobs.submit(a_spec())).job
    assert (wants_jax.queue.name, wants_tensorflow.queue.name) == ("cpu+jax", "cpu")
    old = DEVICE.model_copy(update={"id": "cpu:2-3", "frameworks": {"tensorflow": "2.21.0"}})
    offer(DEVICE, old)
    assert [each.queue_length for each in await fleet.devices(async_redis, settings)] == [2, 1]

    first = leases.claim(old.full_id, queues_served(old), worker)
    assert first is not None
    assert first.job_id == wants_tensorflow.id
    second = leases.claim(DEVICE.full_id, queues_served(DEVICE), worker)
    assert second is not None
    assert second.job_id == wants_jax.id

from __future__ import annotations

import pytest

from dyno.devices.device import Device
from dyno.spec import DeviceSelector
from dyno.store.queues import queue_for, queues_served

DEVICE = Device(id="cpu:0-1", kind="cpu", model="AMD EPYC 9454P (Zen 4)", host="alpha", memory_bytes=1)


@pytest.mark.parametrize(
    ("selector", "queue"),
    [
        ("any", "any"),
        ("cpu", "cpu"),
        ({"kind": "cpu", "model": "AMD EPYC 9454P (Zen 4)"}, "cpu/amd-epyc-9454p-zen-4"),
        ({"model": "amd epyc 9454p zen 4"}, "any/amd-epyc-9454p-zen-4"),
        ("cpu:0-1", "cpu:0-1"),
        ("cpu:0-1@alpha", "cpu:0-1@alpha"),
    ],
)
def test_a_job_waits_in_one_queue_which_the_fitting_device_serves(selector: object, queue: str) -> None:
    assert queue_for(DeviceSelector.model_validate(selector)) == queue
    assert queues_served(DEVICE).count(queue) == 1


@pytest.mark.parametrize("selector", ["gpu", "cpu:0", "cpu:0-1@beta", {"kind": "cpu", "model": "Ryzen"}])
def test_a_device_does_not_serve_what_it_does_not_fit(selector: object) -> None:
    assert queue_for(DeviceSelector.model_validate(selector)) not in queues_served(DEVICE)

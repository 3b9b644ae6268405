"""Devices made of virtual CPU devices."""

from __future__ import annotations

import os
import re

import pytest

from dyno.devices.discover import discover
from dyno.devices.emulated import parse_emulated
from dyno.devices.frameworks import installed_frameworks
from dyno.errors import DeviceUnavailable
from dyno.models.spec import DEVICE_ID
from dyno.settings import Settings
from dyno.store.queues import queues_served

SETTINGS = Settings(reserved_cores=None)


@pytest.mark.parametrize(("name", "what", "expected"), [("tpu", "tpu:8", "tpu:0"), ("gpu:3", "gpu:1", "gpu:3")])
def test_it_is_what_it_is_called_made_of_this_host_s_cores_and_says_so(name: str, what: str, expected: str) -> None:
    device = discover(name, SETTINGS, what)
    assert (device.id, device.kind, device.units) == (expected, expected[:3], int(what[4:]))
    assert DEVICE_ID.match(device.full_id)
    assert device.emulated
    assert device.driven_as == "cpu"
    assert device.cores == sorted(os.sched_getaffinity(0))
    assert device.model == f"emulated {device.kind}"
    assert device.frameworks == installed_frameworks()


def test_its_peak_is_null_with_a_reason() -> None:
    for figure in discover("tpu", SETTINGS, "tpu:8").peak.values():
        assert (figure.value, figure.reason) == (None, "an emulated device has no peak of its own")


def test_it_takes_jobs_for_its_kind_and_none_for_a_cpu() -> None:
    queues = queues_served(discover("tpu", SETTINGS, "tpu:8"))
    assert any(re.match("tpu(/|$)", queue) for queue in queues)
    assert not any(queue.startswith("cpu") for queue in queues)


@pytest.mark.parametrize("what", ["tpu", "tpu:0", "tpu:65", "cpu:8", "gpu:-1", "tpu:8x", ""])
def test_what_can_not_be_emulated_is_refused_with_what_can(what: str) -> None:
    with pytest.raises(DeviceUnavailable, match=r'it would be "tpu:8" or "gpu:1", with 1 to 64'):
        parse_emulated(what)


def test_another_kind_s_id_or_no_number_is_refused() -> None:
    with pytest.raises(DeviceUnavailable, match="tpu:8 emulates no gpu"):
        discover("gpu:0", SETTINGS, "tpu:8")
    with pytest.raises(DeviceUnavailable, match="one number"):
        discover("tpu:0-1", SETTINGS, "tpu:8")


def test_it_takes_no_core_that_is_reserved() -> None:
    with pytest.raises(DeviceUnavailable, match="no core is left"):
        discover("tpu", Settings(reserved_cores=f"0-{max(os.sched_getaffinity(0))}"), "tpu:8")

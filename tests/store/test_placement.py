from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dyno.devices.device import Device, PeakFigure
from dyno.models.inventory import DeviceStatus
from dyno.models.spec import Spec
from dyno.store.placement import ClaimFilter, profile

KNOWN: dict[str, Any] = {"id": "gpu:0", "kind": "gpu", "model": "H100", "host": "alpha", "memory_bytes": 80, "units": 2}
DEVICE = Device(**KNOWN)
OF_ITS_OWN: list[dict[str, Any]] = [
    {"id": "gpu:1", "host": "beta"},
    {"cores": [3]},
    {"peak": {"float32": PeakFigure(value=1e12)}},
    {"started_with": "spawn", "started_with_reason": "why"},
]
DECISIVE: list[dict[str, Any]] = [
    {"memory_bytes": 40},
    {"units": 1},
    {"kind": "cpu"},
    {"model": "A100"},
    {"isa": ["sm_70"]},
    {"frameworks": {"jax": "0.10"}},
    {"emulated": True},
]


@pytest.mark.parametrize("changed", OF_ITS_OWN)
def test_devices_that_differ_in_name_place_and_speed_share_a_profile(changed: dict[str, Any]) -> None:
    assert profile(DEVICE.model_copy(update=changed)) == profile(DEVICE)


@pytest.mark.parametrize("changed", DECISIVE)
def test_what_may_decide_whether_a_job_fits_is_in_the_profile(changed: dict[str, Any]) -> None:
    assert profile(DEVICE.model_copy(update=changed)) != profile(DEVICE)


def test_the_order_in_which_frameworks_were_found_decides_nothing() -> None:
    found = {"tensorflow": "2.21", "jax": "0.10"}
    one, other = (dict(order) for order in (found.items(), reversed(found.items())))
    assert profile(DEVICE.model_copy(update={"frameworks": one})) == profile(
        DEVICE.model_copy(update={"frameworks": other})
    )


def test_another_version_has_its_own_profiles() -> None:
    assert profile(DEVICE, "0.0") != profile(DEVICE)


def test_a_device_has_the_profile_that_it_was_published_with() -> None:
    published = DeviceStatus(**KNOWN, state="idle", queue_length=3, worker="w", last_heartbeat=datetime.now(UTC))
    assert profile(published) == profile(Device.model_validate_json(DEVICE.model_dump_json())) == profile(DEVICE)


def test_the_filter_checks_the_spec() -> None:
    taker = ClaimFilter("p", lambda spec: spec.replicas == 1)
    specs = [Spec(workload="matmul", replicas=replicas).model_dump_json() for replicas in (1, 2)]
    assert [taker.answer(text) for text in specs] == ["+", "-"]


@pytest.mark.parametrize("text", ["{broken", "5", '{"workload": "matmul", "framework": "abacus"}'])
def test_an_unreadable_spec_is_claimed_so_that_it_fails(text: str) -> None:
    assert ClaimFilter("p", lambda spec: False).answer(text) == "+"

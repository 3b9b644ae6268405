from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dyno.models.device import Device, PeakFigure
from dyno.models.inventory import DeviceStatus
from dyno.models.spec import DeviceSelector, InterleavedSpec, Measure, Spec, Webhook
from dyno.store.placement import ClaimFilter, needs, profile

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
def test_devices_that_differ_in_name_place_and_speed_share_a_profile(changed):
    assert profile(DEVICE.model_copy(update=changed)) == profile(DEVICE)


@pytest.mark.parametrize("changed", DECISIVE)
def test_what_may_decide_whether_a_job_fits_is_in_the_profile(changed):
    assert profile(DEVICE.model_copy(update=changed)) != profile(DEVICE)


def test_the_order_in_which_frameworks_were_found_decides_nothing():
    found = {"tensorflow": "2.21", "jax": "0.10"}
    one, other = (dict(order) for order in (found.items(), reversed(found.items())))
    assert profile(DEVICE.model_copy(update={"frameworks": one})) == profile(
        DEVICE.model_copy(update={"frameworks": other})
    )


def test_another_version_has_its_own_profiles():
    assert profile(DEVICE, "0.0") != profile(DEVICE)


def test_a_device_has_the_profile_that_it_was_published_with():
    published = DeviceStatus(**KNOWN, state="idle", queue_length=3, worker="w", last_heartbeat=datetime.now(UTC))
    assert profile(published) == profile(Device.model_validate_json(DEVICE.model_dump_json())) == profile(DEVICE)


def test_the_filter_checks_the_spec():
    taker = ClaimFilter("p", lambda spec: spec.replicas == 1)
    specs = [Spec(workload="matmul", replicas=replicas).model_dump_json() for replicas in (1, 2)]
    assert [taker.answer(text) for text in specs] == ["+", "-"]


@pytest.mark.parametrize("text", ["{broken", "5", '{"workload": "matmul", "framework": "abacus"}'])
def test_an_unreadable_spec_has_an_answer_of_its_own(text):
    assert ClaimFilter("p", lambda spec: False).answer(text) == "!"


SPEC = Spec(workload="mnist_cnn", params={"epochs": 1, "batch_size": 8})
SAME_NEEDS: dict[str, Any] = {
    "device": DeviceSelector(kind="cpu"),  # decides the queue
    "measure": Measure(min_samples=3),
    "seed": 7,
    "timeout_s": 9.0,
    "priority": "high",
    "labels": {"for": "me"},
    "webhook": Webhook(url="https://hooks.example.org/"),
    "expires_in_s": 60,
    "queue_if_absent": True,
    "baseline": "main",
    "baseline_allow": ["device"],
}
OTHER_NEEDS: dict[str, Any] = {"workload": "matmul", "params": {"epochs": 2}, "framework": "jax", "replicas": 2}


def test_what_decides_where_a_job_fits_is_in_its_needs():
    assert SAME_NEEDS.keys() | OTHER_NEEDS.keys() == Spec.model_fields.keys()
    assert {needs(SPEC.model_copy(update={name: value})) for name, value in SAME_NEEDS.items()} == {needs(SPEC)}
    others = [needs(SPEC.model_copy(update={name: value})) for name, value in OTHER_NEEDS.items()]
    assert len({needs(SPEC), *others}) == 1 + len(OTHER_NEEDS)
    assert needs(SPEC.model_copy(update={"params": {"batch_size": 8, "epochs": 1}})) == needs(SPEC)


def test_both_specs_of_a_comparison_are_in_its_needs():
    both = [
        InterleavedSpec(**dict(SPEC), against=against, pairs=2, control=False, metric="step_time")
        for against in (SPEC, SPEC.model_copy(update={"replicas": 2}))
    ]
    assert len({needs(SPEC), *map(needs, both)}) == 3

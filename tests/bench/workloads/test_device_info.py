import ctypes.util
import dataclasses
import json
import os
import sys

import pytest

from dyno.bench.devices.discovery import installed_frameworks
from dyno.bench.devices.gpu import gpu_facts
from dyno.bench.frameworks.visible_devices import query_visible_devices
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads.device_info import host_facts, listing
from tests.nvml import recorded_nvml

INFO = workload("device_info")


def _built(context, **params):
    return INFO.build(validate_params(INFO, {"ask_frameworks": False} | params), context)


def _run(context):
    built = _built(context)
    built.compile()
    built.execute(2)
    assert built.complete(0.0, 0.0) is None
    return built.verify().details


def test_the_details_hold_the_processors_the_frameworks_and_the_same_listing_as_the_artifact(context, tmp_path):
    details = _run(dataclasses.replace(context(), artifacts=tmp_path))
    assert details["cpu"]["threads"] >= len(os.sched_getaffinity(0))
    assert details["frameworks"]["tensorflow"]["version"] == installed_frameworks()["tensorflow"]
    assert [device["kind"] for device in details["frameworks"]["tensorflow"]["devices"]][:1] == ["cpu"]
    assert [path.name for path in tmp_path.iterdir()] == ["device.txt"]
    text = (tmp_path / "device.txt").read_text().splitlines()
    fixed = [line for line in text if not line.startswith(("Memory", "Clock"))]
    assert set(fixed) <= set(details["listing"])
    assert json.loads(json.dumps(details)) == details


def test_a_later_run_asks_no_framework_and_leaves_nothing_behind(context):
    built = _built(context(run=1))
    built.execute(1)
    assert "frameworks" not in built.verify().details


def test_the_reason_for_an_absent_accelerator_lists_what_was_tried():
    facts = host_facts()
    if not facts["tpu"]["found"]:
        assert "/dev/accel*" in facts["tpu"]["reason"]
    if not ctypes.util.find_library("nvidia-ml"):
        assert facts["gpus"]["reason"].startswith("GPU not found: NVML")


def test_the_listing_has_a_line_for_each_cache_and_each_reason():
    facts = host_facts()
    lines = listing(facts).splitlines()
    for cache in facts["cpu"]["caches"]:
        assert any(line.startswith(f"{cache['name']} cache:") for line in lines)
    for reason in (facts[kind].get("reason") for kind in ("gpus", "tpu")):
        assert reason is None or any(line.endswith(reason) for line in lines)
    assert all(":" in line for line in lines)


@pytest.fixture
def h200(monkeypatch):
    """Recorded because the host may have no GPU: NVML's responses with one H200 that reports no MIG mode."""

    def refuse(handle):
        raise nvml.NVMLError("Not Supported")

    nvml = recorded_nvml(
        nvmlDeviceGetMaxPcieLinkGeneration=lambda handle: 5,
        nvmlDeviceGetMaxPcieLinkWidth=lambda handle: 16,
        nvmlDeviceGetPowerManagementLimit=lambda handle: 700_000,
        nvmlDeviceGetMaxClockInfo=lambda handle, clock: {1: 1980, 2: 3201}[clock],
        nvmlDeviceGetEccMode=lambda handle: [1, 1],
        nvmlDeviceGetMigMode=refuse,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


@pytest.mark.usefixtures("h200")
def test_gpu_facts_are_in_bytes_hertz_and_watts_and_unsupported_ones_are_null():
    (gpu,) = gpu_facts()
    assert (gpu["model"], gpu["driver"], gpu["compute_capability"]) == ("NVIDIA H200", "570.86.15", "9.0")
    assert (gpu["memory_bytes"], gpu["power_limit_w"], gpu["clock_most_hz"]) == (150_754_820_096, 700.0, 1.98e9)
    assert (gpu["pcie_generation"], gpu["pcie_lanes"], gpu["ecc"], gpu["mig"]) == (5, 16, True, None)
    assert any(line.startswith("GPU 0 power limit w:") for line in listing(host_facts()).splitlines())


def test_an_unknown_framework_gives_a_reason_instead_of_devices():
    told = query_visible_devices("theano")
    assert told["devices"] == []
    assert 'unknown framework "theano"' in told["reason"]


@pytest.mark.skipif("jax" not in installed_frameworks(), reason="JAX is not installed")
@pytest.mark.verify
def test_another_framework_is_queried_in_a_separate_process():
    told = query_visible_devices("jax")
    assert {"cpu", "gpu", "tpu"} & {device["kind"] for device in told["devices"]}


def test_it_times_no_arithmetic_and_describes_an_execution(device):
    params = validate_params(INFO, {})
    assert INFO.flops(params) == 0
    assert [spec.name for spec in INFO.metrics] == ["discovery_time"]
    many = device.model_copy(update={"frameworks": {"tensorflow": "1", "jax": "1", "torch": "1"}})
    assert INFO.estimate(params, many).train_s > INFO.estimate(params, device).train_s == 0

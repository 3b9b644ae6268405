"""Slices of a divided GPU (MIG), with NVML's responses recorded: these tests run without a GPU.

The sizes are those of an A100 with 40 GB in NVIDIA's MIG User Guide: 3g.20gb has 42 of 108 multiprocessors and half of
the memory, 1g.5gb has 14 and an eighth.
"""

import sys
import types
from pathlib import Path

import pytest

from dyno.bench.devices.discovery import discover
from dyno.bench.devices.environment import hardware_id
from dyno.bench.devices.gpu import gpu_facts, nvml_session, units_of
from dyno.bench.devices.locks import lock_paths
from dyno.bench.frameworks.visible_devices import isolating_variables
from dyno.errors import DeviceUnavailable
from dyno.models.device import fits
from dyno.models.spec import DEVICE_ID, DeviceSelector
from dyno.settings import Settings
from dyno.store.placement import profile, queues_served
from tests.nvml import recorded_nvml

SETTINGS = Settings(reserved_cores=None)
MIB = 2**20
# Handle -> name, UUID, memory in MiB, multiprocessors. 0 and 1 are whole GPUs; the slices 0 and 2 of GPU 0 exist.
ANSWERS: dict[int, tuple[bytes, bytes, int, int]] = {
    0: (b"NVIDIA A100-SXM4-40GB", b"GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", 40536, 0),
    1: (b"NVIDIA A100-SXM4-40GB", b"GPU-71b8f36e-0a4c-55d1-8a6b-51f3d3c0a4f2", 40536, 0),
    100: (b"NVIDIA A100-SXM4-40GB MIG 3g.20gb", b"MIG-a0c8b1e2-6a5f-5a7e-9d5c-0a1b2c3d4e5f", 20096, 42),
    102: (b"NVIDIA A100-SXM4-40GB MIG 1g.5gb", b"MIG-b7d9c2f3-7b60-5b8f-8e6d-1b2c3d4e5f60", 4864, 14),
}


class NVMLError(Exception):
    """NVML's own class of errors."""


def slice_of(gpu, place):
    if 100 + place not in ANSWERS:
        raise NVMLError("Not Found")
    return 100 + place


def of_whole_gpus(handle, answer):
    if handle >= 100:
        raise NVMLError("Not Supported")
    return answer


@pytest.fixture(autouse=True)
def a100s(monkeypatch):
    nvml = recorded_nvml(
        NVMLError=NVMLError,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetMigMode=lambda handle: of_whole_gpus(handle, [1, 1] if handle == 0 else [0, 0]),
        nvmlDeviceGetMaxMigDeviceCount=lambda gpu: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=slice_of,
        nvmlDeviceGetUUID=lambda handle: ANSWERS[handle][1],
        nvmlDeviceGetName=lambda handle: ANSWERS[handle][0],
        nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(total=ANSWERS[handle][2] * MIB, used=0),
        nvmlDeviceGetAttributes=lambda handle: types.SimpleNamespace(multiprocessorCount=ANSWERS[handle][3]),
        nvmlDeviceGetCudaComputeCapability=lambda handle: of_whole_gpus(handle, (8, 0)),
        nvmlDeviceGetNumGpuCores=lambda handle: of_whole_gpus(handle, 6912),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml


def test_a_slice_is_a_device_with_its_own_id_memory_model_and_uuid():
    small = discover("gpu:0:2", SETTINGS)
    assert (small.id, small.model) == ("gpu:0:2", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert (small.memory_bytes, small.units, small.isa) == (4864 * MIB, 1, ["sm_80"])
    assert small.uuids == ["MIG-b7d9c2f3-7b60-5b8f-8e6d-1b2c3d4e5f60"]
    assert DEVICE_ID.match(small.full_id)
    assert discover(small.full_id, SETTINGS) == small


@pytest.mark.parametrize(
    ("name", "multiprocessors", "eighths"), [("gpu:0:0", 42, 4), ("gpu:0:2", 14, 1), ("gpu:1", 108, 8)]
)
def test_a_slice_has_its_part_of_the_peak_the_bandwidth_and_the_cache(name, multiprocessors, eighths):
    device = discover(name, SETTINGS)
    assert device.peak["bfloat16"].value == pytest.approx(312e12 * multiprocessors / 108)
    assert device.peak["float32"].value == pytest.approx(19.5e12 * multiprocessors / 108)
    assert device.memory_bandwidth.value == 1555e9 * eighths / 8
    assert device.last_cache_bytes == 40 * MIB * eighths // 8
    source = device.peak["bfloat16"].source or ""
    assert source.endswith(f"; {multiprocessors} of 108 multiprocessors") == (":0:" in name)
    assert device.peak["bfloat16"].provenance == "datasheet"


def test_a_slice_whose_part_nvml_does_not_report_has_no_peak_and_a_reason(a100s):
    def forbidden(handle):
        raise NVMLError("Insufficient Permissions")

    a100s.nvmlDeviceGetNumGpuCores = forbidden
    device = discover("gpu:0:2", SETTINGS)
    assert {figure.value for figure in device.peak.values()} == {None}
    assert "which part of the GPU" in (device.peak["float32"].reason or "")
    assert device.last_cache_bytes is None


def test_a_slice_that_a_driver_names_without_its_gpu_still_has_the_model_of_its_peers(a100s):
    a100s.nvmlDeviceGetName = lambda handle: ANSWERS[handle][0].replace(b"NVIDIA A100-SXM4-40GB MIG", b"MIG")
    assert discover("gpu:0:2", SETTINGS).model == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"


def test_a_divided_gpu_is_no_device_itself_and_gpu_is_its_first_slice():
    assert discover("gpu", SETTINGS).id == "gpu:0:0"
    with pytest.raises(DeviceUnavailable, match=r"gpu:0 is divided \(MIG\); use one of its slices: gpu:0:0, gpu:0:2"):
        discover("gpu:0", SETTINGS)
    with pytest.raises(DeviceUnavailable, match="gpu:0:1 not found: NVML lists gpu:0:0, gpu:0:2, gpu:1 here"):
        discover("gpu:0:1", SETTINGS)


def test_a_divided_gpu_without_slices_says_so_and_the_other_gpu_is_used(a100s):
    a100s.nvmlDeviceGetMaxMigDeviceCount = lambda gpu: 0
    assert discover("gpu", SETTINGS).id == "gpu:1"
    with pytest.raises(DeviceUnavailable, match=r"gpu:0 can't be used: it is divided \(MIG\), but has no slice"):
        discover("gpu:0", SETTINGS)


@pytest.mark.parametrize(
    ("visible", "id"), [("MIG-b7d9c2f3", "gpu:0:2"), ("0", "gpu:0:0"), ("1", "gpu:1"), ("GPU-71b8f36e,0", "gpu:1")]
)
def test_slices_can_be_allowed_by_uuid_or_by_the_number_of_their_gpu(monkeypatch, visible, id):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert discover("gpu", SETTINGS).id == id


def test_the_facts_of_a_divided_gpu_list_its_slices(a100s):
    def unsupported(*_):
        raise NVMLError("Not Supported")

    names = ("MaxPcieLinkGeneration", "MaxPcieLinkWidth", "PowerManagementLimit", "MaxClockInfo", "EccMode")
    vars(a100s).update({f"nvmlDeviceGet{name}": unsupported for name in names})
    divided, whole = gpu_facts()
    assert (divided["mig"], whole["mig"], whole["slices"], whole["power_limit_w"]) == (True, False, [], None)
    assert divided["slices"] == ["gpu:0:0", "gpu:0:2"]


def test_runners_on_a_slice_see_it_alone():
    slice_ = discover("gpu:0:2", SETTINGS)
    shown = isolating_variables(slice_.driven_as, slice_.uuids)["CUDA_VISIBLE_DEVICES"]
    assert shown == "MIG-b7d9c2f3-7b60-5b8f-8e6d-1b2c3d4e5f60"


def test_slices_exclude_each_other_only_from_themselves(tmp_path):
    settings = Settings(reserved_cores=None, run_dir=tmp_path)
    paths = [lock_paths(discover(name, settings), settings) for name in ("gpu:0:0", "gpu:0:2", "gpu:1")]
    assert [[Path(path).name for path in each] for each in paths] == [
        ["gpu-0:0.lock"],
        ["gpu-0:2.lock"],
        ["gpu-1.lock"],
    ]


def test_jobs_reach_a_slice_by_id_model_or_kind_and_its_peers_are_slices_of_that_size():
    small, large, whole = (discover(name, SETTINGS) for name in ("gpu:0:2", "gpu:0:0", "gpu:1"))
    for selector in ({"id": small.id}, {"id": small.full_id}, {"model": small.model}, {"kind": "gpu"}):
        assert fits(DeviceSelector.model_validate(selector), small)
    assert not fits(DeviceSelector(id="gpu:0:0"), small)
    assert f"gpu:0:2@{small.host}" in {queue.partition("+")[0] for queue in queues_served(with_jax(small))}
    assert len({hardware_id(each) for each in (small, large, whole)}) == 3
    elsewhere = small.model_copy(update={"id": "gpu:3:1", "host": "other", "uuids": ["MIG-0"]})
    assert hardware_id(elsewhere) == hardware_id(small)
    assert profile(elsewhere) == profile(small)


def with_jax(device):
    return device.model_copy(update={"frameworks": {"jax": "0.10.2"}})


def test_sensors_find_a_slice_by_its_uuid_and_miss_it_once_it_is_destroyed(a100s):
    device = discover("gpu:0:2", SETTINGS)
    with nvml_session() as nvml:
        [unit] = units_of(nvml, device)
        assert (unit.handle, unit.gpu, unit.is_slice) == (102, 0, True)
        a100s.nvmlDeviceGetMaxMigDeviceCount = lambda gpu: 1
        with pytest.raises(DeviceUnavailable, match=r"gpu:0:2 \(MIG-b7d9c2f3.*\) isn't in NVML's list any more"):
            units_of(nvml, device)

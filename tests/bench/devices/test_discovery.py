"""Discovery of real and emulated devices, and the error where there is none."""

import ctypes.util
import os
import re
import sys
from importlib import metadata

import pytest

from dyno.bench.devices.cpu import last_cache_bytes, memory_bytes, physical_cores
from dyno.bench.devices.discovery import discover, host_name, installed_frameworks, missing_frameworks, parse_emulated
from dyno.errors import DeviceUnavailable
from dyno.models.spec import DEVICE_ID
from dyno.settings import Settings
from dyno.store.placement import queues_served
from tests.nvml import recorded_nvml

FREE = sorted(os.sched_getaffinity(0))
SETTINGS = Settings(reserved_cores=None)


def test_a_setting_names_the_host_of_a_device():
    device = discover("cpu", Settings(hostname="north.lab"))
    assert (device.host, device.full_id) == ("north.lab", f"{device.id}@north.lab")
    assert discover(device.full_id, Settings(hostname="north.lab")).host == "north.lab"


def test_a_cpu_is_all_cores_of_the_affinity_mask_under_an_id_that_a_spec_accepts():
    device = discover("cpu", SETTINGS)
    assert device.cores == FREE
    assert DEVICE_ID.match(device.id)
    assert DEVICE_ID.match(device.full_id)
    assert device.memory_bytes > 2**28
    assert device.frameworks.keys() <= {"tensorflow", "jax", "torch"}


def test_a_discovered_cpu_is_found_again_by_its_id_and_by_its_full_id():
    device = discover("cpu", SETTINGS)
    assert discover(device.id, SETTINGS) == device
    assert discover(device.full_id, SETTINGS) == device


def test_one_core_is_a_device_of_its_own():
    assert discover(f"cpu:{FREE[0]}-{FREE[0]}", SETTINGS).cores == FREE[:1]


def test_the_error_for_a_missing_core_lists_the_available_ones():
    with pytest.raises(DeviceUnavailable, match="no core 4000 available; this process may use"):
        discover(f"cpu:{FREE[0]},4000", SETTINGS)


def test_reserved_cores_are_left_out_of_the_cpu_and_refused_in_an_id():
    settings = Settings(reserved_cores=str(FREE[-1]))
    if len(FREE) > 1:
        assert discover("cpu", settings).cores == FREE[:-1]
    with pytest.raises(DeviceUnavailable, match="DYNO_RESERVED_CORES reserves"):
        discover(f"cpu:{FREE[-1]}", settings)


def test_a_host_whose_cores_are_all_reserved_has_no_cpu():
    with pytest.raises(DeviceUnavailable, match="no core is left"):
        discover("cpu", Settings(reserved_cores=f"0-{FREE[-1]}"))


@pytest.mark.parametrize("name", ["", "cpux", "cpu:", "npu:0", "gpu:-1", "cpu:2-1"])
def test_an_invalid_device_id_is_unavailable(name):
    with pytest.raises(DeviceUnavailable):
        discover(name, SETTINGS)


def test_a_device_of_another_host_is_refused():
    with pytest.raises(DeviceUnavailable, match=f"another host; this one is {host_name()}"):
        discover("cpu:0-0@elsewhere", SETTINGS)


def test_a_host_without_nvml_has_no_gpu():
    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("there is an NVIDIA driver here")
    with pytest.raises(DeviceUnavailable, match=r"GPU not found: NVML \(libnvidia-ml\.so\.1\) says"):
        discover("gpu:0", SETTINGS)


@pytest.fixture
def h200(monkeypatch):
    nvml = recorded_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml


@pytest.mark.usefixtures("h200")
def test_a_gpu_is_named_as_nvml_names_it_and_has_the_peak_of_its_data_sheet():
    device = discover("gpu", SETTINGS)
    assert (device.id, device.kind, device.model) == ("gpu:0", "gpu", "NVIDIA H200")
    assert device.memory_bytes == 150_754_820_096
    assert device.isa == ["sm_90"]
    figure = device.peak["bfloat16"]
    assert (figure.value, figure.provenance, figure.reason) == (989e12, "datasheet", None)
    assert "H200 data sheet" in (figure.source or "")
    assert device.memory_bandwidth.value == 4.8e12
    assert device.uuids == ["GPU-0b7e8a1c-3d21-4f0a-9c55-7a2f10d4e6b3"]


def test_a_recorded_gpu_too_old_for_mig_has_its_peak(h200):
    def unsupported(handle):
        raise RuntimeError("Not Supported")

    h200.nvmlDeviceGetMigMode = unsupported
    h200.nvmlDeviceGetName = lambda handle: "Tesla T4"
    device = discover("gpu", SETTINGS)
    assert (device.peak["float16"].value, device.last_cache_bytes) == (65e12, 4 * 2**20)


@pytest.mark.usefixtures("h200")
def test_the_error_for_a_missing_gpu_number_gives_the_number_of_gpus():
    with pytest.raises(DeviceUnavailable, match="gpu:3 not found: NVML lists gpu:0 here"):
        discover("gpu:3", SETTINGS)


@pytest.mark.parametrize(
    ("visible", "name", "id"),
    [
        *((None, "gpu", "gpu:0"), (None, "gpu:1", "gpu:1"), ("0,1", "gpu:1", "gpu:1"), ("1", "gpu:1", "gpu:1")),
        *(("1", "gpu", "gpu:1"), ("1,0", "gpu", "gpu:1"), ("GPU-1b7e8a", "gpu", "gpu:1"), ("9, GPU-1", "gpu", "gpu:1")),
    ],
)
def test_any_gpu_that_the_administrator_allows_can_be_a_device(h200, monkeypatch, visible, name, id):
    h200.nvmlDeviceGetCount = lambda: 2
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert discover(name, SETTINGS).id == id


@pytest.mark.parametrize(
    ("visible", "name", "complaint"),
    [
        ("0", "gpu:1", "gpu:1 is excluded by CUDA_VISIBLE_DEVICES=0"),
        ("GPU-1", "gpu:0", "gpu:0 is excluded by CUDA_VISIBLE_DEVICES=GPU-1"),
        ("", "gpu", "lists no GPU of this host"),
        ("-1", "gpu", "lists no GPU of this host"),
        ("GPU-9a2b", "gpu", "lists no GPU of this host"),
    ],
)
def test_a_gpu_that_the_administrator_excludes_is_refused(h200, monkeypatch, visible, name, complaint):
    h200.nvmlDeviceGetCount = lambda: 2
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(DeviceUnavailable, match=complaint):
        discover(name, SETTINGS)


def test_several_gpus_of_one_model_form_one_device_with_a_replica_on_each(h200, monkeypatch):
    h200.nvmlDeviceGetCount = lambda: 4
    device = discover("gpu:0-1", SETTINGS)
    assert (device.id, device.units, device.memory_bytes) == ("gpu:0-1", 2, 150_754_820_096)
    assert device.peak["bfloat16"].value == 2 * 989e12
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert discover("gpu:1,3", SETTINGS).units == 2
    with pytest.raises(DeviceUnavailable, match="gpu:0 is excluded by CUDA_VISIBLE_DEVICES=3,1"):
        discover("gpu:0-1", SETTINGS)
    h200.nvmlDeviceGetName = lambda handle: f"model {handle}"
    with pytest.raises(DeviceUnavailable, match="of the same model; these are model 1, model 3"):
        discover("gpu:1,3", SETTINGS)


def test_a_gpu_that_falls_off_the_bus_is_unavailable(h200):
    def lost(handle):
        raise RuntimeError("GPU is lost")

    h200.nvmlDeviceGetName = lost
    with pytest.raises(DeviceUnavailable, match="GPU can't be read: NVML says GPU is lost"):
        discover("gpu:0", SETTINGS)


def test_a_lost_gpu_leaves_the_others_usable(h200):
    def handle(index):
        if index == 0:
            raise RuntimeError("GPU is lost")
        return index

    h200.nvmlDeviceGetCount = lambda: 2
    h200.nvmlDeviceGetHandleByIndex = handle
    assert discover("gpu", SETTINGS).id == "gpu:1"
    with pytest.raises(DeviceUnavailable, match="gpu:0 can't be used: NVML says GPU is lost"):
        discover("gpu:0", SETTINGS)


def test_frameworks_are_those_whose_packages_are_installed():
    assert installed_frameworks()["tensorflow"].count(".") >= 2


def test_a_framework_built_for_the_cpu_is_not_offered_on_a_gpu():
    """This environment has tensorflow-cpu and JAX without a plugin."""
    if any(name.startswith(("nvidia-cu", "jax-cuda")) for name in names_of_distributions()):
        pytest.skip("an environment for GPUs")
    assert installed_frameworks("gpu") == {}
    why = missing_frameworks("gpu")
    assert why.startswith("no installed framework is built for CUDA (tensorflow ")
    assert why.endswith('pip install ".[gpu]" or pip install ".[jax-cuda]" in a checkout')


def names_of_distributions():
    return [one.name for one in metadata.distributions()]


@pytest.fixture
def environment_of(tmp_path, monkeypatch):
    """Replaces the installed packages by recorded ones: files by path, beside the metadata of each distribution."""

    def made(distributions, files):
        for name, version in distributions.items():
            folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        monkeypatch.setattr(sys, "path", [str(tmp_path)])

    return made


CUDA_BUILD = "build_info = collections.OrderedDict([('cuda_version', '12.5.1'), ('is_cuda_build', True)])\n"
PLUGIN = "[jax_plugins]\nxla_cuda12 = jax_plugins.xla_cuda12\n"


@pytest.mark.parametrize(
    ("distributions", "files", "offered"),
    [
        ({"tensorflow": "2.21.0"}, {"tensorflow/python/platform/build_info.py": CUDA_BUILD}, {"tensorflow": "2.21.0"}),
        (
            {"tensorflow": "2.21.0"},  # its wheels for ARM have the same name and version, without CUDA
            {"tensorflow/python/platform/build_info.py": CUDA_BUILD.replace("True", "False")},
            {},
        ),
        (
            {"jax": "0.10.2", "jax-cuda12-plugin": "0.10.2"},
            {"jax_cuda12_plugin-0.10.2.dist-info/entry_points.txt": PLUGIN},
            {"jax": "0.10.2"},
        ),
        ({"jax": "0.10.2"}, {}, {}),
        (
            {"jax": "0.10.2", "jax-rocm7-plugin": "0.10.2"},
            {"jax_rocm7_plugin-0.10.2.dist-info/entry_points.txt": PLUGIN.replace("cuda12", "rocm7")},
            {},
        ),
        (
            {"torch": "2.13.0"},
            {"torch/version.py": "__version__ = '2.13.0+cu129'\ncuda: Optional[str] = '12.9'\n"},
            {"torch": "2.13.0"},
        ),
        ({"torch": "2.13.0"}, {"torch/version.py": "cuda: Optional[str] = None\nhip: Optional[str] = None\n"}, {}),
        ({"torch": "2.13.0"}, {}, {}),
    ],
)
def test_recorded_builds_with_cuda_are_offered_on_a_gpu(environment_of, distributions, files, offered):
    environment_of(distributions, files)
    assert installed_frameworks("gpu") == offered
    assert installed_frameworks().keys() == distributions.keys() & {"tensorflow", "jax", "torch"}


def test_without_any_framework_the_extra_for_the_kind_is_named(environment_of):
    environment_of({}, {})
    for kind, extra in (("cpu", "cpu"), ("gpu", "gpu"), ("tpu", "jax-tpu")):
        assert f'no framework is installed; install one with: pip install ".[{extra}]' in missing_frameworks(kind)


def test_memory_is_read_in_bytes(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:        1024 kB\nMemFree: 1 kB\n")
    assert memory_bytes(tmp_path / "meminfo") == 2**20


def cache(topology, core, index, **facts):
    folder = topology / f"cpu{core}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, value in facts.items():
        (folder / name).write_text(value + "\n")


def test_the_last_cache_is_summed_over_its_separate_parts(tmp_path):
    for core, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        cache(tmp_path, core, 0, level="1", type="Data", size="32K", shared_cpu_list=str(core))
        cache(tmp_path, core, 3, level="3", type="Unified", size="32M", shared_cpu_list=shared)
    assert last_cache_bytes([0, 1], tmp_path) == 32 * 2**20
    assert last_cache_bytes([0, 1, 2], tmp_path) == 64 * 2**20
    assert last_cache_bytes([9], tmp_path) is None


def test_hyperthreads_of_one_core_count_as_one_physical_core(tmp_path):
    for core, siblings in ((0, "0,2"), (1, "1,3"), (2, "0,2")):
        (tmp_path / f"cpu{core}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}" / "topology" / "thread_siblings_list").write_text(siblings)
    assert physical_cores([0, 1, 2], tmp_path) == 2
    assert physical_cores([7, 8], tmp_path) == 2


@pytest.mark.parametrize(("name", "what", "expected"), [("tpu", "tpu:8", "tpu:0"), ("gpu:3", "gpu:1", "gpu:3")])
def test_an_emulated_device_has_its_id_this_host_s_cores_and_a_flag(name, what, expected):
    device = discover(name, SETTINGS, what)
    assert (device.id, device.kind, device.units) == (expected, expected[:3], int(what[4:]))
    assert DEVICE_ID.match(device.full_id)
    assert device.emulated
    assert device.driven_as == "cpu"
    assert device.cores == sorted(os.sched_getaffinity(0))
    assert device.model == f"emulated {device.kind}"
    assert device.frameworks == installed_frameworks()


def test_the_peak_of_an_emulated_device_is_null_with_a_reason():
    for figure in discover("tpu", SETTINGS, "tpu:8").peak.values():
        assert (figure.value, figure.reason) == (None, "an emulated device has no peak of its own")


def test_an_emulated_device_takes_only_jobs_for_its_kind():
    queues = queues_served(discover("tpu", SETTINGS, "tpu:8"))
    assert any(re.match("tpu(/|$)", queue) for queue in queues)
    assert not any(queue.startswith("cpu") for queue in queues)


@pytest.mark.parametrize("what", ["tpu", "tpu:0", "tpu:65", "cpu:8", "gpu:-1", "tpu:8x", ""])
def test_an_invalid_device_to_emulate_is_refused_with_the_valid_form(what):
    with pytest.raises(DeviceUnavailable, match=r'use "tpu:8" or "gpu:1", with 1 to 64'):
        parse_emulated(what)


def test_emulation_refuses_an_id_of_another_kind_or_a_list_of_numbers():
    with pytest.raises(DeviceUnavailable, match="tpu:8 doesn't emulate a gpu"):
        discover("gpu:0", SETTINGS, "tpu:8")
    with pytest.raises(DeviceUnavailable, match="one number"):
        discover("tpu:0-1", SETTINGS, "tpu:8")


def test_an_emulated_device_takes_no_reserved_core():
    with pytest.raises(DeviceUnavailable, match="no core is left"):
        discover("tpu", Settings(reserved_cores=f"0-{max(os.sched_getaffinity(0))}"), "tpu:8")

"""The environment in a result: enough for comparisons, without private data."""

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from dyno.bench.devices.environment import PACKAGES, context_id, environment, hardware_id
from dyno.models.device import Device
from tests.nvml import recorded_nvml


def device(**changes):
    facts = {"id": "cpu:0-1", "kind": "cpu", "model": "m", "host": "h", "cores": [0, 1], "memory_bytes": 8 * 2**30}
    return Device.model_validate({**facts, "isa": ["avx2"], **changes})


def test_the_environment_is_json_and_names_versions():
    found = json.loads(json.dumps(environment()))
    assert found["python"].startswith("CPython 3.")
    assert "numpy" in found["packages"]


def test_only_flags_from_the_allow_list_are_recorded(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("DYNO_REDIS_URL", "redis://:secret@host/0")
    found = environment()
    assert found["flags"]["OMP_NUM_THREADS"] == "2"
    assert "secret" not in json.dumps(found)


def test_flags_of_accelerators_are_recorded_but_not_what_the_worker_sets_for_its_device(monkeypatch):
    flags = {"LIBTPU_INIT_ARGS": "--xla_tpu_x=true", "NCCL_ALGO": "Ring", "NCCL_P2P_DISABLE": "1"}
    flags |= {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9", "XLA_FLAGS": "--xla_gpu_autotune_level=0"}
    hidden = {"NCCL_COMM_ID": "10.1.2.3:8470", "CUDA_VISIBLE_DEVICES": "GPU-1a2b", "JAX_PLATFORMS": "cuda,cpu"}
    for name, value in (flags | hidden).items():
        monkeypatch.setenv(name, value)
    found = environment()["flags"]
    assert flags.items() <= found.items()
    assert not hidden.keys() & found.keys()


@pytest.mark.parametrize("lock", ["gpu", "jax-cuda", "jax-tpu"])
def test_every_library_of_an_accelerator_in_a_lock_file_is_recorded(lock):
    text = (Path(__file__).parents[3] / "requirements" / f"{lock}.txt").read_text()
    locked = set(re.findall(r"^((?:nvidia-|jax|libtpu)[a-z0-9-]*)==", text, re.MULTILINE))
    assert locked - {"nvidia-ml-py"} <= set(PACKAGES)
    assert len(locked) > 3


def test_a_path_inside_a_flag_is_masked(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/home/someone/dump --xla_cpu_use_mkl=true")
    monkeypatch.setenv("LD_PRELOAD", "/opt/x/libtcmalloc.so:/usr/lib/y.so")
    flags = environment()["flags"]
    assert flags["XLA_FLAGS"] == "--xla_dump_to=<path> --xla_cpu_use_mkl=true"
    assert flags["LD_PRELOAD"] == "<path>:<path>"


def test_another_driver_of_a_gpu_is_another_context(monkeypatch):
    """NVML is recorded."""
    contexts = set()
    for driver, cuda in (("550.54.15", 12040), ("570.86.10", 12040), ("570.86.10", 12080)):
        answers = {"nvmlSystemGetDriverVersion": lambda: driver, "nvmlSystemGetCudaDriverVersion_v2": lambda: cuda}  # noqa: B023
        monkeypatch.setitem(sys.modules, "pynvml", recorded_nvml(**answers))
        assert environment("gpu")["driver"] == {"version": driver, "cuda": f"12.{cuda % 1000 // 10}"}
        contexts.add(context_id(environment("gpu")))
        assert "driver" not in environment("cpu")
    assert len(contexts) == 3


def test_an_unknown_driver_is_null(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert environment("gpu")["driver"] is None


def test_the_context_id_depends_on_content_and_not_on_order():
    assert context_id({"a": 1, "b": 2}) == context_id({"b": 2, "a": 1})
    assert context_id({"a": 1}) != context_id({"a": 2})
    assert context_id({}).startswith("ctx_")


def test_the_same_hardware_under_another_name_has_the_same_id():
    same = device(id="cpu:2-3", host="other", cores=[2, 3], memory_bytes=8 * 2**30 - 2**20, frameworks={"jax": "1"})
    assert hardware_id(device()) == hardware_id(same)
    assert hardware_id(device()).startswith("hw_")


@pytest.mark.parametrize(
    "change", [{"model": "n"}, {"cores": [0]}, {"memory_bytes": 2**30}, {"isa": []}, {"emulated": True}, {"units": 8}]
)
def test_other_hardware_has_another_id(change):
    assert hardware_id(device()) != hardware_id(device(**change))


def test_versions_are_looked_up_again_only_after_a_change_of_the_installed_packages(monkeypatch, tmp_path):
    asked: list[str] = []
    look_up = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: asked.append(name) or look_up(name))
    monkeypatch.syspath_prepend(tmp_path)
    assert "libtpu" not in environment()["packages"]
    assert "libtpu" not in environment()["packages"]
    assert asked.count("libtpu") == 1
    installed = tmp_path / "libtpu-1.2.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: libtpu\nVersion: 1.2\n")
    assert environment()["packages"]["libtpu"] == "1.2"
    assert asked.count("libtpu") == 2

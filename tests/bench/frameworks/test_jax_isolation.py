"""JAX starts only the worker's device: on hosts with accelerators, and on one host of several.

The accelerator is a plug-in of JAX that notes that it was started. Two processes on this host stand for two hosts.
"""

import json
import os
import socket
import subprocess
import sys

import pytest

from dyno.bench.devices.discovery import installed_frameworks
from dyno.bench.frameworks.visible_devices import isolating_variables
from tests.quick_xla import QUICK_XLA

pytestmark = pytest.mark.skipif("jax" not in installed_frameworks(), reason="jax is not installed here")

PLUGIN = """
from pathlib import Path

def initialize():
    from jax._src import xla_bridge

    def start():
        Path(__file__).with_name("started").touch()
        raise RuntimeError("its memory is in use")

    xla_bridge.register_backend_factory("loud", start, priority=500)
"""


@pytest.fixture
def accelerator(tmp_path):
    """A folder for PYTHONPATH with a plug-in that creates the file `started`."""
    folder = tmp_path / "jax_plugins/loud"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN)
    return tmp_path


def listed(path, variables):
    plain = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    python_path = os.pathsep.join([str(path), *filter(None, [plain.get("PYTHONPATH")])])
    command = [sys.executable, "-P", "-m", "dyno.bench.frameworks.visible_devices", "jax"]
    env = plain | {"PYTHONPATH": python_path} | variables
    subprocess.run(command, env=env, capture_output=True, check=False, timeout=120)


@pytest.mark.verify
@pytest.mark.parametrize("isolated", [True, pytest.param(False, marks=pytest.mark.verify)])
def test_on_a_cpu_device_jax_leaves_the_accelerators_of_its_host_alone(accelerator, isolated):
    listed(accelerator, isolating_variables("cpu") if isolated else {})
    assert (accelerator / "jax_plugins/loud/started").exists() is not isolated


ONE_OF_TWO_HOSTS = """
import json, sys
from dyno.bench.frameworks.jax import Jax
framework = Jax()
framework.load()
import jax
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
framework.start("cpu", 1)
print(json.dumps([
    jax.process_index(), len(jax.devices()), [device.process_index for device in framework._devices],
    [device["name"] for device in framework.visible_devices()] == [str(device) for device in jax.local_devices()],
]))
"""


@pytest.mark.verify
def test_on_a_slice_of_two_hosts_each_uses_its_own_devices():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = os.environ | QUICK_XLA
    hosts = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", ONE_OF_TWO_HOSTS, address, str(index)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in (0, 1)
    ]
    try:
        said = [host.communicate(timeout=120) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    for index, (printed, complaints) in enumerate(said):
        assert printed, complaints[-3000:]
        assert json.loads(printed.splitlines()[-1]) == [index, 2, [index], True]


def test_each_kind_of_device_shows_frameworks_itself_and_the_host_s_processor():
    no_gpu = {"CUDA_VISIBLE_DEVICES": "-1", "KERAS_TORCH_DEVICE": "cpu"}
    assert isolating_variables("cpu") == no_gpu | {"JAX_PLATFORMS": "cpu"}
    assert isolating_variables("tpu") == no_gpu | {"JAX_PLATFORMS": "tpu,cpu"}
    of_gpus = {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2", "JAX_PLATFORMS": "cuda,cpu", "KERAS_TORCH_DEVICE": "cuda"}
    assert isolating_variables("gpu", ["GPU-1", "GPU-2"]) == of_gpus

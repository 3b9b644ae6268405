"""What estimates go by, and what so many replicas add. Measured: peak resident memory on two cores, real data."""

from __future__ import annotations

from typing import Any

import pytest

from dyno.devices.device import Device, PeakFigure
from dyno.workloads import workload
from dyno.workloads._cost import rate_flop_per_s, sampling_s
from dyno.workloads.contract import Estimate

ASSUMED = {"cpu": 1.0, "gpu": 100.0, "tpu": 1000.0}


def _estimated(name: str, device: Device, replicas: int, **params: Any) -> Estimate:
    found = workload(name)
    return found.estimate(found.params.model_validate(params), device, replicas)


def test_a_rate_is_a_share_of_the_peak_or_assumed_for_each_core_and_each_accelerator(device: Device) -> None:
    cpu = device.model_copy(update={"cores": [0, 1, 2]})
    known = cpu.model_copy(update={"peak": {"float32": PeakFigure(value=8.0, provenance="measured here")}})
    assert rate_flop_per_s(known, "float32", 0.5, ASSUMED) == 4.0
    assert rate_flop_per_s(known, "float16", 0.5, ASSUMED) == 3.0
    assert rate_flop_per_s(cpu.model_copy(update={"kind": "gpu"}), "float32", 0.5, ASSUMED) == 100.0
    emulated = cpu.model_copy(update={"kind": "tpu", "emulated": True})
    assert rate_flop_per_s(emulated, "float32", 0.5, ASSUMED) == 3.0


@pytest.mark.parametrize(("execution_s", "seconds"), [(0.001, 3.0), (1.0, 25.0), (100.0, 160.0)])
def test_samples_take_the_default_budget(execution_s: float, seconds: float) -> None:
    assert sampling_s(execution_s) == seconds


@pytest.mark.parametrize(
    ("name", "params", "replicas", "by_framework"),
    [
        ("mnist_cnn", {"batch_size": 128}, 1, (826e6, 885e6)),
        ("mnist_cnn", {"batch_size": 128}, 8, (920e6, 997e6)),
        ("mnist_cnn", {"batch_size": 1024}, 8, (2637e6, 1195e6)),
        ("cifar10_cnn", {"data": "synthetic"}, 1, (1217e6, 1168e6)),
        ("cifar10_cnn", {"data": "synthetic"}, 8, (2506e6, 1494e6)),
        ("imdb_lstm", {}, 8, (929e6, 1056e6)),
        ("resnet50", {"batch_size": 16}, 8, (5514e6,)),
    ],
)
def test_the_memory_that_was_measured_is_within_a_factor_of_two(
    device: Device, name: str, params: dict[str, Any], replicas: int, by_framework: tuple[float, ...]
) -> None:
    found = _estimated(name, device, replicas, **params).memory_bytes
    assert all(measured / 2 < found / 2**20 * 1e6 < 2 * measured for measured in by_framework)


@pytest.mark.parametrize(
    "name", ["mnist_cnn", "cifar10_cnn", "imdb_lstm", "weather_gru", "shakespeare_lstm", "resnet50"]
)
def test_virtual_devices_hold_more_together_and_accelerators_less_each(device: Device, name: str) -> None:
    gpu = device.model_copy(update={"kind": "gpu"})
    one, eight = (_estimated(name, device, replicas) for replicas in (1, 8))
    assert eight.memory_bytes > one.memory_bytes
    assert eight.time_s > one.time_s
    one, eight = (_estimated(name, gpu, replicas) for replicas in (1, 8))
    assert eight.memory_bytes < one.memory_bytes
    assert eight.train_s < one.train_s


def test_each_replica_s_loop_takes_its_turn_on_the_cores(device: Device) -> None:
    """Measured over 8 on two cores: a step of 2.5 (JAX) to 3.8 (TensorFlow) times that of one."""
    cores = device.model_copy(update={"cores": [0, 1]})
    one, eight = (_estimated("imdb_lstm", cores, replicas).train_s for replicas in (1, 8))
    assert 2 < eight / one < 4

"""What the linter of a training says of a spec before it runs, with the numbers it goes by."""

from __future__ import annotations

from typing import Any

import pytest

from dyno.devices.device import Device
from dyno.workloads import workload

AUTO = {"data": "auto"}


def _told(name: str, params: dict[str, Any], device: Device | None = None, replicas: int = 1) -> dict[str, Any]:
    found = workload(name)
    return {
        raised.code: raised.evidence for raised in found.lint(found.params.model_validate(params), device, replicas)
    }


@pytest.fixture
def tpu(device: Device) -> Device:
    return device.model_copy(update={"kind": "tpu", "last_cache_bytes": None})


@pytest.mark.parametrize("name", ["mnist_cnn", "imdb_lstm", "weather_gru", "shakespeare_lstm", "resnet50"])
def test_each_replica_s_share_of_the_batch_is_to_be_a_multiple_of_8(name: str) -> None:
    assert "BATCH_UNEVEN" not in _told(name, {"batch_size": 96}, replicas=4)
    assert _told(name, {"batch_size": 96}, replicas=8)["BATCH_UNEVEN"] == {"batch_size_per_replica": 12, "multiple": 8}


def test_a_width_that_a_tpu_s_matrix_unit_can_not_fill_is_named_there_alone(device: Device, tpu: Device) -> None:
    asked = {"batch_size": 1024, "units": 300, "embedding": 256}
    assert _told("imdb_lstm", asked, tpu)["WIDTH_UNEVEN"] == {"widths": {"units": 300}, "multiple": 128}
    assert "WIDTH_UNEVEN" not in _told("imdb_lstm", asked, device)
    assert "WIDTH_UNEVEN" not in _told("shakespeare_lstm", {}, tpu)
    assert _told("matmul", {"n": 1000}, tpu)["WIDTH_UNEVEN"] == {"widths": {"1000": 1000}, "multiple": 128}
    assert "WIDTH_UNEVEN" not in _told("matmul", {"n": 1024}, tpu)


@pytest.mark.parametrize(("name", "small", "large"), [("mnist_cnn", 1, 64), ("imdb_lstm", 1, 1024)])
def test_a_batch_is_small_where_starting_its_step_outweighs_its_work(
    device: Device, name: str, small: int, large: int
) -> None:
    evidence = _told(name, {"batch_size": small}, device)["BATCH_SMALL"]
    assert 0 < evidence["products_s"] < evidence["step_overhead_s"] / 2
    assert "BATCH_SMALL" not in _told(name, {"batch_size": large}, device)
    assert "BATCH_SMALL" not in _told(name, {"batch_size": small})  # of no device nothing is known


def test_data_weights_and_activations_that_all_fit_in_cache_are_told(device: Device) -> None:
    roomy = device.model_copy(update={"last_cache_bytes": 64 << 20})
    few = {"train_samples": 1000, "batch_size": 16}
    told = _told("mnist_cnn", few, roomy)["CACHE_RESIDENT"]
    assert 16 * 800_000 < told["working_set_bytes"] <= told["last_cache_bytes"] == 64 << 20
    assert "CACHE_RESIDENT" not in _told("mnist_cnn", {}, roomy)
    assert "CACHE_RESIDENT" not in _told("mnist_cnn", few, device.model_copy(update={"last_cache_bytes": None}))


@pytest.mark.parametrize("name", ["mnist_cnn", "cifar10_cnn", "weather_gru", "shakespeare_lstm"])
def test_nothing_is_held_against_what_the_references_ran(name: str, device: Device) -> None:
    assert _told(name, AUTO, device.model_copy(update={"last_cache_bytes": 32 << 20})) == {}

from dataclasses import replace

import pytest

from dyno.bench.registry import registry
from dyno.models.device import Device
from dyno.models.spec import Spec
from tests.workers.conftest import in_turns, tiny
from workers.supervisor import claim_filter

DEVICE = Device(id="gpu:0", kind="gpu", model="T4", host="here", isa=["sm_75"], memory_bytes=16 * 2**30, units=2)
FITTING = [
    ({}, {}),
    ({"params": {"n": 8192}}, {"memory_bytes": 16 * 2**30}),
    ({"workload": "mnist_cnn", "params": {}, "replicas": 2}, {}),
    ({"params": {"n": 64, "dtype": "tf32"}}, {"isa": ["sm_80"]}),
    ({"workload": "weather_gru", "params": {}}, {"memory_bytes": 8 * 2**30}),
]
UNFIT = [
    ({"params": {"n": 8192}}, {"memory_bytes": 2**20}),
    ({"workload": "mnist_cnn", "params": {}, "replicas": 2}, {"units": 1}),
    ({"params": {"n": 64, "dtype": "tf32"}}, {}),
    # What TensorFlow can't do, JAX can: such a job isn't wrong, so it doesn't come here to fail.
    ({"workload": "mnist_cnn", "params": {"jit_compile": True}, "replicas": 2, "framework": "jax"}, {"units": 1}),
    ({"workload": "weather_gru", "params": {}, "framework": "jax"}, {"memory_bytes": 8 * 2**30}),  # TensorFlow: above
]


@pytest.mark.parametrize(("asked", "device"), FITTING)
def test_a_job_that_the_device_can_run_is_claimed(asked, device):
    assert claim_filter(DEVICE.model_copy(update=device), registry()).fits(tiny(**asked))


@pytest.mark.parametrize(("asked", "device"), UNFIT)
def test_memory_units_and_what_the_workload_refuses_are_looked_at(asked, device):
    assert not claim_filter(DEVICE.model_copy(update=device), registry()).fits(tiny(**asked))


def test_a_job_of_two_specs_is_taken_by_a_device_that_both_fit():
    device = DEVICE.model_copy(update={"frameworks": {"tensorflow": "2", "jax": "0"}})
    assert claim_filter(device, registry()).fits(in_turns(tiny(), tiny(framework="jax")))
    assert not claim_filter(device, registry()).fits(in_turns(tiny(), tiny(framework="torch")))
    assert not claim_filter(device, registry()).fits(in_turns(tiny(), tiny(params={"n": 64, "dtype": "tf32"})))


@pytest.mark.parametrize("wrong", [{"params": {"n": -1}}, {"workload": "nonesuch"}])
def test_an_invalid_job_is_claimed_so_that_it_fails(wrong):
    assert claim_filter(DEVICE, registry()).fits(Spec.model_validate({"workload": "matmul"} | wrong))


def test_a_workload_whose_fit_check_fails_does_not_block_other_jobs(caplog):
    def broken(*_):
        raise ZeroDivisionError

    workloads = {"matmul": replace(registry()["matmul"], estimate=broken)}
    assert claim_filter(DEVICE, workloads).fits(tiny())
    assert "fit-unknown" in caplog.text

"""Jobs for two devices of one class, one of them smaller, over HTTP and the real store."""

import pytest

from dyno.bench.registry import registry
from dyno.store import fleet
from dyno.store.leases import Leases
from tests.service.workers import publish as published
from tests.service.workers import take as worker_takes
from workers.supervisor import claim_filter

CARD = {"kind": "gpu", "model": "H100", "isa": ["sm_90"]}
TINY = {"workload": "matmul", "device": "gpu", "params": {"n": 64}}
BIG = [
    TINY | {"params": {"n": 16384}},  # 4 GiB
    {"workload": "mnist_cnn", "device": "gpu", "replicas": 2},
    TINY | {"params": {"n": 64, "dtype": "tf32"}},
]


@pytest.fixture
def small(device):
    return device(id="gpu:0", memory_bytes=2**30, **CARD | {"isa": ["sm_75"]})


@pytest.fixture
def large(device):
    return device(id="gpu:1", memory_bytes=80 * 2**30, units=2, **CARD)


@pytest.fixture
def offer(client, settings):
    offered = []

    def publish(*devices):
        offered.extend(published(client, settings, one) for one in devices)

    yield publish
    for record in offered:
        fleet.withdraw(client, settings, record)


@pytest.fixture
def take(client, settings):
    """Claim as the device's worker does, and finish at once; returns the job's id."""
    leases = Leases(client, settings)

    def claimed(device):
        claim = worker_takes(leases, device, claim_filter(device, registry()))
        if claim is None:
            return None
        assert leases.finish(claim, "stop")
        return claim.job_id

    return claimed


def submit(http, body):
    return http.post("/v1/jobs", json=body).raise_for_status().json()


@pytest.mark.parametrize("body", BIG)
def test_a_job_waits_for_a_larger_device_while_the_smaller_one_takes_later_jobs(http, offer, take, small, large, body):
    offer(small, large)
    big, tiny = submit(http, body), submit(http, TINY)

    assert [take(small), take(small)] == [tiny["id"], None]

    waiting = http.get(big["urls"]["self"]).json()
    assert (waiting["status"], waiting["version"]) == ("queued", big["version"])
    assert waiting["queue"] | {"eta_s": None} == {
        "name": "gpu",
        "position": 0,
        "eta_s": None,
        "passed_over": True,
        "held_by": None,
    }
    assert take(large) == big["id"]


@pytest.mark.parametrize("body", BIG)
def test_a_job_queued_without_devices_is_not_taken_by_one_that_does_not_fit(http, take, small, large, body):
    early = submit(http, body | {"queue_if_absent": True})
    assert take(small) is None
    assert take(large) == early["id"]

"""A worker that a job doesn't fit forwards the wake-up to a worker that it fits."""

from datetime import UTC, datetime

import pytest

from dyno.errors import StoreUnavailable
from dyno.models.inventory import WorkerRecord
from dyno.models.job import Status
from dyno.store import fleet
from dyno.store.leases import Leases
from dyno.store.placement import DYNO_VERSION, profile, queues_served
from tests.workers.conftest import tiny


@pytest.fixture
def larger(client, settings, here):
    """An idle device on another host: this host's CPU with twice the memory."""
    device = here.model_copy(update={"host": "elsewhere", "memory_bytes": 2 * here.memory_bytes})
    known = {
        "id": "w",
        "host": device.host,
        "pid": 1,
        "device": device.full_id,
        "state": "idle",
        "version": DYNO_VERSION,
    }
    fleet.publish(client, settings, device, WorkerRecord.model_validate(known | {"started_at": datetime.now(UTC)}))
    return device


@pytest.fixture
def unfit(store, here, larger):
    """A job for the larger device."""
    answers = {profile(here): False, profile(larger): True}
    return str(store._do(lambda jobs: jobs.submit(tiny(), fits=answers)).job.id)


def test_a_worker_that_a_job_does_not_fit_leaves_it_and_wakes_the_one_that_has_not_looked(
    quick, store, unfit, larger, supervisor_of, misbehaving
):
    woken = []
    supervisor = supervisor_of(quick, misbehaving("never started"), wake=woken.append)
    assert supervisor.serve() == 0
    assert woken == [queues_served(larger)[0]]
    assert (store.job(unfit).status, store.job(unfit).attempt) == (Status.QUEUED, 0)


def test_a_store_that_goes_away_meanwhile_does_no_harm(quick, unfit, supervisor_of, misbehaving, monkeypatch):
    def away(self, device):
        raise StoreUnavailable("away")

    monkeypatch.setattr(Leases, "queues_to_notify", away)
    assert supervisor_of(quick, misbehaving("never started")).serve() == 0


def test_an_unreachable_store_is_not_queried_again(quick, supervisor_of, misbehaving, monkeypatch):
    def away(*_):
        raise StoreUnavailable("away")

    def asked_again(*_):
        pytest.fail("asked whom to wake")

    monkeypatch.setattr(Leases, "claim", away)
    monkeypatch.setattr(Leases, "queues_to_notify", asked_again)
    assert supervisor_of(quick, misbehaving("never started")).serve() == 0

"""Endings that a worker can't write to Redis wait on the disk, for this worker or a later one."""

from __future__ import annotations

import stat
import time
from concurrent.futures import Future

import pytest
import redis
from pydantic_core import to_json

from dyno.bench.runner.monitor import StopSwitch
from dyno.models.job import Failure, FailureClass, Status, WorkerRef
from dyno.store.leases import Leases
from dyno.store.redis import Keys, sync_client
from tests.waiting import eventually
from tests.workers.conftest import tiny
from tests.workers.endings import endings_in, given_up, succeeded
from workers.outbox import Outbox, deliver_ending, deliver_waiting
from workers.outcome import Failed, HandedBack, Stopped

BROKEN = Failed(Failure(failure_class=FailureClass.BENCHMARK, reason="runner_crashed", message="it broke"))


@pytest.fixture
def leases(client, quick):
    return Leases(client, quick)


@pytest.fixture
def spool(quick):
    return Outbox(quick.spool_dir, quick.namespace)


@pytest.fixture
def claimed(store, leases):
    """A job claimed by a worker of the device."""

    def one(device="cpu:0-0@alpha"):
        store.submit(tiny())
        claim = leases.claim(device, ["cpu"], WorkerRef(id="w", device="cpu:0-0", host="alpha"))
        assert claim is not None
        return claim

    return one


@pytest.fixture
def nowhere(quick):
    """The leases of an unreachable store."""
    settings = quick.model_copy(update={"redis_url": f"unix://{quick.run_dir}/none.sock"})
    return Leases(sync_client(settings), settings)


def test_an_ending_that_is_written_at_once_makes_no_file(leases, spool, claimed, quick):
    claim = claimed()
    assert deliver_ending(succeeded(claim), claim, leases, spool, StopSwitch(), time.monotonic)
    assert not quick.spool_dir.exists()


@pytest.mark.parametrize(
    ("ending", "status", "attempt"),
    [
        (BROKEN, Status.FAILED, 1),
        (Stopped(), Status.CANCELED, 1),
        (HandedBack("worker_shutdown"), Status.QUEUED, 0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_later_worker_writes_the_ending_that_a_worker_could_not(
    ending, status, attempt, claimed, nowhere, leases, quick, store
):
    claim = claimed()
    assert not given_up(ending, claim, nowhere, Outbox(quick.spool_dir, quick.namespace))
    assert store.job(claim.job_id).status is Status.RUNNING
    deliver_waiting(Outbox(quick.spool_dir, quick.namespace), leases)
    job = store.job(claim.job_id)
    assert (job.status, job.attempt) == (status, attempt)
    assert list(quick.spool_dir.iterdir()) == []


def test_a_result_comes_out_of_the_spool_as_it_went_in_and_only_its_owner_may_read_it(
    claimed, nowhere, spool, leases, quick, store
):
    claim = claimed()
    ending = succeeded(claim)
    given_up(ending, claim, nowhere, spool)
    [path] = endings_in(quick.spool_dir)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(quick.spool_dir.stat().st_mode) == 0o700
    [spooled] = spool.waiting()
    assert to_json(spooled.ending, inf_nan_mode="constants") == to_json(ending, inf_nan_mode="constants")
    assert (spooled.claim.job_id, spooled.claim.token, spooled.claim.spec) == (claim.job_id, claim.token, claim.spec)
    deliver_waiting(spool, leases)
    assert store.job(claim.job_id).status is Status.SUCCEEDED
    assert store.result(claim.job_id).job == claim.job_id
    assert [peer.job for peer in leases.peers("series")] == [claim.job_id]


def test_a_spooled_ending_whose_job_another_attempt_owns_is_dropped(
    claimed, nowhere, spool, leases, quick, store, caplog
):
    claim = claimed()
    given_up(succeeded(claim), claim, nowhere, spool)
    leases.requeue(claim, reason="worker_lost", counts_attempt=True)
    deliver_waiting(spool, leases)
    assert store.job(claim.job_id).status is Status.QUEUED
    assert list(quick.spool_dir.iterdir()) == []
    assert "counted=false" in caplog.text


def test_endings_of_another_namespace_or_store_are_left_alone(claimed, nowhere, spool, leases, quick, client):
    elsewhere, unknown, refused = (claimed(f"cpu:{number}-{number}@alpha") for number in range(3))
    given_up(succeeded(elsewhere), elsewhere, nowhere, Outbox(quick.spool_dir, "another"))
    for claim in (unknown, refused):
        given_up(succeeded(claim), claim, nowhere, spool)
    client.delete(Keys(quick.namespace).job(unknown.job_id))
    client.set(Keys(quick.namespace).job(refused.job_id), "no record at all")
    left = endings_in(quick.spool_dir)
    deliver_waiting(spool, leases)
    assert endings_in(quick.spool_dir) == left
    assert list(spool.waiting()) == [], "once is enough for one process"


def test_an_ending_whose_record_is_damaged_is_kept_at_the_first_try(claimed, spool, leases, quick, client):
    for number, ending_of in enumerate((succeeded, lambda _: HandedBack("worker_shutdown"))):
        claim = claimed(f"cpu:{number}-{number}@alpha")
        client.set(Keys(quick.namespace).job(claim.job_id), "no record at all")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            deliver_ending(ending_of(claim), claim, leases, spool, StopSwitch(), time.monotonic)
        assert len(endings_in(quick.spool_dir)) == number + 1


def test_a_supervisor_catches_up_before_it_claims(claimed, nowhere, spool, store, quick, here, supervisor_of, forking):
    """Otherwise the lease of the spooled attempt would keep the device from claiming a job."""
    claim = claimed(here.full_id)
    given_up(succeeded(claim), claim, nowhere, spool)
    following = store.submit(tiny())
    assert supervisor_of(quick, forking).serve() == 1
    assert {store.job(job_id).status for job_id in (claim.job_id, following)} == {Status.SUCCEEDED}


def test_waiting_endings_are_not_written_during_a_benchmark(
    claimed, nowhere, spool, store, quick, supervisor_of, forking, background
):
    supervisor = supervisor_of(quick, forking)
    spooled = claimed()
    running = store.submit(tiny(measure={"min_samples": 200, "min_s": 120, "max_s": 600}))
    serving: Future[int] = background.submit(supervisor.serve)
    eventually(lambda: store.job(running).status is Status.RUNNING)
    given_up(succeeded(spooled), spooled, nowhere, spool)
    supervisor.catch_up()
    assert store.job(spooled.job_id).status is Status.RUNNING
    supervisor.stop(0)
    serving.result(60)
    supervisor.catch_up()
    assert store.job(spooled.job_id).status is Status.SUCCEEDED

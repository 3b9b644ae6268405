"""Outcomes that a worker can't write to Redis wait on the disk, for this worker or a later one."""

import stat
import time

import pytest
import redis
from pydantic_core import to_json

from dyno.bench.runner.monitor import StopSwitch
from dyno.models.job import Failure, FailureClass, Status, WorkerRef
from dyno.store.leases import Leases
from dyno.store.redis import Keys, sync_client
from tests.waiting import eventually
from tests.workers.conftest import tiny
from tests.workers.outcomes import given_up, outcome_files, succeeded
from workers.outbox import Outbox, deliver_outcome, deliver_waiting
from workers.outcome import Failed, HandedBack, Stopped

BROKEN = Failed(Failure(failure_class=FailureClass.BENCHMARK, reason="runner_crashed", message="it broke"))


@pytest.fixture
def leases(client, quick):
    return Leases(client, quick)


@pytest.fixture
def outbox(quick):
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


def test_an_outcome_that_is_written_at_once_makes_no_file(leases, outbox, claimed, quick):
    claim = claimed()
    assert deliver_outcome(succeeded(claim), claim, leases, outbox, StopSwitch(), time.monotonic)
    assert not quick.spool_dir.exists()


@pytest.mark.parametrize(
    ("outcome", "status", "attempt"),
    [
        (BROKEN, Status.FAILED, 1),
        (Stopped(), Status.CANCELED, 1),
        (HandedBack("worker_shutdown"), Status.QUEUED, 0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_later_worker_writes_the_outcome_that_a_worker_could_not(
    outcome, status, attempt, claimed, nowhere, leases, quick, store
):
    claim = claimed()
    assert not given_up(outcome, claim, nowhere, Outbox(quick.spool_dir, quick.namespace))
    assert store.job(claim.job_id).status is Status.RUNNING
    deliver_waiting(Outbox(quick.spool_dir, quick.namespace), leases)
    job = store.job(claim.job_id)
    assert (job.status, job.attempt) == (status, attempt)
    assert list(quick.spool_dir.iterdir()) == []


def test_a_result_comes_out_of_the_outbox_as_it_went_in_and_only_its_owner_may_read_it(
    claimed, nowhere, outbox, leases, quick, store
):
    claim = claimed()
    outcome = succeeded(claim)
    given_up(outcome, claim, nowhere, outbox)
    [path] = outcome_files(quick.spool_dir)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(quick.spool_dir.stat().st_mode) == 0o700
    [entry] = outbox.waiting()
    assert to_json(entry.outcome, inf_nan_mode="constants") == to_json(outcome, inf_nan_mode="constants")
    assert (entry.claim.job_id, entry.claim.token, entry.claim.spec) == (claim.job_id, claim.token, claim.spec)
    deliver_waiting(outbox, leases)
    assert store.job(claim.job_id).status is Status.SUCCEEDED
    assert store.result(claim.job_id).job == claim.job_id
    assert [peer.job for peer in leases.peers("series")] == [claim.job_id]


def test_a_waiting_outcome_whose_job_another_attempt_owns_is_dropped(
    claimed, nowhere, outbox, leases, quick, store, caplog
):
    claim = claimed()
    given_up(succeeded(claim), claim, nowhere, outbox)
    leases.requeue(claim, reason="worker_lost", counts_attempt=True)
    deliver_waiting(outbox, leases)
    assert store.job(claim.job_id).status is Status.QUEUED
    assert list(quick.spool_dir.iterdir()) == []
    assert "counted=false" in caplog.text


def test_outcomes_of_another_namespace_or_store_are_left_alone(claimed, nowhere, outbox, leases, quick, client):
    elsewhere, unknown, refused = (claimed(f"cpu:{number}-{number}@alpha") for number in range(3))
    given_up(succeeded(elsewhere), elsewhere, nowhere, Outbox(quick.spool_dir, "another"))
    for claim in (unknown, refused):
        given_up(succeeded(claim), claim, nowhere, outbox)
    client.delete(Keys(quick.namespace).job(unknown.job_id))
    client.set(Keys(quick.namespace).job(refused.job_id), "no record at all")
    left = outcome_files(quick.spool_dir)
    deliver_waiting(outbox, leases)
    assert outcome_files(quick.spool_dir) == left
    assert list(outbox.waiting()) == [], "once is enough for one process"


def test_an_outcome_whose_record_is_damaged_is_kept_at_the_first_try(claimed, outbox, leases, quick, client):
    for number, outcome_of in enumerate((succeeded, lambda _: HandedBack("worker_shutdown"))):
        claim = claimed(f"cpu:{number}-{number}@alpha")
        client.set(Keys(quick.namespace).job(claim.job_id), "no record at all")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            deliver_outcome(outcome_of(claim), claim, leases, outbox, StopSwitch(), time.monotonic)
        assert len(outcome_files(quick.spool_dir)) == number + 1


def test_a_supervisor_catches_up_before_it_claims(claimed, nowhere, outbox, store, quick, here, supervisor_of, forking):
    """Otherwise the lease of the undelivered attempt would keep the device from claiming a job."""
    claim = claimed(here.full_id)
    given_up(succeeded(claim), claim, nowhere, outbox)
    following = store.submit(tiny())
    assert supervisor_of(quick, forking).serve() == 1
    assert {store.job(job_id).status for job_id in (claim.job_id, following)} == {Status.SUCCEEDED}


def test_waiting_outcomes_are_not_written_during_a_benchmark(
    claimed, nowhere, outbox, store, quick, supervisor_of, forking, background
):
    supervisor = supervisor_of(quick, forking)
    undelivered = claimed()
    running = store.submit(tiny(measure={"min_samples": 200, "min_s": 120, "max_s": 600}))
    serving = background.submit(supervisor.serve)
    eventually(lambda: store.job(running).status is Status.RUNNING)
    given_up(succeeded(undelivered), undelivered, nowhere, outbox)
    supervisor.catch_up()
    assert store.job(undelivered.job_id).status is Status.RUNNING
    supervisor.stop(0)
    serving.result(60)
    supervisor.catch_up()
    assert store.job(undelivered.job_id).status is Status.SUCCEEDED

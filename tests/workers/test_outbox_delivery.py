"""A worker retries the write of its attempt's outcome until Redis has accepted it."""

import resource
import time
from contextlib import contextmanager

import pytest

from dyno.bench.runner.monitor import StopSwitch
from dyno.models.job import Status, WorkerRef
from dyno.store.embedded import EmbeddedServer
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from tests.servers import kill_once_written
from tests.waiting import eventually
from tests.workers.conftest import Store, tiny
from tests.workers.outcomes import log_of, outcome_files, succeeded
from workers.heartbeat import Heartbeat
from workers.outbox import Outbox, deliver_outcome


@pytest.fixture
def outbox(quick):
    return Outbox(quick.spool_dir, quick.namespace)


@pytest.fixture
def switch(background):
    """The stop switch of background deliveries; it is set before the test waits for them."""
    switch = StopSwitch()
    yield switch
    switch.stop(0)


def claimed(settings):
    """A claimed job on this server."""
    store, leases = Store(settings), Leases(sync_client(settings), settings)
    store.submit(tiny())
    claim = leases.claim("cpu:0-0@alpha", ["cpu"], WorkerRef(id="w", device="cpu:0-0", host="alpha"))
    assert claim is not None
    return store, leases, claim


def test_an_outcome_is_on_disk_while_its_worker_retries_and_deleted_once_written(quick, outbox, background, switch):
    with EmbeddedServer() as server:
        store, leases, claim = claimed(quick.model_copy(update={"redis_url": server.url}))
        kill_once_written(server)
        telling = background.submit(deliver_outcome, succeeded(claim), claim, leases, outbox, switch, time.monotonic)
        eventually(lambda: outcome_files(quick.spool_dir) or telling.done())
        assert not telling.done()
        server.revive()
        assert telling.result(60) is True
        assert store.job(claim.job_id).status is Status.SUCCEEDED
    assert list(quick.spool_dir.iterdir()) == []


@contextmanager
def files_of_at_most(size):
    """Limits the size of this process's files, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_room_on_the_disk_the_outcome_is_written_from_memory(quick, outbox, background, switch, caplog):
    with EmbeddedServer() as server:
        store, leases, claim = claimed(quick.model_copy(update={"redis_url": server.url}))
        kill_once_written(server)
        with files_of_at_most(100):
            telling = background.submit(
                deliver_outcome, succeeded(claim), claim, leases, outbox, switch, time.monotonic
            )
            eventually(lambda: "not-spooled" in caplog.text)
            assert list(quick.spool_dir.iterdir()) == []
        server.revive()
        assert telling.result(60) is True
        assert store.job(claim.job_id).status is Status.SUCCEEDED


def test_the_last_output_also_waits_for_redis(quick, outbox, background, switch):
    with EmbeddedServer() as server:
        settings = quick.model_copy(update={"redis_url": server.url})
        _, leases, claim = claimed(settings)
        heartbeat = Heartbeat(claim, leases, 60, time.monotonic, StopSwitch())
        heartbeat.log.add(b"the last words\n")
        kill_once_written(server)
        telling = background.submit(
            deliver_outcome, succeeded(claim), claim, leases, outbox, switch, time.monotonic, heartbeat.send_log
        )
        eventually(lambda: outcome_files(quick.spool_dir) or telling.done())
        server.revive()
        assert telling.result(60) is True
        assert log_of(settings, claim.job_id) == "the last words\n"

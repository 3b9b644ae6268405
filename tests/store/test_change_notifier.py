import asyncio

import pytest

from dyno.errors import StoreUnavailable
from dyno.models.job import Progress
from dyno.store.embedded import EmbeddedServer
from dyno.store.events import ChangeNotifier
from dyno.store.jobs import Jobs
from dyno.store.redis import async_client, blocking_client

pytestmark = pytest.mark.anyio

LONG_S = 20.0  # a timeout, far longer than any of these tests needs


@pytest.fixture
async def watch(settings):
    async with blocking_client(settings) as client:
        watch = ChangeNotifier(client, settings)
        await watch.start()
        yield watch
        await watch.stop()


async def waiting(watch, job_id, version):
    """A task that has read the record and now waits for a change."""
    task = asyncio.create_task(watch.changed(job_id, version, LONG_S))
    while not any(not waiter.wake_up.is_set() for waiter in watch._waiters.get(job_id, ())):
        await asyncio.sleep(0)
    return task


async def test_a_change_wakes_all_waiters_of_its_job_and_no_others(watch, jobs, a_spec):
    job = (await jobs.submit(a_spec())).job
    other = (await jobs.submit(a_spec())).job
    waiters = [await waiting(watch, job.id, job.version) for _ in range(20)]
    bystander = await waiting(watch, other.id, other.version)
    await jobs.cancel(job.id)
    assert await asyncio.wait_for(asyncio.gather(*waiters), LONG_S / 2) == [True] * 20
    assert not bystander.done()
    bystander.cancel()


async def test_progress_counts_as_a_change(watch, jobs, a_spec, claim, leases):
    await jobs.submit(a_spec())
    attempt = claim()
    waiter = await waiting(watch, attempt.job_id, (await jobs.get(attempt.job_id)).version)
    leases.heartbeat(attempt, Progress(phase="sampling", run=1, runs=5))
    assert await asyncio.wait_for(waiter, LONG_S / 2)


async def test_a_change_before_the_wait_is_not_missed(watch, jobs, a_spec):
    job = (await jobs.submit(a_spec())).job
    await jobs.cancel(job.id)
    assert await asyncio.wait_for(watch.changed(job.id, job.version, LONG_S), LONG_S / 2)


async def test_without_a_change_the_wait_times_out_and_leaves_no_waiter(watch, jobs, a_spec):
    job = (await jobs.submit(a_spec())).job
    assert not await watch.changed(job.id, job.version, 0.05)
    assert not watch._waiters


async def test_listeners_are_notified_of_changes_of_one_job_or_of_any(watch, jobs, a_spec):
    job = (await jobs.submit(a_spec())).job
    with watch.listening(job.id) as of_one, watch.listening(None) as of_all:
        for told in (of_one, of_all):
            told.clear()
        await jobs.cancel(job.id)
        await asyncio.wait_for(asyncio.gather(of_one.wait(), of_all.wait()), LONG_S / 2)
    assert not watch._listeners


async def test_listeners_to_one_job_are_not_notified_of_another(async_redis, settings):
    deaf = ChangeNotifier(async_redis, settings)  # never started, so that nothing else tells
    with deaf.listening("job_a") as of_a, deaf.listening("job_b") as of_b, deaf.listening(None) as of_all:
        deaf._wake("job_a", 1)
        assert (of_a.is_set(), of_b.is_set(), of_all.is_set()) == (True, False, True)
        deaf._wake_all()
        assert of_b.is_set()


async def test_a_job_that_is_gone_has_changed(watch):
    assert await watch.changed("job_gone", 1, LONG_S)


async def test_a_reader_that_is_unblocked_with_an_error_reads_on(watch, jobs, a_spec, client, monkeypatch):
    monkeypatch.setattr("dyno.store.events._RECONNECT_S", 0.01)
    job = (await jobs.submit(a_spec())).job
    waiter = await waiting(watch, job.id, job.version)
    await _unblock_reader(client)
    await jobs.cancel(job.id)
    assert await asyncio.wait_for(waiter, LONG_S / 2)


async def test_an_unreadable_event_is_skipped(watch, jobs, a_spec, client, keys, caplog, monkeypatch):
    monkeypatch.setattr("dyno.store.events._RECONNECT_S", 0.01)
    job = (await jobs.submit(a_spec())).job
    waiter = await waiting(watch, job.id, job.version)
    async with asyncio.timeout(LONG_S):
        while "reading events failed" not in caplog.text:
            client.xadd(keys.events, {"nothing": "known"})
            await asyncio.sleep(0.01)
    await jobs.cancel(job.id)
    assert await asyncio.wait_for(waiter, LONG_S / 2)


async def _unblock_reader(client):
    """Make the blocked read fail, as REPLICAOF does."""
    async with asyncio.timeout(LONG_S):
        while not any(
            client.client_unblock(int(c["id"]), error=True) for c in client.client_list() if "b" in c["flags"]
        ):
            await asyncio.sleep(0.01)


async def test_after_a_restart_of_the_server_changes_are_notified_again(
    settings, a_spec, tmp_path, short_folder, monkeypatch
):
    monkeypatch.setattr("dyno.store.events._RECONNECT_S", 0.01)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(_made(short_folder / "socket")))
    server = EmbeddedServer(tmp_path / "data")
    server.start()
    there = settings.model_copy(update={"redis_url": server.url})
    async with blocking_client(there) as blocking, async_client(there) as client:
        watch, jobs = ChangeNotifier(blocking, there), Jobs(client, there)
        await watch.start()
        job = (await jobs.submit(a_spec())).job
        waiter = await waiting(watch, job.id, job.version)
        server.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(waiter, LONG_S / 2)
        server.start()
        waiter = await waiting(watch, job.id, job.version)
        await jobs.cancel(job.id)
        assert await asyncio.wait_for(waiter, LONG_S / 2)
        await watch.stop()
    server.close()


def _made(path):
    path.mkdir(mode=0o700)
    return path


async def test_events_are_read_only_while_someone_waits(watch, jobs, a_spec, client):
    job = (await jobs.submit(a_spec())).job
    waiter = await waiting(watch, job.id, job.version)
    await jobs.cancel(job.id)
    assert await asyncio.wait_for(waiter, LONG_S / 2)
    await jobs.submit(a_spec())  # ends the last read
    async with asyncio.timeout(LONG_S):
        while watch._wanted.is_set():
            await asyncio.sleep(0.01)
    before = client.info("commandstats")["cmdstat_xread"]["calls"]
    for _ in range(20):
        await jobs.submit(a_spec())
    assert client.info("commandstats")["cmdstat_xread"]["calls"] == before


async def test_it_can_be_stopped_at_any_time(settings):
    """Even if Redis' reply arrives at the same moment, in which Python 3.11 loses the cancellation."""
    async with blocking_client(settings) as client:
        for number in range(100):
            watch = ChangeNotifier(client, settings)
            await watch.start()
            await asyncio.sleep(number * 1e-4)
            async with asyncio.timeout(LONG_S):
                await watch.stop()

"""The stored output of runners: in order, each piece once, and only the end of a long log."""

from collections.abc import Awaitable, Callable

import pytest

from dyno.errors import UnknownJob
from dyno.models.job import new_job_id
from dyno.store import jobs as module
from dyno.store.jobs import LogPart, read_log
from dyno.store.leases import LogPiece

pytestmark = pytest.mark.anyio

KIB = 1024
Read = Callable[..., Awaitable[LogPart]]


@pytest.fixture
def read(async_redis, settings):
    return lambda job_id, start=0: read_log(async_redis, settings, job_id, start)


async def test_pieces_come_in_order_and_a_reader_can_resume(jobs, a_spec, claim, leases, read):
    job = (await jobs.submit(a_spec())).job
    assert await read(job.id) == LogPart("", 0, done=False)
    attempt = claim()
    for number, text in enumerate(("one\n", "two\n", "thrée\n")):
        leases.heartbeat(attempt, None, LogPiece(number, text))
    assert await read(job.id) == LogPart("one\ntwo\nthrée\n", 3, done=False)
    assert await read(job.id, 2) == LogPart("thrée\n", 3, done=False)
    leases.finish(attempt, "fail")
    assert await read(job.id, 3) == LogPart("", 3, done=True)


async def test_a_piece_that_is_sent_again_is_there_once_and_makes_no_other_version(jobs, a_spec, claim, leases, read):
    await jobs.submit(a_spec())
    attempt = claim()
    versions = []
    for _ in range(2):
        leases.heartbeat(attempt, None, LogPiece(0, "once\n"))
        versions.append((await jobs.get(attempt.job_id)).version)
    assert (await read(attempt.job_id)).text == "once\n"
    assert versions[0] == versions[1] == 3  # submitted, claimed, and this


async def test_the_next_attempt_goes_on_and_the_one_that_lost_the_job_adds_nothing(jobs, a_spec, claim, leases, read):
    await jobs.submit(a_spec())
    first = claim()
    leases.heartbeat(first, None, LogPiece(0, "first\n"))
    leases.requeue(first, reason="shutdown", counts_attempt=False)
    second = claim()
    leases.heartbeat(second, None, LogPiece(0, "second\n"))
    assert leases.heartbeat(first, None, LogPiece(1, "late\n")).superseded
    assert (await read(first.job_id)).text == "first\nsecond\n"


async def test_only_the_end_of_a_long_log_is_kept_with_a_notice(jobs, a_spec, claim, leases, client, keys, read):
    await jobs.submit(a_spec())
    attempt = claim()
    for number in range(20):
        leases.heartbeat(attempt, None, LogPiece(number, f"{number:03}" + "x" * (16 * KIB - 3)))
    part = await read(attempt.job_id)
    notice, kept = part.text.split("\n")
    assert "was dropped" in notice
    assert [kept[at : at + 3] for at in range(0, len(kept), 16 * KIB)] == [f"{number:03}" for number in range(4, 20)]
    assert client.memory_usage(keys.log(attempt.job_id)) < 2 * 256 * KIB
    assert (await read(attempt.job_id, 10)).text.startswith("010")


async def test_an_unknown_job_has_no_log(read):
    with pytest.raises(UnknownJob):
        await read(new_job_id())


async def test_of_a_log_in_many_tiny_pieces_a_bounded_number_is_asked_for_at_once(
    jobs, a_spec, claim, leases, read, async_redis, monkeypatch
):
    await jobs.submit(a_spec())
    attempt = claim()
    for number in range(5):
        leases.heartbeat(attempt, None, LogPiece(number, f"{number}"))
    execute, asked = async_redis.execute_command, list[int]()

    async def counted(*words, **options):
        asked.append(len(words) - 2)
        return await execute(*words, **options)

    monkeypatch.setattr(async_redis, "execute_command", counted)
    monkeypatch.setattr(module, "_PIECES_AT_ONCE", 2)
    assert (await read(attempt.job_id)).text == "01234"
    assert asked == [2, 2, 1]

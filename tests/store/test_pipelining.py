"""The connection that all callers of an event loop share."""

import asyncio
import time

import pytest
import redis

from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import async_client, sync_client

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shared(settings):
    async with async_client(settings) as client:
        yield client


async def test_commands_sent_together_take_one_round_trip_and_each_gets_its_reply(shared):
    replies = [shared.send("ECHO", str(number)) for number in range(200)]
    assert [await reply for reply in replies] == [str(number) for number in range(200)]
    assert shared.shared.round_trips == 1


async def test_an_error_is_its_command_s_alone(shared, namespace):
    set_, wrong, got = (
        shared.send("SET", namespace, "1"),
        shared.send("LPUSH", namespace, "x"),
        shared.send("GET", namespace),
    )
    assert (await set_, await got) == ("OK", "1")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await wrong
    assert await shared.delete(namespace) == 1


async def test_a_caller_that_leaves_takes_no_other_s_reply(shared):
    left, stayed = shared.send("ECHO", "left"), shared.send("ECHO", "stayed")
    left.cancel()
    assert await stayed == "stayed"
    assert await shared.send("ECHO", "later") == "later"


async def test_commands_of_a_lost_connection_are_sent_again(shared, client):
    await shared.ping()
    for _ in range(5):
        client.client_kill_filter(_type="normal", skipme=True)
        replies = [shared.send("ECHO", str(number)) for number in range(20)]
        assert [await reply for reply in replies] == [str(number) for number in range(20)]


@pytest.fixture
def own(settings):
    """A server of the test's own, which it may pause."""
    with EmbeddedServer() as server:
        yield settings.model_copy(update={"redis_url": server.url})


def _wait_for(client, is_seen):
    """Until the server sees such a connection. The event loop doesn't run meanwhile."""
    end_s = time.monotonic() + 10
    while not any(is_seen(each) for each in client.client_list()):
        assert time.monotonic() < end_s


async def test_a_command_is_sent_before_the_last_one_has_its_reply_and_again_on_a_new_connection(own):
    async with async_client(own) as shared:
        with sync_client(own) as client:
            first = shared.send("BLPOP", "list", 0)
            while not any("b" in each["flags"] for each in client.client_list()):
                await asyncio.sleep(0)
            second = shared.send("ECHO", "second")
            await asyncio.sleep(0)  # the end of this turn of the loop
            _wait_for(client, lambda each: "b" in each["flags"] and int(each["qbuf"]) > 0)
            client.client_kill_filter(_type="normal", skipme=True)
            client.rpush("list", "value")
            assert await first == ["list", "value"]
            assert await second == "second"


async def test_redis_gets_the_first_of_many_commands_while_others_are_made(own):
    async with async_client(own) as shared:
        await shared.ping()
        with sync_client(own) as client:
            waits, *_ = [shared.send("BLPOP", "list", 0) for _ in range(4)]
            _wait_for(client, lambda each: "b" in each["flags"])
            client.rpush("list", *"1234")
            assert await waits == ["list", "1"]


async def test_a_silent_server_fails_all_waiting_commands_after_one_timeout(own, monkeypatch):
    monkeypatch.setattr("dyno.store.redis.ANSWER_TIMEOUT_S", 2.0)
    async with async_client(own) as client:
        await client.client_pause(60_000)
        replies = [client.send("SET", "x", "1") for _ in range(3)]
        done, _ = await asyncio.wait(replies, timeout=30)
        assert len(done) == 3
        assert all(isinstance(reply.exception(), redis.TimeoutError) for reply in replies)


async def test_a_closed_client_fails_what_waits(own):
    async with async_client(own) as client:
        await client.client_pause(60_000)
        reply = client.send("SET", "x", "1")
    with pytest.raises(redis.ConnectionError, match="closed"):
        await reply

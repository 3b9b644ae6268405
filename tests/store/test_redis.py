import inspect
from asyncio.selector_events import _SelectorSocketTransport

import pytest
import redis

from dyno.errors import StoreUnavailable, StoreUnfit
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import async_client, check_server, check_server_async, judge_server, store_errors, sync_client

# From Python 3.12 until the fix, asyncio's own loop writes to a lost connection whose descriptor the next one reuses.
# The API uses uvloop.
WRITES_TO_LOST = "writelines" in vars(_SelectorSocketTransport) and "_conn_lost" not in inspect.getsource(
    _SelectorSocketTransport.writelines
)
FIT = {"maxmemory_policy": "noeviction", "redis_version": "7.0.15", "redis_mode": "standalone", "aof_enabled": 1}


def test_the_embedded_server_is_fit_and_without_complaints(client, settings):
    assert check_server(client, settings) == []


@pytest.mark.anyio
async def test_the_asynchronous_client_gives_the_same_judgement(settings):
    async with async_client(settings) as client:
        assert await check_server_async(client, settings) == []


def test_an_evicting_server_is_unfit_and_one_without_persistence_is_complained_about(settings):
    with EmbeddedServer() as server, sync_client(settings.model_copy(update={"redis_url": server.url})) as client:
        client.config_set("appendonly", "no")
        (fault,) = check_server(client, settings)
        assert "persist" in fault.detail
        assert isinstance(fault, StoreUnfit)
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(StoreUnfit, match="noeviction"):
            check_server(client, settings)


@pytest.mark.parametrize(
    "flaw", [{"redis_mode": "cluster"}, {"redis_version": "6.2.14"}, {"maxmemory_policy": "volatile-ttl"}]
)
def test_a_server_that_can_not_keep_jobs_is_unfit(flaw):
    with pytest.raises(StoreUnfit):
        judge_server(FIT | flaw, {}, "everysec")


@pytest.mark.parametrize(
    ("flaw", "word"),
    [
        ({"aof_last_write_status": "err"}, "append-only"),
        ({"loading": 1}, "loading"),
        ({"role": "slave"}, "replica"),
        ({"maxmemory": 100, "used_memory": 96}, "full"),
    ],
)
def test_temporary_problems_make_the_server_unavailable_not_unfit(flaw, word):
    (fault,) = judge_server(FIT | flaw, {}, "everysec")
    assert word in fault.detail
    assert isinstance(fault, StoreUnavailable)


@pytest.mark.parametrize(
    ("synced", "asked", "complaint"),
    [
        ("everysec", "everysec", None),
        ("always", "everysec", None),
        ("always", "always", None),
        ("no", "everysec", "never syncs"),
        ("no", "always", "never syncs"),
        ("everysec", "always", "appendfsync is everysec"),
    ],
)
def test_a_server_that_syncs_less_often_than_asked_is_complained_about(settings, synced, asked, complaint):
    with EmbeddedServer() as server, sync_client(settings.model_copy(update={"redis_url": server.url})) as client:
        client.config_set("appendfsync", synced)
        found = check_server(client, settings.model_copy(update={"durability": asked}))
    assert len(found) == (complaint is not None)
    assert complaint is None or complaint in found[0].detail


def test_a_server_that_stops_syncing_now_and_then_is_complained_about(settings):
    with EmbeddedServer() as server, sync_client(settings.model_copy(update={"redis_url": server.url})) as client:
        client.config_set("no-appendfsync-on-rewrite", "yes")
        (fault,) = check_server(client, settings)
    assert "rewrite" in fault.detail


@pytest.mark.anyio
async def test_a_user_who_may_not_read_the_configuration_is_told_so_in_the_strict_profile_alone(settings):
    with EmbeddedServer() as server, redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-config")
        for durability, complaints in (("everysec", 0), ("always", 1)):
            there = settings.model_copy(update={"redis_url": server.url, "durability": durability})
            async with async_client(there) as client:
                found = await check_server_async(client, there)
            with sync_client(there) as client:
                assert [fault.detail for fault in check_server(client, there)] == [fault.detail for fault in found]
            assert len(found) == complaints
            assert all("can't be checked" in fault.detail for fault in found)


def test_without_a_url_there_is_no_client():
    with pytest.raises(StoreUnfit, match="DYNO_REDIS_URL"):
        sync_client(Settings(redis_url=None))


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("refused"),
        redis.TimeoutError("slow"),
        redis.BusyLoadingError("loading"),
        redis.ReadOnlyError("replica"),
        redis.OutOfMemoryError("full"),
        redis.ResponseError("MISCONF can't write to disk"),
    ],
)
def test_temporary_errors_become_store_unavailable(error):
    with pytest.raises(StoreUnavailable), store_errors():
        raise error


def test_errors_of_our_own_making_are_not_converted():
    with pytest.raises(redis.ResponseError), store_errors():
        raise redis.ResponseError("WRONGTYPE")


def test_the_client_reconnects_to_a_restarted_server(settings):
    with EmbeddedServer() as server, sync_client(settings.model_copy(update={"redis_url": server.url})) as client:
        assert client.ping()
        client.client_kill_filter(_type="normal", skipme=False)
        assert client.ping()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "anyio_backend",
    [
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("asyncio", {}), id="own", marks=pytest.mark.skipif(WRITES_TO_LOST, reason="CPython's gh-136234")),
    ],
)
async def test_a_connection_that_was_lost_a_moment_ago_is_made_anew(settings):
    async with async_client(settings) as client:
        assert await client.ping()
        client.shared._connection._writer.transport.abort()
        assert await client.ping()


def test_a_script_that_the_server_has_forgotten_is_a_temporary_error(client):
    with pytest.raises(StoreUnavailable, match="No matching script"), store_errors():
        client.evalsha("0" * 40, 0)

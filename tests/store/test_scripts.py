import ast
import shutil
from pathlib import Path

import pytest

import dyno.store
from dyno.store.redis import SCRIPT_SOURCES, Script, load_scripts

FOLDER = Path(dyno.store.__file__).parent


@pytest.fixture
def folder(tmp_path):
    for path in FOLDER.glob("*.lua"):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_a_script_without_a_caller_stops_the_start(folder):
    (folder / "promote.lua").write_text("#!lua\nreturn 1\n")
    with pytest.raises(RuntimeError, match="promote"):
        load_scripts(folder)


def test_a_caller_without_a_script_stops_the_start(folder):
    (folder / "claim.lua").unlink()
    with pytest.raises(RuntimeError, match="claim"):
        load_scripts(folder)


def test_every_script_is_called_from_somewhere():
    texts = [path.read_text() for path in FOLDER.glob("*.py") if path.name != "scripts.py"]
    used = {
        node.attr
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Script"
    }
    assert used == {script.name for script in Script}


@pytest.mark.parametrize("script", Script)
def test_every_script_has_the_same_head(script):
    head = (FOLDER / f"{script}.lua").read_text().split("\n\n")[0]
    parts = ["#!lua", "-- KEYS[1]", "-- ARGV[1]  namespace", "-- Returns "]
    assert [part for part in parts if part not in head] == []


@pytest.mark.anyio
async def test_scripts_that_the_server_has_forgotten_are_sent_again(jobs, leases, a_spec, claim, client):
    client.script_flush()
    await jobs.submit(a_spec())
    client.script_flush()
    attempt = claim()
    client.script_flush()
    assert not leases.heartbeat(attempt, None).superseded
    client.script_flush()
    assert leases.finish(attempt, "succeed")


def test_a_head_that_is_no_longer_first_would_lose_its_flags():
    assert all(source.startswith("#!lua") and "local TRANSITIONS" in source for source in SCRIPT_SOURCES.values())


def test_a_script_that_a_restart_forgot_right_after_its_loading_is_sent_again(leases, claim, client, monkeypatch):
    load, forgotten = client.script_load, list[str]()

    def loaded(text):
        digest = str(load(text))
        if not forgotten:
            client.script_flush()
            forgotten.append(digest)
        return digest

    monkeypatch.setattr(client, "script_load", loaded)
    client.script_flush()
    assert claim() is None
    assert forgotten

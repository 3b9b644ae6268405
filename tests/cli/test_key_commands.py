"""`dyno keys` without DYNO_REDIS_URL: which `dyno up` it looks for, and its error if that isn't running."""

import json
from datetime import datetime, timedelta

import pytest
from typer.testing import CliRunner

from dyno.cli import app


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "pass its --data-dir"),
        ("unix:///nowhere/server.sock", "is the `dyno up` with --data-dir {} still running?"),
    ],
)
def test_it_says_which_dyno_up_it_looked_for(tmp_path, written, words):
    if written is not None:
        (tmp_path / "server.url").write_text(written)
    done = CliRunner(env={"DYNO_REDIS_URL": None}).invoke(app, ["keys", "list", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert words.format(tmp_path) in done.output
    assert str(tmp_path) in done.output


def test_wrong_settings_of_a_key_are_named_in_the_words_of_the_api():
    done = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["keys", "create", "--name", "a\nb", "--scope", "read"])
    assert done.exit_code == 2
    assert "name: String should match ^[A-Za-z0-9 ._@:/+-]{1,64}$" in done.output


def test_a_key_is_created_with_its_rights_and_limits(redis_url, namespace):
    env = {"DYNO_REDIS_URL": redis_url, "DYNO_NAMESPACE": namespace, "COLUMNS": "250"}

    def made(*options):
        arguments = ["keys", "create", "--name", "ci", "--scope", "submit", "--json", *options]
        return json.loads(CliRunner(env=env).invoke(app, arguments).stdout)

    plain, entitled = made(), made("--high-priority", "--expires-in-s", "3600", "--expires", "30d")
    assert (plain["high_priority"], plain["limits"]["expires_in_s"]) == (False, None)
    assert (entitled["high_priority"], entitled["limits"]["expires_in_s"]) == (True, 3600)
    assert plain["expires_at"] is None
    created_at, expires_at = (datetime.fromisoformat(entitled[name]) for name in ("created_at", "expires_at"))
    assert expires_at - created_at == timedelta(days=30)
    listed = CliRunner(env=env).invoke(app, ["keys", "list"]).stdout
    assert f"{expires_at:%Y-%m-%d %H:%M}" in listed
    assert listed.count("high priority") == 1
    assert "expires_in_s 3600" in listed


@pytest.mark.parametrize("wrong", ["30", "d", "1.5d", "-3d", "30 days"])
def test_a_wrong_time_until_a_key_expires_is_explained(wrong):
    arguments = ["keys", "create", "--name", "ci", "--scope", "read", f"--expires={wrong}"]
    done = CliRunner(env={"COLUMNS": "250", "DYNO_REDIS_URL": None}).invoke(app, arguments)
    assert done.exit_code == 2
    assert "such as 30d" in done.output

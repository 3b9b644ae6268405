"""`dyno keys` without DYNO_REDIS_URL: which `dyno up` it looks for, and its error if that isn't running."""

from __future__ import annotations

from pathlib import Path

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
def test_it_says_which_dyno_up_it_looked_for(tmp_path: Path, written: str | None, words: str) -> None:
    if written is not None:
        (tmp_path / "server.url").write_text(written)
    done = CliRunner(env={"DYNO_REDIS_URL": None}).invoke(app, ["keys", "list", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert words.format(tmp_path) in done.output
    assert str(tmp_path) in done.output


def test_wrong_settings_of_a_key_are_named_in_the_words_of_the_api() -> None:
    done = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["keys", "create", "--name", "a\nb", "--scope", "read"])
    assert done.exit_code == 2
    assert "name: String should match ^[A-Za-z0-9 ._@:/+-]{1,64}$" in done.output

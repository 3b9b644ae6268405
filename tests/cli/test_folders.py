"""Folders and files that options name: `~` as a shell writes it out, which doesn't in `--data-dir=~/x`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dyno.cli import app


def options(command: Any, words: str) -> Iterator[tuple[str, Any, Any]]:
    """Of it and the commands below: those that name a path."""
    for name, below in getattr(command, "commands", {}).items():
        yield from options(below, f"{words} {name}")
    for each in command.params:
        if each.type.name in ("path", "file", "directory"):
            yield f"{words} {each.opts[0]}", command, each


PATHS = list(options(get_command(app), "dyno"))


@pytest.mark.parametrize(("command", "option"), [each[1:] for each in PATHS], ids=[each[0] for each in PATHS])
def test_an_option_takes_the_home_for_a_tilde(
    command: Any, option: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    context = command.make_context("dyno", [], resilient_parsing=True)
    assert option.process_value(context, "~/x") == tmp_path / "x"
    assert option.process_value(context, None) in (None, option.default)


def test_there_are_options_to_look_at() -> None:
    assert {"dyno up --data-dir", "dyno keys list --data-dir", "dyno artifacts --save"} <= {each[0] for each in PATHS}


def test_a_home_that_there_is_not_is_wrong_usage() -> None:
    done = CliRunner().invoke(app, ["doctor", "--data-dir", "~nobody-of-this-name/x"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "no such home" in done.output

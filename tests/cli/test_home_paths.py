"""Folders and files in options. `~` is expanded even where shells don't, as in `--data-dir=~/x`."""

import json
import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dyno.cli import app
from dyno.folders import write_error


def options(command, words):
    """The options of the command and its subcommands that take a path."""
    for name, below in getattr(command, "commands", {}).items():
        yield from options(below, f"{words} {name}")
    for each in command.params:
        if each.type.name in ("path", "file", "directory"):
            yield f"{words} {each.opts[0]}", command, each


PATHS = list(options(get_command(app), "dyno"))


@pytest.mark.parametrize(("command", "option"), [each[1:] for each in PATHS], ids=[each[0] for each in PATHS])
def test_a_path_option_expands_a_tilde(command, option, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    context = command.make_context("dyno", [], resilient_parsing=True)
    assert option.process_value(context, "~/x.svg") == tmp_path / "x.svg"
    assert option.required or option.process_value(context, None) in (None, option.default)


def test_path_options_are_found():
    assert {"dyno up --data-dir", "dyno keys list --data-dir", "dyno artifacts --save"} <= {each[0] for each in PATHS}


def test_an_unknown_home_is_wrong_usage():
    done = CliRunner().invoke(app, ["doctor", "--data-dir", "~nobody-of-this-name/x"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "can't expand ~" in done.output


NOT_FOLDERS = ("file", "file/below")
NOT_WRITABLE = ("/proc/none", "/sys")  # not even for root


@pytest.mark.parametrize("named", [*NOT_FOLDERS, *NOT_WRITABLE])
def test_a_data_folder_that_can_not_be_used_is_named_with_the_reason_and_nothing_starts(tmp_path, named):
    (tmp_path / "file").touch()
    folder = tmp_path / named  # if `named` is absolute, this is `named`
    done = CliRunner().invoke(app, ["up", "--port", "0", "--data-dir", str(folder)], env={"DYNO_REDIS_URL": None})
    assert done.exit_code == 2
    why = "is not a folder" if named in NOT_FOLDERS else f"{named.removesuffix('/none')} isn't writable: "
    message = rf"dyno: the data folder {folder} can't be used: .*{why}.*; choose another with --data-dir\n"
    assert re.fullmatch(message, done.output)


@pytest.mark.parametrize("named", [*NOT_FOLDERS, *NOT_WRITABLE])
def test_the_doctor_finds_a_data_folder_that_can_not_be_used(tmp_path, named):
    (tmp_path / "file").touch()
    folder = tmp_path / named
    words = ["doctor", "--json", "--url", "http://127.0.0.1:9", "--data-dir", str(folder)]
    done = CliRunner().invoke(app, words, env={"DYNO_REDIS_URL": None})
    [found] = [each for each in json.loads(done.stdout) if each["name"] == "data folder"]
    assert not found["is_well"]
    assert found["found"].startswith(f"{folder} can't be used: ")
    assert "--data-dir" in found["to_do"]


@pytest.mark.parametrize("command", [["list"], ["create", "--name", "n", "--scope", "read"], ["revoke", "k"], ["open"]])
def test_keys_report_an_unusable_data_folder(tmp_path, command):
    (tmp_path / "file").touch()
    words = ["keys", *command, "--data-dir", str(tmp_path / "file")]
    done = CliRunner().invoke(app, words, env={"DYNO_REDIS_URL": None})
    assert done.exit_code == 2
    assert (
        f"the data folder {tmp_path / 'file'} can't be used: Not a directory; pass the --data-dir of `dyno up`"
        in done.output
    )


def test_a_folder_that_others_may_write_in_holds_no_data(tmp_path):
    tmp_path.chmod(0o777)
    assert "all users may write in it" in str(write_error(tmp_path))
    assert write_error(tmp_path / "not-yet") is None


def test_checking_a_folder_leaves_nothing_behind(tmp_path):
    assert write_error(tmp_path) is None
    assert write_error(tmp_path / "not" / "yet") is None
    assert not list(tmp_path.iterdir())

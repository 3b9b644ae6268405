"""The help, the version and usage errors of the command, without a service."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyno.cli import app
from dyno.errors import CommandExit

ENV = {"COLUMNS": "240", "DYNO_URL": "http://127.0.0.1:9"}


@pytest.mark.parametrize("words", [["run", "matmul", "--help"], ["run", "--device", "cpu", "matmul", "--help"]])
def test_the_help_of_run_lists_the_params_of_the_workload_with_defaults_and_bounds(words):
    done = CliRunner().invoke(app, words, env=ENV)
    assert done.exit_code == 0, done.output
    [line] = [line for line in done.output.splitlines() if "--repeats" in line]
    assert [part.strip() for part in line.split("│")[1:-1]] == [
        "--repeats",
        "null",
        "integer from 1 to 100000, or null",
        "Products per execution; null: 1, 10 or 100, so that the device takes about 0.1 s or less",
    ]
    assert "--processes" in done.output


@pytest.mark.parametrize("words", [["run", "--help"], ["run", "matmull", "--help"]])
def test_the_help_of_run_says_where_the_params_are(words):
    done = CliRunner().invoke(app, words, env=ENV)
    assert done.exit_code == 0, done.output
    assert "dyno run NAME --help" in done.output
    assert "--repeats" not in done.output


def test_the_version_is_printed():
    done = CliRunner().invoke(app, ["--version"], env=ENV)
    assert (done.exit_code, done.output) == (0, f"dyno {version('tensordyno')}\n")


@pytest.mark.parametrize("key", ["dyno_ключ", "dyno_1\ndyno_2"])
def test_an_invalid_key_is_wrong_usage_and_not_shown(key):
    done = CliRunner().invoke(app, ["jobs"], env=ENV | {"DYNO_API_KEY": key})
    assert done.exit_code == 2
    assert "DYNO_API_KEY" in done.output
    assert "dyno_" not in done.output


@pytest.mark.parametrize("name", ["DYNO_TLS_CERT_FILE", "DYNO_REDIS_PASSWORD"])
def test_up_refuses_settings_of_servers_that_it_does_not_start(tmp_path, name):
    done = CliRunner().invoke(app, ["up", "--data-dir", str(tmp_path)], env=ENV | {name: "given"})
    assert done.exit_code == 2
    assert name in done.output
    assert not list(tmp_path.iterdir())


def test_dyno_worker_passes_all_options_on():
    dyno = Path(sys.executable).with_name("dyno")
    command = [dyno, "worker", "--verbose", "--name", "one", "--device", "nonsense"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "not-started" in done.stderr) == (3, True), done.stderr


def test_the_help_names_variables_and_exit_codes():
    help_of_all = CliRunner().invoke(app, ["--help"], env=ENV).output
    for words in ("DYNO_URL", "DYNO_API_KEY", *(f"{code.value} " for code in CommandExit)):
        assert words in help_of_all

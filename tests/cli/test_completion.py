"""What a shell gets for a word that is begun, as Bash asks for it."""

import pytest
from typer.testing import CliRunner

from dyno.bench.registry import registry
from dyno.cli import app


def completed(line, **env):
    words = line.split(" ")
    asked = {"_DYNO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner().invoke(app, prog_name="dyno", env={"DYNO_URL": "http://127.0.0.1:9"} | asked | env)
    return done.output.split()


@pytest.mark.parametrize("command", ["run", "sweep", "advise", "workloads", "schedule save nightly @daily"])
def test_workloads_are_completed_without_a_service(command):
    assert completed(f"dyno {command} m") == [name for name in registry() if name.startswith("m")]


@pytest.mark.parametrize("command", ["run", "sweep", "schedule save nightly @daily"])
def test_params_of_the_named_workload_are_options(command):
    assert "--repeats" in completed(f"dyno {command} matmul --rep")
    assert "--repeats" not in completed(f"dyno {command} mnist_cnn --rep")
    assert "--device" in completed(f"dyno {command} matmul --dev")


@pytest.mark.parametrize("command", ["result", "cancel", "compare", "baseline save main"])
def test_without_a_service_no_ids_are_completed(command):
    assert completed(f"dyno {command} job_") == []


def test_a_broken_file_of_workloads_completes_nothing(monkeypatch):
    monkeypatch.setenv("DYNO_WORKLOADS_DIR", "/nowhere")
    registry.cache_clear()
    try:
        assert completed("dyno run m") == []
    finally:
        registry.cache_clear()

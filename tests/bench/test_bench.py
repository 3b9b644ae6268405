"""`dyno.bench`: a spec measured without a service, by real runners in processes of their own."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

import dyno.bench
from dyno.bench.devices.discovery import discover
from dyno.bench.devices.locks import DeviceTurn
from dyno.errors import InvalidSpec, RunFailed, UnknownWorkload
from dyno.models.result import Result
from dyno.settings import Settings
from tests.cores import HERE
from tests.numpy_runners import ON_NUMPY
from tests.waiting import eventually

BRIEF = {"measure": {"processes": 2, "min_samples": 2, "min_s": 0, "max_s": 0.5}}
SPEC = {"workload": "matmul", "params": {"n": 64, "repeats": 1}, **BRIEF}
LONG = SPEC | {"measure": {"processes": 1, "min_s": 60, "max_s": 60}}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    settings = Settings(run_dir=tmp_path_factory.mktemp("bench") / "run")
    with pytest.MonkeyPatch.context() as patch, dyno.bench.Bench(HERE, settings=settings) as bench:
        for name, value in ON_NUMPY.items():
            patch.setenv(name, value)
        yield bench


def test_the_result_is_the_document_of_a_service(bench):
    progress = []
    result = bench.run(SPEC, on_progress=progress.append)
    assert Result.model_validate_json(result.model_dump_json()) == result
    assert (result.workload, len(result.runs), result.device["id"]) == ("matmul", 2, HERE)
    assert {run.process_start for run in result.runs} == {"forked"}
    assert result.metric("throughput").value > 0
    assert bench.device.memory_bandwidth.value > 1e8
    assert result.roofs[0].fraction > 0
    assert result.peak.provenance in ("measured clock", "measured here")
    assert 0 < progress[-1].fraction < 1
    assert bench.run(SPEC).metric("throughput").value > 0, "the same processes make another job"


@pytest.mark.verify
def test_files_of_the_job_are_kept_in_the_folder_that_is_named(bench, tmp_path):
    spec = {"workload": "device_info", "params": {"ask_frameworks": False}, **BRIEF}
    [artifact] = bench.run(spec, artifacts=tmp_path / "kept").artifacts
    assert artifact.url == (tmp_path / "kept" / "device.txt").as_uri()
    assert (tmp_path / "kept" / "device.txt").stat().st_size == artifact.bytes
    assert bench.run(spec).artifacts == []


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"params": {"n": 0}}, "/params/n"),
        ({"parms": {}}, "/parms"),
        ({"replicas": 64}, "/replicas"),
        ({"device": "gpu"}, "/device"),
        ({"params": {"n": 200_000}}, "/params"),
        ({"against": {}}, "/against"),
        ({"webhook": "https://example.com/"}, "/webhook"),
        ({"baseline": "main"}, "/baseline"),
        ({"workload": "mnist_cnn", "params": {"weights": {"job": "job_1", "name": "a.h5"}}}, "/params/weights"),
    ],
)
def test_what_cannot_run_here_is_refused_before_anything_runs(bench, fields, pointer):
    with pytest.raises(InvalidSpec) as refused:
        bench.run(SPEC | fields)
    assert pointer in {error.pointer for error in refused.value.errors}


def test_a_framework_that_isnt_installed_is_refused(bench, monkeypatch):
    without = {name: version for name, version in bench.device.frameworks.items() if name != "torch"}
    monkeypatch.setattr(bench, "device", bench.device.model_copy(update={"frameworks": without}))
    with pytest.raises(InvalidSpec) as refused:
        bench.run({"framework": "torch", "workload": "device_info"})
    assert [error.pointer for error in refused.value.errors] == ["/framework"]


def test_an_unknown_workload_names_those_that_there_are(bench):
    with pytest.raises(UnknownWorkload, match="mnist_cnn"):
        bench.run({"workload": "matmull"})


@pytest.mark.verify
def test_a_job_that_fails_says_why_with_its_last_output(bench):
    with pytest.raises(RunFailed) as failed:  # NumPy stands for TensorFlow here, and trains nothing
        bench.run({"workload": "mnist_cnn", **BRIEF})
    assert failed.value.reason
    assert "Traceback" in failed.value.detail


@pytest.mark.verify
def test_it_waits_for_a_device_that_another_process_uses(bench, monkeypatch):
    settings = bench._settings
    turn, holders = DeviceTurn(discover(HERE, settings), settings), []
    with turn.take() as held:

        def leave(holder):
            holders.append(holder)
            held.release()

        monkeypatch.setattr(bench, "_on_wait", leave)
        assert bench.run(SPEC).metric("throughput").value > 0
    turn.leave()
    assert [holder.pid for holder in holders] == [os.getpid()]


INTERRUPTED = """
import json, sys
import dyno.bench
spec, device = json.loads(sys.argv[1])
dyno.bench.run(spec, device, on_progress=lambda now: print(now.phase, flush=True))
"""


def hears_ctrl_c():
    """A shell's background jobs ignore it, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_the_runs_and_leaves_no_process(tmp_path):
    env = os.environ | ON_NUMPY | {"DYNO_RUN_DIR": str(tmp_path / "run"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", INTERRUPTED, json.dumps([LONG, HERE])]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, preexec_fn=hears_ctrl_c, **pipes) as process:
        while "warmup" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
        assert "KeyboardInterrupt" in process.stderr.read()
    eventually(lambda: not [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("dyno-bench")] == []

"""Whole runs on JAX, each in a separate process without TensorFlow, because a host needn't have both."""

import os
import subprocess
import sys
from typing import Any

import pytest

from dyno.bench.devices.discovery import installed_frameworks
from dyno.models.device import Device
from dyno.models.runner_protocol import FRAME, DoneFrame, FailedFrame, RunRequest
from dyno.models.spec import Measure, Spec
from tests.quick_xla import QUICK_XLA

pytestmark = pytest.mark.skipif("jax" not in installed_frameworks(), reason="jax is not installed here")

# What `python -P -m dyno.bench.runner` does, on a host without TensorFlow.
RUNNER = """
import importlib.abc, runpy, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "tensorflow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
runpy.run_module("dyno.bench.runner", run_name="__main__", alter_sys=True)
"""
BRIEF = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 1})
TINY: dict[str, dict[str, Any]] = {
    "matmul": {"n": 512, "repeats": 5},
    "input_pipeline": {"data": "sample", "train_samples": 32, "batch_size": 8, "input_threads": 2},
    "mnist_cnn": {
        "data": "sample",
        "epochs": 1,
        "train_samples": 48,
        "test_samples": 18,
        "batch_size": 16,
    },
}


def _run(name, kind="cpu"):
    """The last frame of the run."""
    cores = sorted(os.sched_getaffinity(0))
    device = Device(id=f"{kind}:0", kind=kind, model="test", host="here", cores=cores, memory_bytes=8 << 30)
    spec = Spec(workload=name, params=TINY[name], framework="jax", measure=BRIEF)
    request = RunRequest(job="job_1", spec=spec, run=0, runs=1, device=device, process_start="spawned")
    asking, frames = os.memfd_create("request"), os.memfd_create("frames")
    os.write(asking, request.model_dump_json().encode())
    os.lseek(asking, 0, os.SEEK_SET)
    command = [sys.executable, "-P", "-c", RUNNER, "--request-fd", str(asking), "--frames-fd", str(frames)]
    env = os.environ | QUICK_XLA
    ended = subprocess.run(command, env=env, pass_fds=(asking, frames), capture_output=True, check=False)
    os.close(asking)
    os.lseek(frames, 0, os.SEEK_SET)
    with os.fdopen(frames, "rb") as stream:
        last = FRAME.validate_json(stream.read().splitlines()[-1])
    assert isinstance(last, DoneFrame | FailedFrame), ended.stderr
    return last


def _done(name):
    """The record of a run that passes every check."""
    done = _run(name)
    assert isinstance(done, DoneFrame), done
    assert {raised.severity for raised in done.record.warnings} <= {"B", "C"}
    assert "RETRACED" not in {raised.code for raised in done.record.warnings}
    assert done.record.unchecked == {}
    return done.record


def test_a_product_is_measured_and_verified():
    record = _done("matmul")
    assert record.precision.observed == "float32"
    assert record.work == 2 * 512**3 * 5
    assert (record.summary.phases.compile_s or 0) > 0


@pytest.mark.verify
def test_a_network_is_trained_and_judged():
    record = _done("mnist_cnn")
    assert len(record.training.epochs) == 1
    assert record.training.accuracy is not None
    assert record.details["jit_compile"] is True
    assert "RESULT_INCORRECT" in record.verified


@pytest.mark.verify
def test_a_step_is_fed_by_threads_and_from_a_resident_batch():
    record = _done("input_pipeline")
    assert [case.name for case in record.cases] == ["fed", "resident"]
    assert 0 < record.figures["input_wait_share"] < 1
    assert record.details["jit_compile"] is True


@pytest.mark.verify
def test_a_device_that_jax_does_not_see_is_unsupported():
    failed = _run("matmul", kind="tpu")
    assert isinstance(failed, FailedFrame)
    assert (failed.failure_class, failed.reason) == ("unsupported", "no_such_device")
    assert "tpu" in failed.message

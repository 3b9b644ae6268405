from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dyno.devices.device import Device
from dyno.frameworks.tensorflow import TensorFlow
from dyno.models.spec import Measure, Spec
from dyno.runner.memory import host_peak_bytes, memory, reset_host_peak
from dyno.workloads import workload
from dyno.workloads._products import Chain
from dyno.workloads.contract import Verification
from tests.running import job_of

LARGE_BYTES = 200 << 20
CORES = sorted(os.sched_getaffinity(0))
DEVICE = Device(id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=8 << 30)
BRIEF = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 0.3})


def test_the_peak_remembers_what_was_freed_until_it_is_reset() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this kernel has no /proc/self/clear_refs")
    reset_host_peak()
    before = host_peak_bytes()
    assert before is not None
    np.ones(LARGE_BYTES, np.uint8)
    peak = host_peak_bytes()
    reset_host_peak()
    after = host_peak_bytes()
    assert peak is not None
    assert after is not None
    assert peak > before + LARGE_BYTES / 2
    assert after < peak - LARGE_BYTES / 2


def test_what_its_check_takes_is_not_the_work_s(tensorflow: TensorFlow) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this kernel has no /proc/self/clear_refs")

    class Hungry(Chain):
        def verify(self) -> Verification:
            np.ones(LARGE_BYTES, np.uint8)
            return super().verify()

    matmul = workload("matmul")
    hungry = replace(matmul, build=lambda params, context: Hungry(params, matmul.flops(params), context))
    spec = Spec(workload="matmul", params={"n": 64, "repeats": 5}, measure=BRIEF)
    frugal, checked = (job_of(each, spec, DEVICE).memory.host_peak_bytes for each in (matmul, hungry))
    assert frugal is not None
    assert checked is not None
    assert checked < frugal + LARGE_BYTES / 2


def test_where_the_kernel_does_not_say_nothing_is_known(tmp_path: Path) -> None:
    assert host_peak_bytes(tmp_path / "absent") is None
    (tmp_path / "status").write_text("Name:\tpython\nVmRSS:\t12 kB\n")
    assert host_peak_bytes(tmp_path / "status") is None
    (tmp_path / "status").write_text("VmHWM:\t    12 kB\n")
    assert host_peak_bytes(tmp_path / "status") == 12 * 1024


def test_a_cpu_has_no_device_memory_and_the_reason_says_so() -> None:
    found = memory(TensorFlow(), "cpu")
    assert found.device_peak_bytes is None
    assert found.reason is not None
    assert found.host_peak_bytes is not None

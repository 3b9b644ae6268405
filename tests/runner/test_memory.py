from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dyno.frameworks.tensorflow import TensorFlow
from dyno.runner.memory import host_peak_bytes, memory, reset_host_peak

LARGE_BYTES = 200 << 20


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

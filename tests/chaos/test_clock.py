"""A clock that jumps for those who are given it, and for nobody else; the monotonic one goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.clock import JumpingClock

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is

# Python's way to ask and C's; sleeping goes by the monotonic clock, and has to go on.
TELL = """
import ctypes, sys, time
for _ in sys.stdin:
    time.sleep(0.001)
    print(time.time(), ctypes.CDLL(None).time(None) & 0xFFFFFFFF, time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("offset_s", [10800, -10800])
def test_it_jumps_under_a_process_that_runs_and_back_again(offset_s: int, tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path)
    if clock.left_out is not None:
        pytest.skip(clock.left_out)
    command, pipe = [sys.executable, "-c", TELL], subprocess.PIPE
    with subprocess.Popen(command, env=os.environ | clock.env, stdin=pipe, stdout=pipe, text=True) as told:
        assert told.stdin is not None
        assert told.stdout is not None
        for expected_s in (0, offset_s, 0):
            clock.jump(expected_s)
            told.stdin.write("\n")
            told.stdin.flush()
            wall_s, also_s, monotonic_s = map(float, told.stdout.readline().split())
            assert abs(wall_s - time.time() - expected_s) < 60
            assert abs(also_s - time.time() - expected_s) < 60
            assert abs(monotonic_s - time.monotonic()) < 60
        told.stdin.close()


def test_without_a_compiler_it_says_so_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    clock = JumpingClock(tmp_path)
    assert clock.env == {}
    assert "compiler" in str(clock.left_out)
    clock.jump(10800)

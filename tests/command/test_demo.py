"""`dyno demo`, as `make demo` runs it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.command.running import Command
from tests.cores import HERE
from tests.numpy_runners import ON_NUMPY


@pytest.mark.timeout(400)
def test_the_demo_prints_both_results_and_leaves_nothing(command: Callable[..., Command]) -> None:
    running = command("demo", "--device", HERE)
    assert running.process.wait(350) == 0, running.text()
    text = running.text()
    for words in ("FLOP/s", "cold_throughput", "fraction of peak", "indicative", "first epoch", "accuracy", "sample"):
        assert words in text, text
    running.assert_nothing_left()


SECOND = [pytest.param(moment, marks=pytest.mark.verify) for moment in ("on a private socket", "phase")]


@pytest.mark.parametrize("moment", ["", "API on", "running", *SECOND])
def test_ctrl_c_leaves_no_process_behind(command: Callable[..., Command], moment: str) -> None:
    running = command("demo", **ON_NUMPY)
    running.says(moment)
    assert running.interrupt() != 0
    running.assert_nothing_left()


@pytest.mark.verify
def test_a_demo_whose_worker_dies_ends_and_says_so(command: Callable[..., Command]) -> None:
    running = command("demo", **ON_NUMPY)
    running.says("run 1 of")
    os.kill(running.pid_of("-m workers "), signal.SIGKILL)
    assert running.process.wait(60) == 1
    assert "worker cpu has ended" in running.text()
    running.assert_nothing_left()

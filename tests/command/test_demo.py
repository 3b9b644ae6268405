"""`dyno demo`, as `make demo` runs it."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable

import pytest
from rich.console import Console

from dyno import demo
from tests.command.running import Command
from tests.cores import HERE
from tests.numpy_runners import ON_NUMPY

WORDS = ("FLOP/s", "cold_throughput", "fraction of peak", "first epoch", "accuracy", "sample")


def test_with_shorter_jobs_the_demo_prints_both_results(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = {"processes": 1, "min_samples": 1, "min_s": 0, "max_s": 0.2}
    for spec in (demo.MATMUL, demo.MNIST):
        monkeypatch.setitem(spec, "measure", measure)
    monkeypatch.setitem(demo.MNIST, "params", {**demo.MNIST["params"], "epochs": 1, "train_samples": 512})  # type: ignore[dict-item]
    printed = io.StringIO()
    demo.run(Console(file=printed, width=120), device=HERE)
    for words in WORDS:
        assert words in printed.getvalue(), printed.getvalue()


@pytest.mark.verify
@pytest.mark.timeout(400)
def test_the_demo_prints_both_results_and_leaves_nothing(command: Callable[..., Command]) -> None:
    running = command("demo", "--device", HERE)
    assert running.process.wait(350) == 0, running.text()
    text = running.text()
    for words in (*WORDS, "indicative"):
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

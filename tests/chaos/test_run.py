"""The command itself, on a real house."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import kin
from chaos.run import locked
from dyno.devices import hold

ROOT = Path(__file__).parent.parent.parent
PARTS = ("service", "workers", "redis-server", "valkey-server")


def test_a_lock_that_somebody_holds_is_found(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("cpu-00000.lock", "cpu-00001.lock")]
    hold(paths, 1).release()
    with hold(paths[1:], 1):
        assert [str(path) for path in locked(tmp_path)] == paths[1:]
    assert list(locked(tmp_path)) == []


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "chaos", "--seed", "882", "--minutes", "1", "--jobs", "150"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.timeout(300)
def test_ctrl_c_in_the_middle_of_faults_leaves_no_process_and_no_file(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert running.stderr is not None
    said = iter(running.stderr.readline, "")
    assert next(said).startswith("seed 882,")
    while "STOP/CONT" not in (line := next(said)):
        assert line
    family = kin.below(running.pid)
    assert all(any(part in each.command for each in family) for part in PARTS[:2])
    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGTERM)  # whoever is impatient changes nothing
    assert running.wait(60) == 130
    assert kin.alive(family) == set()
    assert list(tmp_path.iterdir()) == []

"""Each framework against the same cases, in a process of its own: one process can hold only one Keras backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dyno.devices import installed_frameworks

CASES = Path(__file__).parent / "cases"
Run = Callable[[str, int], list[float]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the cases, once for each framework and number of replicas; the losses that they leave."""
    done: dict[tuple[str, int], list[float]] = {}

    def ran(framework: str, replicas: int) -> list[float]:
        if framework not in installed_frameworks():
            pytest.skip(f"{framework} is not installed here")
        if (framework, replicas) not in done:
            done[framework, replicas] = _run(framework, replicas, tmp_path_factory.mktemp("cases"))
        return done[framework, replicas]

    return ran


def _run(framework: str, replicas: int, folder: Path) -> list[float]:
    losses = folder / "losses.json"
    asked = {"CASES_FRAMEWORK": framework, "CASES_REPLICAS": str(replicas), "CASES_LOSSES": str(losses)}
    files = ["shares.py"] if replicas > 1 else ["operations.py", "trainers.py", "shares.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *[str(CASES / file) for file in files]]
    ended = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
    found: list[float] = json.loads(losses.read_text())
    return found


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])
def test_it_does_what_the_contract_says(run: Run, framework: str) -> None:
    assert run(framework, 1)


def test_over_two_virtual_devices_jax_trains_the_same(run: Run) -> None:
    assert run("jax", 2) == pytest.approx(run("jax", 1), rel=1e-5)

"""The notebooks of examples/, run as scripts: real results, real graphs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def cells(name):
    found: list[dict[str, Any]] = json.loads((EXAMPLES / name).read_text())["cells"]
    return found


def code(name):
    return ["".join(cell["source"]) for cell in cells(name) if cell["cell_type"] == "code"]


# In place of a window: each graph becomes a file.
SHOW = """
import matplotlib.pyplot as plt
import pathlib, sys
plt.show = lambda: plt.savefig(pathlib.Path(sys.argv[1]) / f"{len(plt.get_fignums())}.svg")
"""
QUICK = {"measure": {"processes": 1, "min_samples": 3, "min_s": 0}}
MNIST = {"train_samples": 256, "test_samples": 128, "epochs": 2, "data": "sample"}


@pytest.mark.parametrize("name", ["articles.ipynb", "bench.ipynb"])
def test_the_notebook_is_stored_without_outputs(name):
    assert len(cells(name)) <= 8
    assert len({cell["id"] for cell in cells(name)}) == len(cells(name))
    assert [cell for cell in cells(name) if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.verify
def test_the_notebook_measures_without_a_service(tmp_path):
    core = min(os.sched_getaffinity(0))
    brief = "\n".join([SHOW, *code("bench.ipynb")])
    brief = brief.replace('"budget_s": 5', '"budget_s": 0.1').replace('"cpu"', f'"cpu:{core}-{core}"')
    done = subprocess.run(
        [sys.executable, "-c", brief, tmp_path],
        env={name: value for name, value in os.environ.items() if name != "DYNO_URL"} | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["n = 128", "n = 256", "n = 512"]
    assert "<!-- GFLOP/s -->" in (tmp_path / "1.svg").read_text()


@pytest.mark.verify
def test_the_notebook_draws_the_graphs_of_results(api, url, tmp_path):
    sweeps = [
        {"spec": {"workload": "matmul", **QUICK}, "grid": {"params.n": [64, 128]}},
        {"spec": {"workload": "mnist_cnn", "params": MNIST, **QUICK}, "grid": {"params.batch_size": [64, 128]}},
    ]
    for each in sweeps:
        sweep = api.http.post("/v1/sweeps", json=each)
        assert sweep.status_code == 202, sweep.text
        for point in sweep.json()["points"]:
            job = api.http.get(f"/v1/jobs/{point['job']}").raise_for_status().json()
            assert api.finished(job)["status"] == "succeeded"
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([SHOW, *code("articles.ipynb")]), tmp_path],
        env=os.environ | {"DYNO_URL": url, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    matmul, mnist = ((tmp_path / f"{number}.svg").read_text() for number in (1, 2))
    assert "<!-- GFLOP/s -->" in matmul
    assert "<!-- TPU (Colab), cold_throughput, 2018-19 -->" in matmul
    assert "<!-- s per epoch -->" in mnist
    for line in ("n=64", "n=128", "batch_size=64", "batch_size=128"):
        assert line in done.stdout

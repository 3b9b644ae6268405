"""examples/articles.ipynb, run as a script against the service: real results, real graphs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = json.loads((Path(__file__).parents[1] / "examples" / "articles.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
# In place of a window: each graph becomes a file.
SHOW = """
import matplotlib.pyplot as plt
import pathlib, sys
plt.show = lambda: plt.savefig(pathlib.Path(sys.argv[1]) / f"{len(plt.get_fignums())}.svg")
"""
QUICK = {"measure": {"processes": 1, "min_samples": 3, "min_s": 0}}
MNIST = {"train_samples": 256, "test_samples": 128, "epochs": 2, "data": "sample"}


def test_the_notebook_is_stored_without_outputs() -> None:
    assert (NOTEBOOK["nbformat"], len(NOTEBOOK["cells"]) <= 8) == (4, True)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    written = [cell for cell in NOTEBOOK["cells"] if cell.get("outputs") or cell.get("execution_count")]
    assert written == []


@pytest.mark.verify
def test_the_notebook_draws_the_graphs_of_results(api: Any, url: str, tmp_path: Path) -> None:
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
        [sys.executable, "-c", "\n".join([SHOW, *CODE]), tmp_path],
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

"""Each benchmark, for real and as short as it can be, writes its page."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import (
    alarms,
    cost,
    coverage,
    gate,
    history,
    house,
    instrument,
    matmul,
    neighbours,
    recorded,
    repeat,
    reproduce,
    resampled,
    scatter,
    start,
    trainings,
    trusted,
    workloads,
)
from benchmarks.files import Files, Spec

ROOT = Path(__file__).parent.parent.parent


def copied(folder):
    """The recorded runs, as if this machine had made them."""
    for name in recorded.PARAMS:
        found = json.loads((recorded.FOLDER / f"{name}.json").read_text())
        Files(folder).put(name, recorded.spec(name), {"runs": found["runs"]})
    return folder


SHORT = {"processes": 2, "min_samples": 1, "min_s": 0, "max_s": 0.5}
# By page: what writes it, given a folder for the answers, and a row with a figure.
SMOKES: dict[str, tuple[Callable[[Path], None], str]] = {
    "alarms": (lambda kept: alarms.main(1, 0, kept, kept.parent / "rates.json"), r"\| `CPU_QUOTA` \| 0 of 2, "),
    "cost": (lambda kept: cost.main(2, 2, kept), r"\| `mnist_cnn` \| 2 \| [+-]\d"),
    "coverage": (lambda kept: coverage.main(20, 1), r"\| normal \| normal \| 0.5%, 2.0% \| 5 \| \*\*\d+"),
    "gate": (lambda kept: gate.main(1, kept), r"\| in turns \| 5 % slower \| 1 \| .* \| \*\*[01] of 1, "),
    "instrument": (lambda kept: instrument.main(2, 0.1), r"\| `matmul, n = 512` \| 2 \| \d\.\d+ "),
    "history": (lambda kept: history.main(1, 1), r"\| a step of 20% \| 1% \| 100%, 100% \| 100%, 100% \|"),
    "matmul": (lambda kept: matmul.main(2, 2), r"- Dyno / bare: \d\.\d+ \(95 % interval .*, 2 pairs\)"),
    "repeat": (lambda kept: repeat.main(2, 0, ["short, default"], kept), r"\| `short, default` \| 2 \| "),
    "reproduction": (lambda kept: reproduce.main(["device_info"], kept), r"\| device_info \| 8 TPU cores \| discovery"),
    "resampled": (lambda kept: resampled.main(5, copied(kept)), r"\| `matmul-64` \| 30 \| 0\.\d\d \| \*\*\d+ of 21"),
    "scatter": (lambda kept: scatter.main(["matmul-64"], 2, kept), r"\| `matmul-64` \| 2 \| [\d.]+ ms"),
    "start": (lambda kept: start.main(1), r"- ratio of medians: \d"),
    "trainings": (lambda kept: trainings.main(["mnist_cnn"], 2, 1, kept), r"\| `mnist_cnn` \| \d+"),
    "workloads": (lambda kept: workloads.main(["device_info"], kept), r"\| `device_info` \| tensorflow 2\.\d"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", SMOKES)
def test_it_measures_and_writes_its_page(page, tmp_path, monkeypatch):
    run, row = SMOKES[page]
    monkeypatch.setattr("benchmarks.report.RESULTS", tmp_path)
    monkeypatch.setenv("DYNO_RUN_DIR", str(tmp_path / "run"))  # no other Dyno here holds these jobs up
    short: Spec = {"workload": "matmul", "params": {"n": 64}, "measure": SHORT, "device": "cpu"}
    monkeypatch.setitem(repeat.CASES, "short, default", short)
    monkeypatch.setattr(repeat, "WORKLOADS", ["short"])
    monkeypatch.setattr(gate, "N", 64)
    monkeypatch.setattr(gate, "MEASURE", {"max_s": 0.5})
    monkeypatch.setattr(gate, "PAIRS", 2)
    monkeypatch.setenv("DYNO_WORKLOADS_DIR", "")  # the benchmark sets it
    for measure in (recorded.MEASURE, workloads.MEASURE):
        monkeypatch.setitem(measure, "max_s", 0.5)
    monkeypatch.setattr(trainings, "SLOW_MODE", 100.0)  # on a busy machine one process may be slow
    run(tmp_path / "kept")
    text = (tmp_path / f"{page}.md").read_text()
    assert re.search(row, text), text


def test_the_house_is_counted(capsys):
    house.main([ROOT])
    table, _, path = capsys.readouterr().out.partition("\n\n")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    figures = {name: float(value.rstrip("%")) for name, value in rows}
    assert figures["product: lines of Python"] > 20_000
    assert figures["import circles"] == 0
    assert 10 < figures["files of the control path"] < figures["files that a job crosses"] < figures["product: files"]
    service, workers, zygote = (re.findall(r"\S+\.py", line) for line in path.splitlines() if ".py" in line)
    assert "service/hot_routes.py" in service
    assert "dyno/store/leases.py" in workers
    assert "dyno/bench/runner/zygote.py" in zygote
    assert "dyno/bench/measure/sampling.py" not in {*service, *workers, *zygote}  # only runners take samples


@pytest.mark.verify
@pytest.mark.timeout(600)
def test_neighbours_are_measured_beside_work_on_one_core_and_beside_jobs(tmp_path, monkeypatch):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a neighbour needs a second core")
    monkeypatch.setattr("benchmarks.report.RESULTS", tmp_path)
    monkeypatch.setenv("DYNO_RUN_DIR", str(tmp_path / "run"))
    neighbours.main(2, 2)
    text = (tmp_path / "neighbours.md").read_text()
    assert re.search(r"\| addition \| product, NumPy \| 2 \| \d\.\d+ \[", text), text
    assert re.search(r"jobs of the other worker \| 2 \| .* alone \d of 2, beside \d of 2", text), text


def test_a_step_is_replayed_on_recorded_runs():
    text = "\n".join(trusted.lines({}))
    assert re.search(r"\| `matmul-2048` \| 5 \| \d+ of 56 \| \d+ of 56 \|", text), text

"""The cost of measuring, from blocks taken by hand, and one real block of each kind."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from benchmarks import cost_side_by_side
from benchmarks.cost import change, lines
from benchmarks.cost_side_by_side import Turns
from dyno.spec import Measure


def process(on: float, off: float) -> dict[str, object]:
    blocks = {"on": [2.3, 2.5], "off": [2.2, 2.2]}
    return {"medians_s": {"on": [on, on * 1.1, on], "off": [off]}, "blocks_s": blocks, "verify_s": 0.25}


def test_the_change_is_over_processes_not_over_blocks() -> None:
    found = change([process(1.01, 1.0), process(2.01, 2.0), process(3.0, 3.0)])
    assert found.pairs == 3
    assert found.value == pytest.approx((1.01 * 1.005) ** (1 / 3))
    assert found.low < 1.0 < found.high < 1.03


def test_the_page_states_the_bound_and_what_the_checks_take() -> None:
    page = lines({"matmul": [process(1.001, 1.0), process(1.001, 1.0)]})
    row = next(line for line in page if line.startswith("| `matmul` |"))
    assert row == "| `matmul` | 2 | +0.10% [+0.10% to +0.10%] | **+0.10%** | 2.400 s | 2.200 s | 0.250 s |"


def test_each_way_executes_the_work_and_keeps_one_block_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_side_by_side, "MEASURE", Measure(min_samples=3, min_s=0, max_s=0.01, target_rel_ci=1))
    executed: list[int] = []
    descriptor = os.open(os.devnull, os.O_WRONLY)
    turns = Turns(SimpleNamespace(execute=executed.append), descriptor)  # type: ignore[arg-type]
    for blocks, way in enumerate(("on", "off"), start=1):
        executed.clear()
        turns.take(way)
        assert len(executed) > 3
        assert sum(len(turns.medians_s[each]) for each in ("on", "off")) == blocks
    os.close(descriptor)
    assert min(turns.medians_s["on"] + turns.blocks_s["off"]) > 0

"""What is said of ten answers to one question, on answers made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import repeatability
from benchmarks.files import Files, here
from benchmarks.repeatability import WAYS, Round, holding, take_fixed, to_target_s, until_target_s
from dyno.measure.statistics import Interval, mean_interval
from dyno.models.spec import Spec
from dyno.workloads import resolve


def answer(value: float, half: float, took_s: float = 20.0, processes: int = 5) -> Round:
    return Round(Interval(value, value - half, value + half), processes, took_s)


def test_dyno_s_ways_come_in_turns_then_one_of_them_in_a_row_and_are_specs_it_takes() -> None:
    specs = repeatability.specs(3)
    rows = [f"row-{series}.{number:02}" for series in range(1, repeatability.SERIES + 1) for number in range(3)]
    assert list(specs) == ["five.00", "grown.00", "five.01", "five.02", "grown.02", *rows]
    counts = [resolve(Spec.model_validate(spec, strict=True)).spec.measure.processes for spec in specs.values()]
    assert [(each.min, each.max) for each in counts] == [(5, 5), (5, 30), (5, 5), (5, 5), (5, 30)] + [(5, 5)] * len(
        rows
    )


def test_intervals_that_hold_the_mean_of_all_are_counted() -> None:
    assert holding([answer(99, 2), answer(101, 2), answer(100, 0.1), answer(104, 2), answer(96, 4)]) == 4


def test_the_time_to_a_target_grows_with_the_processes_that_this_scatter_needs() -> None:
    runs = [0.98, 1.02, 1.0, 0.99, 1.01]  # sd 1.58 %: t(11) 1.58 % / √12 = 1.005 %, of 13 processes 0.955 %
    wide = Round(mean_interval(runs), 5, 20.0)
    assert to_target_s(wide, 2) == to_target_s(wide, 5) == pytest.approx(20.0 * 13 / 5)


def test_no_way_needs_fewer_processes_than_it_takes_nor_does_without_those_that_come_before() -> None:
    calm = answer(1.0, 1e-6, took_s=63.0, processes=20)
    assert to_target_s(calm, 5) == pytest.approx(63.0 * 5 / 20)
    assert to_target_s(replace(calm, before=1), 2) == pytest.approx(63.0 * 3 / 21)


def test_a_round_that_missed_the_target_counts_as_longer_than_all_others() -> None:
    reached, missed = answer(1.0, 0.009, took_s=40.0), answer(1.0, 0.02, took_s=30.0)
    assert until_target_s([reached, missed, replace(reached, took_s=90.0)]) == 90.0
    assert until_target_s([reached, missed, missed]) == math.inf


def test_the_fixed_protocol_counts_by_process_and_as_if_its_values_were_independent(tmp_path: Path) -> None:
    spec = {"workload": "matmul", "params": repeatability.PARAMS, "processes": repeatability.MEASURING}
    by_process = [[1.0, 1.0, 1.0], [1.1, 1.1, 1.1], [0.9, 0.9, 0.9]]
    Files(tmp_path).put("fixed.03", spec, {"values": by_process, "took_s": 60.0})
    found: dict[str, list[Round]] = {way: [] for way in WAYS}
    take_fixed(Files(tmp_path), "03", found)
    (over_processes,), (pooled,) = found["fixed"], found["pooled"]
    assert over_processes.interval == mean_interval([1.0, 1.1, 0.9])
    assert pooled.interval == mean_interval([1.0, 1.1, 0.9] * 3)
    assert (over_processes.processes, over_processes.before, over_processes.took_s) == (3, 1, 60.0)


def test_a_fixed_round_of_another_machine_is_taken_anew_and_one_that_names_none_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeatability, "_fixed", lambda: [[3.0], [3.3], [2.7]])
    spec = {"workload": "matmul", "params": repeatability.PARAMS, "processes": repeatability.MEASURING}
    values = {"values": [[1.0], [1.1], [0.9]], "took_s": 60.0}
    found: dict[str, list[Round]] = {way: [] for way in WAYS}
    for number, stamp in (("00", {"hardware_id": "hw_other"}), ("02", {"method_version": "0"}), ("04", {})):
        Files(tmp_path, stamp).put(f"fixed.{number}", spec, values)
        take_fixed(Files(tmp_path, here()), number, found)
    assert [each.interval.value for each in found["fixed"]] == pytest.approx([3.0, 3.0, 1.0])
    assert Files(tmp_path, here()).get("fixed.00", spec) is not None

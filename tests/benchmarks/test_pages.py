"""Every page is written from figures made by hand, and has a row for each case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks import alarms, repeatability, resampled
from benchmarks.pairs import in_turns, ratio
from benchmarks.repeatability import WAYS, Round
from benchmarks.report import table
from benchmarks.trainings import SETUPS, Taken, lines
from dyno.measure.statistics import Interval
from dyno.models.spec import Spec
from dyno.workloads import resolve

CHOICE = {"chosen": False, "how": "measured", "batch_size": 8, "step_s": {"false": 0.001, "true": 0.02}}


def test_a_cell_has_no_bar_and_no_line_break() -> None:
    assert table(("a",), [["x|y\nz"]]) == ["| a |", "| --- |", "| x/y z |", ""]


def test_a_ratio_is_geometric_with_student_s_interval() -> None:
    """t(0.975; 1) = 12.706, t(0.95; 1) = 6.314; the logarithms' standard error is ln 2."""
    found = ratio([1.0, 4.0], [1.0, 1.0])
    bounds = (found.value, found.low, found.high, found.upper_95)
    assert np.allclose(bounds, (2, 2 * 2**-12.706, 2 * 2**12.706, 2 * 2**6.314), rtol=1e-2)


def test_clean_jobs_ask_for_the_default_method_but_for_the_target() -> None:
    default = Spec(workload="matmul").measure
    for name, spec in alarms.specs(2).items():
        asked = resolve(Spec.model_validate(spec, strict=True)).spec.measure
        assert asked == default.model_copy(update={"target_rel_ci": 0.02 if name.startswith("mnist_cnn.") else 0.01})


def test_comparisons_have_a_row_for_every_source_and_order() -> None:
    times = 1e-3 * (1 + 0.02 * np.random.default_rng(1).standard_normal(30))
    names = [*resampled.PERMUTED, "matmul-64"]
    page = resampled.lines(dict.fromkeys(names, times), trials=3)
    permuted, orders = len(resampled.PERMUTED), len(resampled.ORDERS)
    rows = len(names) + (2 * permuted + 1) * orders + permuted * len(resampled.REAL_ORDERS)
    assert sum(line.startswith("| ") for line in page) == rows + 4 * 2


def test_repeatability_has_a_row_for_each_way_that_ran_and_says_where_the_clock_was_quiet() -> None:
    narrow = Round(Interval(1e9, 0.991e9, 1.009e9), 5, 40.0, clock_hz=4e9)
    wide = Round(Interval(1e9, 0.98e9, 1.02e9), 5, 90.0, clock_hz=4.03e9)
    page = repeatability.lines(
        {"five": [narrow, wide], "grown": [narrow, wide, replace(wide, clock_hz=5e9)], "fixed": []}
    )
    five, said = (next(line for line in page if line.startswith(f"| {WAYS[way]} |")) for way in ("five", "grown"))
    assert "| 4.00 to 4.03 GHz (0.8%, quiet) | **2 of 2** |" in five
    assert said.endswith(" | over 90 s (1 of 3 reached it) |")
    assert not any(WAYS["fixed"] in line for line in page)


def test_trainings_that_have_not_run_and_bounds_above_the_aim_are_marked() -> None:
    runs = [{"dyno": [time_s], "fit": [1.0], "data": "sample"} for time_s in (1.1, 1.101)]
    taken = dict.fromkeys(SETUPS, Taken()) | {"mnist_cnn": Taken({"dyno": CHOICE, "fit": CHOICE}, runs)}
    text = "\n".join(lines(SETUPS, taken))
    assert text.count("| not run yet |") == len(SETUPS) - 1
    assert text.count(", above the aim |") == 1
    assert "Dyno: `jit_compile` false: measured (a step at batch 8: false 1 ms, true 20 ms)." in text


def test_ways_come_in_turns_and_none_is_always_first() -> None:
    order: list[str] = []
    ways = {way: lambda way=way: order.append(way) or float(len(order)) for way in "ABC"}
    assert in_turns(ways, 2) == {"A": [1, 6], "B": [2, 5], "C": [3, 4]}
    assert order == [*"ABCCBA"]

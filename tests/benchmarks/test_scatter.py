"""What is said of forked and spawned runs, on figures whose ratio is known."""

from __future__ import annotations

from statistics import stdev

import numpy as np
import pytest

from benchmarks.pairs import holds
from benchmarks.recorded import PARAMS, Run, Start, in_turns
from benchmarks.scatter import deviations_ratio, lines, neighbours_ratio, robust_ratio

NAMES = list(PARAMS)[:2]


def runs(rng: np.random.Generator, spawned_scatter: float = 0.01, forked_scatter: float = 0.01) -> list[Run]:
    """Thirty of each; forked ones take as long."""
    scatters: dict[Start, float] = {"forked": forked_scatter, "spawned": spawned_scatter}
    times = [(start, 1e-3 * (1 + scatters[start] * rng.standard_normal())) for start in in_turns(30)]
    return [Run(start, 0.0, time_s, [time_s]) for start, time_s in times]


def test_runs_come_in_turns_and_neither_start_is_always_first() -> None:
    assert in_turns(4) == ["forked", "spawned", "spawned", "forked"] * 2


def test_the_f_interval_is_the_one_of_the_tables() -> None:
    """F(0.975; 4, 9) = 4.718, F(0.975; 9, 4) = 8.905."""
    first, second = [1.0, 2.0, 3.0, 4.0, 5.0], [float(value) for value in range(10)]
    ratio = stdev(first) / stdev(second)
    found = deviations_ratio(first, second)
    assert found.value == pytest.approx(ratio)
    assert found.low == pytest.approx(ratio / 4.718**0.5, rel=1e-3)
    assert found.high == pytest.approx(ratio * 8.905**0.5, rel=1e-3)


@pytest.mark.parametrize("way", [deviations_ratio, neighbours_ratio, robust_ratio])
def test_each_interval_holds_the_true_ratio_in_about_95_of_100_cases(way: object) -> None:
    assert callable(way)
    rng = np.random.default_rng(8)
    draws = rng.standard_normal((300, 2, 30)) * [[0.01], [0.02]] + 1
    assert 0.91 <= np.mean([holds(way(first.tolist(), second.tolist()), 0.5) for first, second in draws]) <= 0.985


def test_with_heavy_tails_the_robust_one_still_does_where_the_usual_one_fails() -> None:
    draws = np.random.default_rng(9).standard_t(3, (200, 2, 30)).tolist()
    robust, usual = (np.mean([holds(way(*pair), 1.0) for pair in draws]) for way in (robust_ratio, deviations_ratio))
    assert robust > 0.9 > 0.8 > usual


def test_a_slow_drift_hides_a_difference_in_scatter_from_all_but_the_neighbours() -> None:
    rng = np.random.default_rng(10)
    drift = np.linspace(0, 0.2, 30)
    first, second = (1 + drift + scatter * rng.standard_normal(30) for scatter in (0.01, 0.04))
    assert deviations_ratio(first.tolist(), second.tolist()).value > 0.8
    assert neighbours_ratio(first.tolist(), second.tolist()).value == pytest.approx(0.25, rel=0.4)


def test_the_page_has_both_starts_and_their_ratios() -> None:
    rng = np.random.default_rng(11)
    page = lines({NAMES[0]: runs(rng), NAMES[1]: runs(rng, spawned_scatter=0.05)})
    alike, wider = (next(line for line in page if line.startswith(f"| `{name}`")) for name in NAMES)
    assert alike.split(" | ")[1] == "30"
    assert alike.split(" | ")[4].startswith("1.00") or alike.split(" | ")[4].startswith("0.99")
    assert float(wider.split(" | ")[5].split()[0]) == pytest.approx(0.2, abs=0.1)

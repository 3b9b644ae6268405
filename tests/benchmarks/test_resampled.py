"""Comparisons of results drawn from runs: the rule that a caller gets, on runs whose difference is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import resampled
from benchmarks.resampled import alike, drifted, slowed, standardised, verdicts, without_return
from dyno.comparison import Comparative

NORMAL = 1e-3 * (1 + 0.02 * np.random.default_rng(1).standard_normal(30))
DIFFERENT = (Comparative.FASTER, Comparative.SLOWER)


def test_two_results_of_the_same_runs_are_seldom_called_different() -> None:
    said = verdicts(alike(without_return(NORMAL, np.random.default_rng(2)), 5, 400))
    assert said.total() == 400
    assert 0.005 < sum(said[word] for word in DIFFERENT) / 400 < 0.08  # 5 % give or take three deviations


def test_no_run_is_in_both_results() -> None:
    first, second = next(alike(without_return(np.arange(10.0), np.random.default_rng(3)), 5, 1))
    assert sorted([*first, *second]) == list(range(10))


def test_a_slowdown_of_five_per_cent_is_found_at_two_per_cent_and_missed_at_five() -> None:
    draw = np.random.default_rng(4).standard_normal
    near, far = (verdicts(slowed(draw, scatter, 5, 300)) for scatter in (0.02, 0.05))
    assert near[Comparative.SLOWER] / 300 > 0.85
    assert far[Comparative.SLOWER] / 300 < 0.5
    assert near[Comparative.FASTER] == 0


@pytest.mark.parametrize(("order", "bias"), [("AAAAABBBBB", 0.0163), ("ABBAABBAAB", 0.0007)])
def test_a_drift_biases_results_one_after_the_other_and_hardly_those_in_turns(order: str, bias: float) -> None:
    """By hand: the last five of ten runs of a line from 1 to 1.03 are 1.0234, the first five 1.0066 on average."""
    (first, second), *_ = drifted(without_return(np.ones(30), np.random.default_rng(5)), order, 1)
    assert second.mean() / first.mean() - 1 == pytest.approx(bias, abs=0.0004)


def test_residuals_have_no_mean_and_a_deviation_of_one() -> None:
    residuals = standardised(NORMAL)
    assert (residuals.mean(), residuals.std(ddof=1)) == (pytest.approx(0), pytest.approx(1))


def test_the_page_has_a_row_for_every_source_and_count() -> None:
    page = resampled.lines({"one": NORMAL, "other": 2 * NORMAL}, trials=3)
    counts, sources = len(resampled.COUNTS), 2
    rows = sources * counts + (sources + 1) * counts + sources * 2
    assert sum(line.startswith("| ") for line in page) == rows + 3 * 2

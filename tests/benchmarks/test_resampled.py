"""Comparisons of results made of runs: the rule that a caller gets, on runs whose difference is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.recorded import lag_one, windows
from benchmarks.resampled import (
    FIVE,
    alike,
    as_recorded,
    called_different,
    drifted,
    estimator,
    ratio,
    slowed,
    verdicts,
    without_return,
)
from dyno.measure.ratios import paired_ratio, ratio_of_means
from dyno.models.comparison import Comparative

NORMAL = 1e-3 * (1 + 0.02 * np.random.default_rng(1).standard_normal(30))
TEN_PAIRS = "ABBA" * 5


@pytest.mark.parametrize("order", [FIVE, "ABBAABBA", TEN_PAIRS])
def test_two_results_of_the_same_runs_are_seldom_called_different(order: str) -> None:
    said = verdicts(alike(without_return(NORMAL, np.random.default_rng(2)), order, 400), order)
    assert said.total() == 400
    assert 0.005 < called_different(said) / 400 < 0.085  # 5 % give or take three deviations


def test_runs_in_turns_are_compared_as_dyno_compares_them_pair_by_pair() -> None:
    """A ratio of 2 in each pair, whatever the machine did from pair to pair: only the pairs know it for sure."""
    assert [estimator(order) for order in (FIVE, "AAABBB", "ABBA", TEN_PAIRS)] == [
        *(ratio_of_means, ratio_of_means),
        *(paired_ratio, paired_ratio),
    ]
    pair = np.array([1.0, 3.0, 5.0, 2.0]), np.array([2.0, 6.0, 10.0, 4.0])
    found = ratio(pair, "ABBAABBA")
    assert found.interval.value == pytest.approx(0.5)
    assert (found.degrees, found.interval.low) == (2, pytest.approx(0.5))


def test_no_run_is_in_both_results() -> None:
    first, second = next(alike(without_return(np.arange(10.0), np.random.default_rng(3)), FIVE, 1))
    assert sorted([*first, *second]) == list(range(10))


def test_as_recorded_every_stretch_of_neighbours_is_a_pair_in_its_order() -> None:
    found = list(as_recorded(np.arange(9.0), "ABBAABBA"))
    assert [[*map(list, pair)] for pair in found] == [
        [[0, 3, 4, 7], [1, 2, 5, 6]],
        [[1, 4, 5, 8], [2, 3, 6, 7]],
    ]
    assert len(windows(np.arange(30.0), 5)) == 26


def test_runs_that_resemble_the_one_before_are_called_different_in_order_and_not_in_turns() -> None:
    """Two levels, five runs each: one after the other they look like two machines."""
    times = 1 + 0.05 * np.repeat([0.0, 1.0] * 3, 5) + 0.002 * np.random.default_rng(6).standard_normal(30)
    sequential, in_turns = (verdicts(as_recorded(times, order), order) for order in (FIVE, TEN_PAIRS))
    assert called_different(sequential) > sequential.total() / 5
    assert called_different(in_turns) == 0
    assert lag_one(times) > 0.5 > 0.36 > abs(lag_one(NORMAL))


def test_a_slowdown_of_five_per_cent_is_found_at_two_per_cent_and_missed_at_five() -> None:
    draw = np.random.default_rng(4).standard_normal
    near, far = (verdicts(slowed(draw, scatter, FIVE, 300), FIVE) for scatter in (0.02, 0.05))
    assert near[Comparative.SLOWER] / 300 > 0.85
    assert far[Comparative.SLOWER] / 300 < 0.5
    assert near[Comparative.FASTER] == 0


@pytest.mark.parametrize(("order", "bias"), [(FIVE, 0.0163), (TEN_PAIRS, 0.0)])
def test_a_drift_biases_results_one_after_the_other_and_not_those_in_turns(order: str, bias: float) -> None:
    """By hand: the last five of ten runs of a line from 1 to 1.03 are 1.0234, the first five 1.0066 on average."""
    pair, *_ = drifted(without_return(np.ones(30), np.random.default_rng(5)), order, 1)
    assert 1 / ratio(pair, order).interval.value - 1 == pytest.approx(bias, abs=0.0004)

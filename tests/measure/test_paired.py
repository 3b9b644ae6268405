"""The ratio of runs that took turns: by hand, free of drift and order, and how often its interval holds the truth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dyno.measure.paired import paired_ratio
from dyno.measure.ratio import compared, ratio_of_means
from dyno.measure.statistics import student_t
from dyno.models.comparison import Comparative

TRIALS, PAIRS = 2000, 10
Noise = Callable[[np.random.Generator, int], np.ndarray]


def test_it_is_the_cross_over_estimate_worked_out_by_hand() -> None:
    found = paired_ratio([1.1, 1.3, 1.2, 1.5], [1.0, 1.0, 1.0, 1.0])
    logs = [math.log(value) for value in (1.1, 1.3, 1.2, 1.5)]
    centre = sum(logs) / 4
    variance = ((logs[0] - logs[2]) ** 2 / 2 + (logs[1] - logs[3]) ** 2 / 2) / 2
    half = student_t(2) * math.sqrt(variance * (1 / 2 + 1 / 2)) / 2
    assert found.degrees == 2
    assert found.interval.value == pytest.approx(math.exp(centre))
    assert found.interval.low == pytest.approx(math.exp(centre - half))
    assert found.interval.high == pytest.approx(math.exp(centre + half))


def test_the_other_way_round_is_the_inverse() -> None:
    over, under = [1.1, 1.3, 1.2, 1.5], [1.0, 0.9, 1.1, 1.0]
    there, back = paired_ratio(over, under), paired_ratio(under, over)
    assert there.interval.value * back.interval.value == pytest.approx(1)
    assert there.interval.low * back.interval.high == pytest.approx(1)  # type: ignore[operator]
    assert there.smallest_effect == pytest.approx(back.smallest_effect)


def in_turns(levels: np.ndarray, truth: float) -> tuple[list[float], list[float]]:
    """From what the machine was at each of 2 n runs to the figures of both: AB, BA, AB, …; B is `truth` times A."""
    first, second = [], []
    for place in range(0, len(levels), 2):
        one, other = levels[place], levels[place + 1]
        backwards = place // 2 % 2
        first.append(float(other if backwards else one))
        second.append(float((one if backwards else other) * truth))
    return second, first


def test_a_drift_that_is_a_straight_line_and_what_going_second_costs_drop_out() -> None:
    places = np.arange(2 * PAIRS)
    levels = np.exp(0.03 * places / len(places)) * np.where(places % 2, 1.1, 1.0)
    found = paired_ratio(*in_turns(levels, 1.05))
    assert found.interval.value == pytest.approx(1.05, rel=1e-12)
    assert found.interval.high == pytest.approx(1.05, rel=1e-6)
    assert (
        ratio_of_means(levels[PAIRS:].tolist(), levels[:PAIRS].tolist()).interval.value > 1.014
    )  # one after the other


def normal(random: np.random.Generator, count: int) -> np.ndarray:
    return 0.02 * random.normal(size=count)


def heavy_tailed(random: np.random.Generator, count: int) -> np.ndarray:
    return 0.01 * random.standard_t(3, size=count)


def drifting(random: np.random.Generator, count: int) -> np.ndarray:
    return normal(random, count) + np.linspace(0, 0.1, count)


def wandering(random: np.random.Generator, count: int) -> np.ndarray:
    return np.cumsum(0.01 * random.normal(size=count))


@pytest.mark.parametrize("noise", [normal, heavy_tailed, drifting, wandering])
@pytest.mark.parametrize("pairs", [4, PAIRS])
def test_the_interval_holds_the_truth_as_often_as_it_says(noise: Noise, pairs: int) -> None:
    """2,000 trials: two standard errors are 1 %. Normal quantiles in place of t cover 80 % with four pairs."""
    random, truth, held = np.random.default_rng(20250301), 1.05, 0
    for _ in range(TRIALS):
        interval = paired_ratio(*in_turns(np.exp(noise(random, 2 * pairs)), truth)).interval
        assert interval.low is not None
        assert interval.high is not None
        held += interval.low <= truth <= interval.high
    assert 0.93 <= held / TRIALS <= 0.975


def test_where_the_machine_wanders_pairs_find_what_separate_means_do_not() -> None:
    random, found = np.random.default_rng(3), {"paired": 0, "apart": 0}
    for _ in range(300):
        over, under = in_turns(np.exp(wandering(random, 2 * PAIRS)), 1.02)
        for name, estimate in (("paired", paired_ratio), ("apart", ratio_of_means)):
            found[name] += compared(estimate(over, under).interval, 0.001) is Comparative.FASTER
    assert found["paired"] >= 0.95 * 300
    assert found["apart"] <= 0.8 * 300


def test_a_difference_of_the_smallest_effect_is_found_as_often_as_it_says() -> None:
    random = np.random.default_rng(11)
    levels = np.exp([normal(random, 2 * PAIRS) for _ in range(TRIALS)])
    effect = float(np.mean([paired_ratio(*in_turns(each, 1.0)).smallest_effect or 0.0 for each in levels]))
    told = [compared(paired_ratio(*in_turns(each, 1 + effect)).interval, 1e-9) for each in levels]
    assert 0.74 <= told.count(Comparative.FASTER) / TRIALS <= 0.86


def test_two_pairs_give_a_ratio_without_an_interval() -> None:
    found = paired_ratio([2.0, 2.0], [1.0, 1.1])
    assert found.interval.value == pytest.approx(2 / math.sqrt(1.1))
    assert (found.interval.low, found.degrees, found.smallest_effect) == (None, None, None)
    assert "two pairs" in str(found.interval.reason)


@pytest.mark.parametrize(("over", "under"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 0.0], [1.0, 1.0])])
def test_half_pairs_and_what_has_no_logarithm_are_refused(over: list[float], under: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|above zero"):
        paired_ratio(over, under)

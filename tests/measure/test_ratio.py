"""Fieller's interval against published examples, by its definition, and by how often it holds the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.measure.ratio import compared, fieller, ratio_of_means
from dyno.measure.statistics import Interval, student_t
from dyno.models.comparison import Comparative

TRIALS = 2000


@pytest.mark.parametrize(
    ("confidence", "low", "high"),
    [(0.90, 1.54, 2.64), (0.95, 1.46, 2.83), (0.99, 1.27, 3.36)],
)
def test_the_bounds_are_those_of_graphpad_s_published_example(confidence: float, low: float, high: float) -> None:
    """Means 14 and 7, standard deviations 3 and 2, six values each: GraphPad QuickCalcs takes 10 degrees of freedom."""
    bounds = fieller(14, 7, 3**2 / 6, 2**2 / 6, student_t(10, confidence))
    assert bounds == pytest.approx((low, high), abs=0.005)


def test_the_bounds_are_those_of_dcstats_published_example() -> None:
    assert fieller(14, 7, 3**2, 2**2, 1.812461) == pytest.approx((1.051413, 4.414296), abs=1e-6)


@given(*[st.lists(st.floats(0.5, 2.0), min_size=2, max_size=8)] * 2)
def test_at_each_bound_the_difference_is_just_significant(over: list[float], under: list[float]) -> None:
    found = ratio_of_means(over, under)
    if found.interval.low is None or found.interval.high is None or found.degrees is None:
        return
    t = student_t(found.degrees)
    for bound in (found.interval.low, found.interval.high):
        variance = np.var(over, ddof=1) / len(over) + bound**2 * np.var(under, ddof=1) / len(under)
        distance = abs(np.mean(over) - bound * np.mean(under))
        assert distance == pytest.approx(t * math.sqrt(variance), rel=1e-4, abs=1e-7)


@given(*[st.lists(st.floats(0.9, 1.1), min_size=2, max_size=8)] * 2)
def test_the_inverse_ratio_has_the_inverse_interval(over: list[float], under: list[float]) -> None:
    there, back = ratio_of_means(over, under), ratio_of_means(under, over)
    for bound, other in ((there.interval.low, back.interval.high), (there.interval.high, back.interval.low)):
        if bound is not None and other is not None and bound > 0:
            assert bound * other == pytest.approx(1)
    if there.smallest_effect is not None and back.smallest_effect is not None:
        assert there.smallest_effect == pytest.approx(back.smallest_effect, rel=1e-3, abs=1e-12)


def test_equal_groups_give_the_degrees_of_freedom_of_both() -> None:
    assert ratio_of_means([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]).degrees == pytest.approx(8)


def test_all_scatter_on_one_side_leaves_the_degrees_of_freedom_of_that_side() -> None:
    assert ratio_of_means([1, 2, 3, 4, 5], [3, 3, 3]).degrees == pytest.approx(4)


def test_one_run_gives_a_ratio_without_an_interval() -> None:
    found = ratio_of_means([2.0], [1.0, 1.1])
    assert found.interval.value == pytest.approx(2 / 1.05)
    assert (found.interval.low, found.interval.high, found.smallest_effect) == (None, None, None)
    assert "one run" in str(found.interval.reason)


def test_where_the_denominator_may_be_zero_there_is_no_interval() -> None:
    found = ratio_of_means([1.0, 1.1], [0.1, 2.0])
    assert found.interval.low is None
    assert "no upper bound" in str(found.interval.reason)
    assert compared(found.interval, 0.02) is Comparative.INCONCLUSIVE


def test_no_ratio_to_zero() -> None:
    with pytest.raises(ValueError, match="zero"):
        ratio_of_means([1.0, 2.0], [0.0, 0.0])


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.1, 1.3, Comparative.FASTER),
        (1.005, 1.05, Comparative.FASTER),
        (0.8, 0.99, Comparative.SLOWER),
        (0.985, 1.015, Comparative.SAME),
        (1.005, 1.015, Comparative.SAME),
        (1 / 1.02, 1.02, Comparative.SAME),
        (0.98, 1.0, Comparative.INCONCLUSIVE),
        (0.9, 1.1, Comparative.INCONCLUSIVE),
        (None, None, Comparative.INCONCLUSIVE),
    ],
)
def test_the_verdict_follows_from_the_whole_interval(low: float | None, high: float | None, verdict: str) -> None:
    assert compared(Interval(1.0, low, high), margin=0.02) == verdict


@pytest.mark.parametrize(
    ("scatter", "counts", "truth"),
    [((0.02, 0.02), (5, 5), 1.0), ((0.02, 0.10), (5, 5), 1.05), ((0.05, 0.02), (5, 8), 2.0)],
)
def test_the_interval_holds_the_truth_as_often_as_it_says(
    scatter: tuple[float, float], counts: tuple[int, int], truth: float
) -> None:
    """2,000 trials: two standard errors are 1 %. Normal quantiles in place of t cover 89 to 91 %, and fail."""
    random = np.random.default_rng(20240607)
    under = random.normal(1, scatter[0], (TRIALS, counts[0]))
    over = truth * random.normal(1, scatter[1], (TRIALS, counts[1]))
    intervals = [ratio_of_means(a, b).interval for a, b in zip(over.tolist(), under.tolist(), strict=True)]
    held = sum(i.low is not None and i.high is not None and i.low <= truth <= i.high for i in intervals)
    assert 0.93 <= held / TRIALS <= 0.975


def test_a_difference_of_the_smallest_effect_is_found_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    groups = random.normal(1, 0.02, (2, TRIALS, 5))
    effects = [ratio_of_means(a, b).smallest_effect for a, b in zip(*groups.tolist(), strict=True)]
    effect = float(np.mean([effect for effect in effects if effect is not None]))
    found = [
        compared(ratio_of_means(a, [value * (1 + effect) for value in b]).interval, 1e-9)
        for a, b in zip(*groups.tolist(), strict=True)
    ]
    assert 0.74 <= found.count(Comparative.SLOWER) / TRIALS <= 0.86
    assert found.count(Comparative.FASTER) <= 2

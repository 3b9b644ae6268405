"""Ratios of independent and of interleaved runs.

They are checked against published examples, calculations by hand, definitions, and coverage simulations.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.bench.measure.ratios import (
    comparative_verdict,
    fieller,
    more_runs,
    paired_ratio,
    ratio_of_means,
)
from dyno.bench.measure.statistics import Interval, student_t
from dyno.models.comparison import Comparative

TRIALS = 2000


@pytest.mark.parametrize(
    ("confidence", "low", "high"),
    [(0.90, 1.54, 2.64), (0.95, 1.46, 2.83), (0.99, 1.27, 3.36)],
)
def test_the_bounds_match_graphpad_s_published_example(confidence, low, high):
    """Means 14 and 7, standard deviations 3 and 2, six values each. GraphPad QuickCalcs uses 10 degrees of freedom."""
    bounds = fieller(14, 7, 3**2 / 6, 2**2 / 6, student_t(10, confidence))
    assert bounds == pytest.approx((low, high), abs=0.005)


def test_the_bounds_match_dcstats_published_example():
    assert fieller(14, 7, 3**2, 2**2, 1.812461) == pytest.approx((1.051413, 4.414296), abs=1e-6)


@given(*[st.lists(st.floats(0.5, 2.0), min_size=2, max_size=8)] * 2)
def test_at_each_bound_the_difference_is_just_significant(over, under):
    found = ratio_of_means(over, under)
    if found.interval.low is None or found.interval.high is None or found.degrees is None:
        return
    t = student_t(found.degrees)
    for bound in (found.interval.low, found.interval.high):
        variance = np.var(over, ddof=1) / len(over) + bound**2 * np.var(under, ddof=1) / len(under)
        distance = abs(np.mean(over) - bound * np.mean(under))
        assert distance == pytest.approx(t * math.sqrt(variance), rel=1e-4, abs=1e-7)


@given(*[st.lists(st.floats(0.9, 1.1), min_size=2, max_size=8)] * 2)
def test_the_inverse_ratio_has_the_inverse_interval(over, under):
    there, back = ratio_of_means(over, under), ratio_of_means(under, over)
    for bound, other in ((there.interval.low, back.interval.high), (there.interval.high, back.interval.low)):
        if bound is not None and other is not None and bound > 0:
            assert bound * other == pytest.approx(1)
    if there.smallest_effect is not None and back.smallest_effect is not None:
        assert there.smallest_effect == pytest.approx(back.smallest_effect, rel=1e-3, abs=1e-12)


def test_equal_groups_give_the_degrees_of_freedom_of_both():
    assert ratio_of_means([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]).degrees == pytest.approx(8)


def test_scatter_on_one_side_only_gives_the_degrees_of_freedom_of_that_side():
    assert ratio_of_means([1, 2, 3, 4, 5], [3, 3, 3]).degrees == pytest.approx(4)


def test_one_run_gives_a_ratio_without_an_interval():
    found = ratio_of_means([2.0], [1.0, 1.1])
    assert found.interval.value == pytest.approx(2 / 1.05)
    assert (found.interval.low, found.interval.high, found.smallest_effect) == (None, None, None)
    assert "at least two runs" in str(found.interval.reason)


def test_a_denominator_that_may_be_zero_gives_no_interval():
    found = ratio_of_means([1.0, 1.1], [0.1, 2.0])
    assert found.interval.low is None
    assert "no upper bound" in str(found.interval.reason)
    assert comparative_verdict(found.interval, 0.02) is Comparative.INCONCLUSIVE


def test_a_ratio_to_zero_is_refused():
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
def test_the_verdict_follows_from_the_whole_interval(low, high, verdict):
    assert comparative_verdict(Interval(1.0, low, high), margin=0.02) == verdict


@pytest.mark.parametrize(
    ("scatter", "counts", "truth"),
    [((0.02, 0.02), (5, 5), 1.0), ((0.02, 0.10), (5, 5), 1.05), ((0.05, 0.02), (5, 8), 2.0)],
)
def test_the_interval_covers_the_truth_at_its_confidence(scatter, counts, truth):
    """2,000 trials: two standard errors are 1 %. Normal quantiles instead of t cover 89 to 91 %, and fail."""
    random = np.random.default_rng(20240607)
    under = random.normal(1, scatter[0], (TRIALS, counts[0]))
    over = truth * random.normal(1, scatter[1], (TRIALS, counts[1]))
    intervals = [ratio_of_means(a, b).interval for a, b in zip(over.tolist(), under.tolist(), strict=True)]
    held = sum(i.low is not None and i.high is not None and i.low <= truth <= i.high for i in intervals)
    assert 0.93 <= held / TRIALS <= 0.975


def test_a_difference_of_the_smallest_effect_is_found_with_the_stated_power():
    random = np.random.default_rng(7)
    groups = random.normal(1, 0.02, (2, TRIALS, 5))
    effects = [ratio_of_means(a, b).smallest_effect for a, b in zip(*groups.tolist(), strict=True)]
    effect = float(np.mean([effect for effect in effects if effect is not None]))
    found = [
        comparative_verdict(ratio_of_means(a, [value * (1 + effect) for value in b]).interval, 1e-9)
        for a, b in zip(*groups.tolist(), strict=True)
    ]
    assert 0.74 <= found.count(Comparative.SLOWER) / TRIALS <= 0.86
    assert found.count(Comparative.FASTER) <= 2


PAIRED_TRIALS, PAIRS = 2000, 10
Noise = Callable[[np.random.Generator, int], np.ndarray]


def test_the_paired_ratio_matches_the_cross_over_estimate_by_hand():
    found = paired_ratio([1.1, 1.3, 1.2, 1.5], [1.0, 1.0, 1.0, 1.0])
    logs = [math.log(value) for value in (1.1, 1.3, 1.2, 1.5)]
    centre = sum(logs) / 4
    variance = ((logs[0] - logs[2]) ** 2 / 2 + (logs[1] - logs[3]) ** 2 / 2) / 2
    half = student_t(2) * math.sqrt(variance * (1 / 2 + 1 / 2)) / 2
    assert found.degrees == 2
    assert found.interval.value == pytest.approx(math.exp(centre))
    assert found.interval.low == pytest.approx(math.exp(centre - half))
    assert found.interval.high == pytest.approx(math.exp(centre + half))


def test_swapping_the_sides_inverts_the_paired_ratio():
    over, under = [1.1, 1.3, 1.2, 1.5], [1.0, 0.9, 1.1, 1.0]
    there, back = paired_ratio(over, under), paired_ratio(under, over)
    assert there.interval.value * back.interval.value == pytest.approx(1)
    assert there.interval.low * back.interval.high == pytest.approx(1)
    assert there.smallest_effect == pytest.approx(back.smallest_effect)


def in_turns(levels, truth):
    """Figures of both sides from the machine's speed at each of 2 n runs: AB, BA, AB, …; B is `truth` times A."""
    first, second = [], []
    for place in range(0, len(levels), 2):
        one, other = levels[place], levels[place + 1]
        backwards = place // 2 % 2
        first.append(float(other if backwards else one))
        second.append(float((one if backwards else other) * truth))
    return second, first


def test_linear_drift_and_the_effect_of_going_second_cancel():
    places = np.arange(2 * PAIRS)
    levels = np.exp(0.03 * places / len(places)) * np.where(places % 2, 1.1, 1.0)
    found = paired_ratio(*in_turns(levels, 1.05))
    assert found.interval.value == pytest.approx(1.05, rel=1e-12)
    assert found.interval.high == pytest.approx(1.05, rel=1e-6)
    assert (
        ratio_of_means(levels[PAIRS:].tolist(), levels[:PAIRS].tolist()).interval.value > 1.014
    )  # one after the other


def normal(random, count):
    return 0.02 * random.normal(size=count)


def heavy_tailed(random, count):
    return 0.01 * random.standard_t(3, size=count)


def drifting(random, count):
    return normal(random, count) + np.linspace(0, 0.1, count)


def wandering(random, count):
    return np.cumsum(0.01 * random.normal(size=count))


@pytest.mark.parametrize("noise", [normal, heavy_tailed, drifting, wandering])
@pytest.mark.parametrize("pairs", [4, PAIRS])
def test_the_paired_interval_covers_the_truth_at_its_confidence(noise, pairs):
    """2,000 trials: two standard errors are 1 %. Normal quantiles instead of t cover 80 % with four pairs."""
    random, truth, held = np.random.default_rng(20250301), 1.05, 0
    for _ in range(PAIRED_TRIALS):
        interval = paired_ratio(*in_turns(np.exp(noise(random, 2 * pairs)), truth)).interval
        assert interval.low is not None
        assert interval.high is not None
        held += interval.low <= truth <= interval.high
    assert 0.93 <= held / PAIRED_TRIALS <= 0.975


def test_on_a_wandering_machine_pairs_find_differences_that_separate_means_miss():
    random, found = np.random.default_rng(3), {"paired": 0, "apart": 0}
    for _ in range(300):
        over, under = in_turns(np.exp(wandering(random, 2 * PAIRS)), 1.02)
        for name, estimate in (("paired", paired_ratio), ("apart", ratio_of_means)):
            found[name] += comparative_verdict(estimate(over, under).interval, 0.001) is Comparative.FASTER
    assert found["paired"] >= 0.95 * 300
    assert found["apart"] <= 0.8 * 300


def test_a_paired_difference_of_the_smallest_effect_is_found_with_the_stated_power():
    random = np.random.default_rng(11)
    levels = np.exp([normal(random, 2 * PAIRS) for _ in range(PAIRED_TRIALS)])
    effect = float(np.mean([paired_ratio(*in_turns(each, 1.0)).smallest_effect or 0.0 for each in levels]))
    verdicts = [comparative_verdict(paired_ratio(*in_turns(each, 1 + effect)).interval, 1e-9) for each in levels]
    assert 0.74 <= verdicts.count(Comparative.FASTER) / PAIRED_TRIALS <= 0.86


def test_two_pairs_give_a_ratio_without_an_interval():
    found = paired_ratio([2.0, 2.0], [1.0, 1.1])
    assert found.interval.value == pytest.approx(2 / math.sqrt(1.1))
    assert (found.interval.low, found.degrees, found.smallest_effect) == (None, None, None)
    assert "more than two pairs" in str(found.interval.reason)


@pytest.mark.parametrize(("over", "under"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 0.0], [1.0, 1.0])])
def test_incomplete_pairs_and_figures_without_a_logarithm_are_refused(over, under):
    with pytest.raises(ValueError, match=r"pairs|above zero"):
        paired_ratio(over, under)


MARGIN = 0.02


def centred(mean, deviation, count=5):
    """Figures with exactly this mean and standard deviation."""
    draw = np.random.default_rng(5).normal(size=count)
    return list(mean + deviation * (draw - draw.mean()) / draw.std(ddof=1))


def decided(estimate):
    return comparative_verdict(estimate.interval, MARGIN) is not Comparative.INCONCLUSIVE


TRUTHS = [1.0, 1.005, 1.01, 1.015, 1.03]


@pytest.mark.parametrize("ratio", TRUTHS)
def test_that_many_more_runs_decide_with_the_stated_power(ratio):
    """From five runs a side that scatter by 3 %, at a margin of 2 %. 400 trials: two standard errors are 4 %."""
    estimate = ratio_of_means(centred(ratio, 0.03), centred(1, 0.03))
    assert not decided(estimate)
    more = more_runs(estimate, MARGIN)
    assert more is not None
    random = np.random.default_rng(13)

    def share(runs):
        draws = (random.normal([[1.0], [ratio]], 0.03, (2, 5 + runs)).tolist() for _ in range(400))
        return sum(decided(ratio_of_means(over, under)) for under, over in draws) / 400

    assert share(more) >= 0.75
    assert share(more * 3 // 4) <= 0.8


@pytest.mark.parametrize("ratio", TRUTHS)
def test_that_many_more_pairs_decide_and_are_even(ratio):
    """From six pairs whose ratios scatter by 3 %."""
    estimate = paired_ratio(centred(ratio, 0.03, 6), [1.0] * 6)
    more = more_runs(estimate, MARGIN)
    assert more is not None
    assert more % 2 == 0
    random = np.random.default_rng(17)
    draws = (random.normal(ratio, 0.03, 6 + more).tolist() for _ in range(400))
    assert sum(decided(paired_ratio(over, [1.0] * len(over))) for over in draws) / 400 >= 0.75


def test_a_baseline_that_may_be_zero_is_decided_by_more_runs_too():
    assert more_runs(ratio_of_means([1.0, 1.1], [0.1, 2.0]), MARGIN) is not None


def test_without_scatter_or_within_a_million_no_number_of_runs_is_known():
    assert more_runs(ratio_of_means([1.0], [1.0, 1.1]), MARGIN) is None
    assert more_runs(paired_ratio([2.0, 2.0], [1.0, 1.1]), MARGIN) is None
    assert more_runs(ratio_of_means([0.5, 1.5], [0.5, 1.5]), 1e-6) is None

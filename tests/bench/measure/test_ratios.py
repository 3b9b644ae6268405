"""Ratios of independent runs, of interleaved runs, and of jobs in rounds.

They are checked against published examples, calculations by hand, definitions, and coverage simulations.
"""

import math
from functools import partial
from random import Random

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
    ratio_over_rounds,
)
from dyno.bench.measure.statistics import Interval, student_t
from dyno.models.comparison import Comparative

TRIALS, PAIRS, SWEEPS = 2000, 10, 400
MARGIN = 0.02
ESTIMATORS = (ratio_of_means, paired_ratio, ratio_over_rounds)


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


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(pairs=st.lists(st.tuples(*[st.floats(0.9, 1.1)] * 2), min_size=3, max_size=8))
def test_the_inverse_ratio_has_the_inverse_interval(estimator, pairs):
    over, under = zip(*pairs, strict=True)
    there, back = estimator(over, under), estimator(under, over)
    for bound, other in ((there.interval.low, back.interval.high), (there.interval.high, back.interval.low)):
        if bound is not None and other is not None and bound > 0:
            assert bound * other == pytest.approx(1)
    if there.smallest_effect is not None and back.smallest_effect is not None:
        assert there.smallest_effect == pytest.approx(back.smallest_effect, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize(("under", "degrees"), [([5, 4, 3, 2, 1], 8), ([3, 3, 3], 4)])
def test_equal_groups_have_the_degrees_of_freedom_of_both_and_a_side_without_scatter_has_none(under, degrees):
    assert ratio_of_means([1, 2, 3, 4, 5], under).degrees == pytest.approx(degrees)


def test_the_paired_ratio_matches_the_cross_over_estimate_by_hand():
    found = paired_ratio([1.1, 1.3, 1.2, 1.5], [1.0, 1.0, 1.0, 1.0])
    logs = [math.log(value) for value in (1.1, 1.3, 1.2, 1.5)]
    centre = sum(logs) / 4
    variance = ((logs[0] - logs[2]) ** 2 / 2 + (logs[1] - logs[3]) ** 2 / 2) / 2
    half = student_t(2) * math.sqrt(variance * (1 / 2 + 1 / 2)) / 2
    assert found.degrees == 2
    bounds = found.interval.low, found.interval.value, found.interval.high
    assert bounds == pytest.approx((math.exp(centre - half), math.exp(centre), math.exp(centre + half)))


def test_a_change_from_round_to_round_cancels():
    steady = ratio_over_rounds([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]).interval
    assert (steady.low, steady.value, steady.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize(
    ("estimate", "value", "reason"),
    [
        (ratio_of_means([2.0], [1.0, 1.1]), 2 / 1.05, "at least two runs"),
        (ratio_of_means([1.0, 1.1], [0.1, 2.0]), 1.0, "no upper bound"),
        (paired_ratio([2.0, 2.0], [1.0, 1.1]), 2 / math.sqrt(1.1), "more than two pairs"),
        (ratio_over_rounds([3.0], [2.0]), 1.5, "at least two rounds"),
    ],
)
def test_too_few_figures_and_a_denominator_that_may_be_zero_give_no_interval(estimate, value, reason):
    assert (estimate.interval.value, estimate.interval.low) == (pytest.approx(value), None)
    assert (estimate.interval.high, estimate.smallest_effect) == (None, None)
    assert reason in estimate.interval.reason
    assert comparative_verdict(estimate.interval, MARGIN) is Comparative.INCONCLUSIVE
    assert (more_runs(estimate, MARGIN) is None) == (estimate.with_more is None) == ("upper" not in reason)


def test_within_a_million_runs_the_number_may_be_unknown():
    assert more_runs(ratio_of_means([0.5, 1.5], [0.5, 1.5]), 1e-6) is None


@pytest.mark.parametrize(
    ("estimator", "over", "under"),
    [
        (ratio_of_means, [1.0, 2.0], [0.0, 0.0]),
        (paired_ratio, [1.0], [1.0]),
        (paired_ratio, [1.0, 2.0], [1.0]),
        (paired_ratio, [1.0, 0.0], [1.0, 1.0]),
        (ratio_over_rounds, [], []),
        (ratio_over_rounds, [1.0], [1.0, 2.0]),
        (ratio_over_rounds, [0.0, 1.0], [1.0, 1.0]),
    ],
)
def test_incomplete_pairs_and_figures_without_a_ratio_are_refused(estimator, over, under):
    with pytest.raises(ValueError, match=r"zero|pairs|a ratio over rounds needs"):
        estimator(over, under)


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
    assert comparative_verdict(Interval(1.0, low, high), margin=MARGIN) == verdict


def in_turns(levels, truth):
    """Figures of both sides from the machine's speed at each of 2 n runs: AB, BA, AB, …; B is `truth` times A."""
    first, second = [], []
    for place in range(0, len(levels), 2):
        one, other = levels[place], levels[place + 1]
        backwards = place // 2 % 2
        first.append(float(other if backwards else one))
        second.append(float((one if backwards else other) * truth))
    return second, first


def normal(random, count):
    return 0.02 * random.normal(size=count)


def heavy_tailed(random, count):
    return 0.01 * random.standard_t(3, size=count)


def drifting(random, count):
    return normal(random, count) + np.linspace(0, 0.1, count)


def wandering(random, count):
    return np.cumsum(0.01 * random.normal(size=count))


def share_of(estimates, truth):
    intervals = [estimate.interval for estimate in estimates]
    return sum(interval.low <= truth <= interval.high for interval in intervals) / len(intervals)


@pytest.mark.parametrize(
    ("scatter", "counts", "truth"),
    [((0.02, 0.02), (5, 5), 1.0), ((0.02, 0.10), (5, 5), 1.05), ((0.05, 0.02), (5, 8), 2.0)],
)
def test_the_interval_covers_the_truth_at_its_confidence(scatter, counts, truth):
    """2,000 trials: two standard errors are 1 %. Normal quantiles instead of t cover 89 to 91 %, and fail."""
    random = np.random.default_rng(20240607)
    under = random.normal(1, scatter[0], (TRIALS, counts[0])).tolist()
    over = (truth * random.normal(1, scatter[1], (TRIALS, counts[1]))).tolist()
    assert 0.93 <= share_of(map(ratio_of_means, over, under), truth) <= 0.975


@pytest.mark.parametrize("noise", [normal, heavy_tailed, drifting, wandering])
@pytest.mark.parametrize("pairs", [4, PAIRS])
def test_the_paired_interval_covers_the_truth_at_its_confidence(noise, pairs):
    """Normal quantiles instead of t cover 80 % with four pairs."""
    random, truth = np.random.default_rng(20250301), 1.05
    levels = (np.exp(noise(random, 2 * pairs)) for _ in range(TRIALS))
    assert 0.93 <= share_of((paired_ratio(*in_turns(of, truth)) for of in levels), truth) <= 0.975


def a_sweep(dice, rounds, runs, drift=0.03, between_jobs=0.01, between_runs=0.002):
    """The runs of two points whose true ratio is 1.1, by round. The machine gets slower, and jobs differ in speed."""
    points = [], []
    for place in range(rounds):
        for turn, point in enumerate(dice.sample([0, 1], 2)):
            at = (2 * place + turn) / (2 * rounds)
            speed = (1.0, 1.1)[point] * (1 - drift * at) * math.exp(dice.gauss(0, between_jobs))
            points[point].append([speed * math.exp(dice.gauss(0, between_runs)) for _ in range(runs)])
    return points


@pytest.mark.parametrize(("rounds", "runs"), [(5, 1), (3, 2), (1, 5)])
def test_rounds_cover_the_true_ratio_where_two_jobs_of_as_many_runs_do_not(rounds, runs):
    def estimate(base, other):
        if rounds == 1:
            return ratio_of_means(other[0], base[0])
        return ratio_over_rounds(*([sum(job) / runs for job in point] for point in (other, base)))

    dice = Random(7)
    held = share_of((estimate(*a_sweep(dice, rounds, runs)) for _ in range(SWEEPS)), 1.1)
    assert held < 0.5 if rounds == 1 else held == pytest.approx(0.95, abs=0.03)


def test_linear_drift_and_the_effect_of_going_second_cancel():
    places = np.arange(2 * PAIRS)
    levels = np.exp(0.03 * places / len(places)) * np.where(places % 2, 1.1, 1.0)
    found = paired_ratio(*in_turns(levels, 1.05)).interval
    assert (found.value, found.high) == (pytest.approx(1.05, rel=1e-12), pytest.approx(1.05, rel=1e-6))
    one_after_the_other = ratio_of_means(levels[PAIRS:].tolist(), levels[:PAIRS].tolist())
    assert one_after_the_other.interval.value > 1.014


def test_on_a_wandering_machine_pairs_find_differences_that_separate_means_miss():
    random, trials = np.random.default_rng(3), 300
    figures = [in_turns(np.exp(wandering(random, 2 * PAIRS)), 1.02) for _ in range(trials)]
    paired, apart = (
        sum(comparative_verdict(estimate(*both).interval, 0.001) is Comparative.FASTER for both in figures) / trials
        for estimate in (paired_ratio, ratio_of_means)
    )
    assert paired >= 0.95
    assert apart <= 0.8


@pytest.mark.parametrize("estimator", [ratio_of_means, paired_ratio])
def test_a_difference_of_the_smallest_effect_is_found_with_the_stated_power(estimator):
    random, count = np.random.default_rng(7), 5 if estimator is ratio_of_means else PAIRS
    sides = random.normal(1, 0.02, (TRIALS, 2, count)).tolist()
    effect = float(np.mean([estimator(*both).smallest_effect or 0.0 for both in sides]))
    slower = [estimator(over, [value * (1 + effect) for value in under]) for over, under in sides]
    verdicts = [comparative_verdict(estimate.interval, 1e-9) for estimate in slower]
    assert 0.74 <= verdicts.count(Comparative.SLOWER) / TRIALS <= 0.86
    assert verdicts.count(Comparative.FASTER) <= 2


def centred(mean, deviation, count):
    """Figures with exactly this mean and standard deviation."""
    draw = np.random.default_rng(5).normal(size=count)
    return list(mean + deviation * (draw - draw.mean()) / draw.std(ddof=1))


def share_decided(draw, trials=400):
    decided = [comparative_verdict(draw().interval, MARGIN) is not Comparative.INCONCLUSIVE for _ in range(trials)]
    return sum(decided) / trials


TRUTHS = [1.0, 1.005, 1.01, 1.015, 1.03]


@pytest.mark.parametrize("ratio", TRUTHS)
def test_that_many_more_runs_decide_with_the_stated_power(ratio):
    """From five runs a side that scatter by 3 %, at a margin of 2 %. 400 trials: two standard errors are 4 %."""
    estimate, random = ratio_of_means(centred(ratio, 0.03, 5), centred(1, 0.03, 5)), np.random.default_rng(13)
    more = more_runs(estimate, MARGIN)

    def draw(runs):
        return ratio_of_means(*random.normal([[ratio], [1.0]], 0.03, (2, 5 + runs)).tolist())

    assert comparative_verdict(estimate.interval, MARGIN) is Comparative.INCONCLUSIVE
    assert share_decided(partial(draw, more)) >= 0.75
    assert share_decided(partial(draw, more * 3 // 4)) <= 0.8


@pytest.mark.parametrize(("estimator", "count", "step"), [(paired_ratio, 6, 2), (ratio_over_rounds, 4, 1)])
@pytest.mark.parametrize("ratio", TRUTHS)
def test_that_many_more_pairs_or_rounds_decide(estimator, count, step, ratio):
    """From ratios that scatter by 3 %."""
    more = more_runs(estimator(centred(ratio, 0.03, count), [1.0] * count), MARGIN)
    assert more % step == 0
    random, ones = np.random.default_rng(17), [1.0] * (count + more)
    assert share_decided(lambda: estimator(random.normal(ratio, 0.03, count + more).tolist(), ones)) >= 0.75

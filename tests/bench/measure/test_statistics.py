"""Statistics against textbook values and against brute force."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.bench.measure.statistics import (
    change_point,
    mad,
    mean_interval,
    median,
    median_interval,
    quantile,
    quartiles,
    separated,
    student_t,
    wilson_interval,
)

finite = st.floats(-1e9, 1e9)


@given(st.lists(finite, min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_match_numpy(values, share):
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), abs=1e-5)


def test_the_median_of_no_values_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_quartiles_and_mad_of_one_to_five():
    assert quartiles([5, 1, 4, 2, 3]) == (2, 4)
    assert mad([1, 2, 3, 4, 100]) == 1


@pytest.mark.parametrize(
    ("degrees", "confidence", "t"),
    [(1, 0.95, 12.706), (4, 0.95, 2.776), (9, 0.95, 2.262), (29, 0.95, 2.045), (4, 0.99, 4.604)],
)
def test_student_s_t_matches_the_tables(degrees, confidence, t):
    assert student_t(degrees, confidence) == pytest.approx(t, abs=5e-4)


def test_the_interval_of_a_mean_by_hand():
    """Mean 3, standard deviation sqrt(2.5), n = 5: 3 ± 2.7764 x 0.70711."""
    interval = mean_interval([1, 2, 3, 4, 5])
    assert interval.value == 3
    assert interval.low == pytest.approx(3 - 1.96325, abs=1e-4)
    assert interval.high == pytest.approx(3 + 1.96325, abs=1e-4)
    assert interval.rel_half_width == pytest.approx(0.654416, abs=1e-4)


def test_one_value_has_no_interval_but_a_reason():
    interval = mean_interval([7.0])
    assert (interval.value, interval.low, interval.high) == (7.0, None, None)
    assert interval.reason == "one run gives no interval"
    assert interval.rel_half_width is None


# n, and the 1-based rank k of the lower limit: Conover, Practical Nonparametric Statistics (3rd ed.), table A3
@pytest.mark.parametrize(("count", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (30, 10)])
def test_the_interval_of_a_median_uses_the_ranks_of_the_tables(count, rank):
    interval = median_interval([float(value) for value in range(count, 0, -1)])
    assert (interval.low, interval.high) == (rank, count + 1 - rank)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_below_six_values_a_median_has_no_interval_but_a_reason(count):
    interval = median_interval([1.0] * count)
    assert interval.low is None
    assert str(count) in (interval.reason or "")


@given(st.integers(6, 14))
def test_the_interval_of_a_median_covers_at_least_95_percent_and_no_rank_more_would(count):
    """Brute force: each value lies below or above the true median with probability one half."""
    interval = median_interval([float(value) for value in range(1, count + 1)])
    assert interval.low is not None
    rank = int(interval.low)

    def coverage(k):
        covered = sum(k <= sum(sides) <= count - k for sides in product((0, 1), repeat=count))
        return float(covered / 2**count)

    assert coverage(rank) >= 0.95
    assert coverage(rank + 1) < 0.95


@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=60))
def test_the_interval_of_a_median_holds_the_median(values):
    interval = median_interval(values)
    assert interval.low <= interval.value <= interval.high


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    # Newcombe (1998), Statistics in Medicine 17, table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_s_interval_matches_newcombe_s_table(hits, trials, low, high):
    interval = wilson_interval(hits, trials)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@pytest.mark.parametrize(("hits", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_an_invalid_proportion_is_refused(hits, trials):
    with pytest.raises(ValueError, match="not a proportion"):
        wilson_interval(hits, trials)


def test_the_rank_test_counts_wins_in_standard_deviations_of_u():
    """For 5 against 5: U = 3 is 1.98 standard deviations from 12.5, U = 4 is 1.78."""
    assert separated([1, 2, 3, 4, 5], [3.5, 4.5, 6, 7, 8], 1.9)  # U = 3
    assert not separated([1, 2, 3, 4, 5], [3.5, 3.6, 6, 7, 8], 1.9)  # U = 4
    assert not separated([1.0] * 5, [1.0] * 5, 1.9)


def test_a_change_point_is_the_first_value_of_the_new_level():
    assert change_point([1.0] * 8 + [2.0] * 12, 0.01) == 8
    assert change_point([2.0, 2.1, 1.9] * 5 + [1.0, 1.1] * 6, 0.01) == 15


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 50, [1.0, 2.0] * 25, [1.0] * 24 + [9.0] + [1.0] * 25])
def test_constant_alternating_or_outlying_values_have_no_change_point(values):
    assert change_point(values, 0.05) is None


def test_pettitt_s_statistic_matches_its_definition():
    """K of the ten values below, by brute force over all pairs. The test's p is 2 exp(-6 K^2 / (n^3 + n^2))."""
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 8.0, 7.0, 9.5, 9.7]
    count = len(values)
    largest = max(abs(sum(np.sign(x - y) for x in values[:split] for y in values[split:])) for split in range(1, count))
    chance = 2 * math.exp(-6 * largest**2 / (count**3 + count**2))
    assert change_point(values, chance * 1.001) is not None
    assert change_point(values, chance * 0.999) is None


def test_false_alarms_of_the_change_point_are_rarer_than_its_significance():
    rng = np.random.default_rng(3)
    alarms = sum(change_point(list(rng.standard_normal(40)), 0.05) is not None for _ in range(600))
    assert alarms / 600 < 0.05


def mean_of_modes(rng, trials):
    """Five processes of twenty samples each; processes scatter by 1, samples within a process by 1."""
    centres = rng.standard_normal((trials, 5, 1))
    return 100 + centres + rng.standard_normal((trials, 5, 20))


def test_t_over_process_medians_covers_the_truth_where_pooling_all_samples_does_not():
    trials = 400
    draws = mean_of_modes(np.random.default_rng(7), trials)
    runs = pooled = 0
    for draw in draws:
        over_runs = mean_interval([median(list(run)) for run in draw])
        over_all = mean_interval(list(draw.ravel()))
        runs += over_runs.low <= 100 <= over_runs.high
        pooled += over_all.low <= 100 <= over_all.high
    sampling_error = 3 * math.sqrt(0.95 * 0.05 / trials)
    assert runs / trials == pytest.approx(0.95, abs=sampling_error)
    assert pooled / trials < 0.6


def test_an_interval_whose_first_values_fixed_their_number_is_at_least_that_of_those():
    """Stein: the deviation 1 and t(1) = 12.706 of the first two values, over the root of four."""
    values = [-(0.5**0.5), 0.5**0.5, 0.0, 0.0]
    assert mean_interval(values, first_set=2).high == pytest.approx(12.706 / 2, rel=1e-4)
    wild = [0.0, 0.0, 5.0, -5.0]
    assert mean_interval(wild, first_set=2) == mean_interval(wild)

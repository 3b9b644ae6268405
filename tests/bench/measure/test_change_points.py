"""Change points of series whose truth is known."""

import math
import random
from itertools import pairwise

import pytest

from dyno.bench.measure.change_points import MIN_LEVEL, find_changes, ratio_of_levels

DEVIATION = 0.02


def levels(*parts, seed=1):
    """`count` values around each level, with a coefficient of variation of 2 %."""
    rng = random.Random(seed)
    return [level * math.exp(rng.gauss(0, DEVIATION)) for count, level in parts for _ in range(count)]


def test_a_step_is_found_where_it_is_with_its_ratio():
    (change,) = find_changes(levels((60, 100.0), (40, 90.0)))
    assert (change.index, change.before, change.after) == (60, 60, 40)
    assert change.low < 0.9 < change.high
    assert change.high - change.low < 0.02
    assert change.z > 10


def test_few_values_after_many_suffice_for_a_large_step():
    (change,) = find_changes(levels((40, 100.0), (MIN_LEVEL, 80.0)))
    assert (change.index, change.after) == (40, MIN_LEVEL)
    assert change.z > 5


def test_a_level_that_goes_back_has_two_changes():
    found = find_changes(levels((40, 100.0), (15, 90.0), (40, 100.0)))
    assert [change.index for change in found] == pytest.approx([40, 55], abs=1)
    assert found[0].ratio < 0.93 < 1.07 < found[1].ratio


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.5, 10.0])
def test_an_outlier_is_no_change(factor):
    for at in (20, 57, 58, 59):
        values = levels((60, 100.0))
        values[at] *= factor
        assert find_changes(values) == [], at


def test_series_without_a_step_rarely_have_a_change():
    found = [find_changes(levels((90, 100.0), seed=seed)) for seed in range(100)]
    assert sum(map(len, found)) <= 5


def test_a_rate_and_its_time_have_the_same_changes():
    values = levels((30, 100.0), (30, 90.0))
    (of_rate,), (of_time,) = find_changes(values), find_changes([1 / value for value in values])
    assert (of_rate.index, of_rate.z) == (of_time.index, pytest.approx(of_time.z))
    assert of_rate.ratio * of_time.ratio == pytest.approx(1)
    assert of_rate.low * of_time.high == pytest.approx(1)


def test_constant_values_have_no_change_and_an_exact_step_has_one():
    assert find_changes([5.0] * 20) == []
    (change,) = find_changes([5.0] * 10 + [4.0] * 10)
    assert (change.index, change.ratio) == (10, pytest.approx(0.8))
    assert math.isfinite(change.z)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 1.0, 2.0, 9.0]])
def test_too_few_values_have_no_change(values):
    assert find_changes(values) == []


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_values_must_be_above_zero(wrong):
    with pytest.raises(ValueError, match="above zero"):
        find_changes([1.0] * 10 + [wrong])


def test_every_level_has_its_least_number_of_values():
    for seed in range(20):
        bounds = [0, *(change.index for change in find_changes(levels((5, 1.0), (5, 1.2), (5, 0.8), seed=seed))), 15]
        assert min(end - start for start, end in pairwise(bounds)) >= MIN_LEVEL


def test_two_given_levels_have_a_ratio():
    change = ratio_of_levels(levels((10, 100.0)), levels((10, 110.0), seed=2))
    assert change.low < 1.1 < change.high
    assert ratio_of_levels([1.0], [1.0, 2.0]) is None

"""The ratio over rounds covers the truth where jobs differ and the machine drifts; that of two jobs doesn't."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from dyno.bench.measure.ratios import comparative_verdict, more_runs, ratio_of_means, ratio_over_rounds

SWEEPS = 400
DRIFT, BETWEEN_JOBS, BETWEEN_RUNS = 0.03, 0.01, 0.002  # relative: over a sweep, and standard deviations


def jobs(dice, rounds, runs):
    """The runs of two points whose true ratio is 1.1, by round. The machine gets slower, and jobs differ in speed."""
    found: tuple[list[list[float]], list[list[float]]] = ([], [])
    for place in range(rounds):
        order = dice.sample([0, 1], 2)
        for turn, point in enumerate(order):
            at = (2 * place + turn) / (2 * rounds)
            speed = (1.0, 1.1)[point] * (1 - DRIFT * at) * math.exp(dice.gauss(0, BETWEEN_JOBS))
            found[point].append([speed * math.exp(dice.gauss(0, BETWEEN_RUNS)) for _ in range(runs)])
    return found


def coverage(rounds, runs):
    dice, held = random.Random(7), 0
    for _ in range(SWEEPS):
        base, other = jobs(dice, rounds, runs)
        if rounds == 1:
            found = ratio_of_means(other[0], base[0])
        else:
            found = ratio_over_rounds(*([sum(job) / runs for job in point] for point in (other, base)))
        assert found.interval.low is not None
        assert found.interval.high is not None
        held += found.interval.low <= 1.1 <= found.interval.high
    return held / SWEEPS


def test_rounds_cover_the_true_ratio_where_two_jobs_of_as_many_runs_do_not():
    assert coverage(rounds=5, runs=1) == pytest.approx(0.95, abs=0.03)
    assert coverage(rounds=3, runs=2) == pytest.approx(0.95, abs=0.03)
    assert coverage(rounds=1, runs=5) < 0.5


def test_swapping_the_points_inverts_the_ratio_and_a_change_from_round_to_round_cancels():
    there = ratio_over_rounds([2.0, 4.2, 8.2], [1.0, 2.0, 4.0])
    back = ratio_over_rounds([1.0, 2.0, 4.0], [2.0, 4.2, 8.2])
    assert (there.interval.low, there.interval.high) == (
        pytest.approx(1 / (back.interval.high or 0)),
        pytest.approx(1 / (back.interval.low or 0)),
    )
    steady = ratio_over_rounds([2.0, 4.0, 8.0], [1.0, 2.0, 4.0])
    assert (steady.interval.low, steady.interval.value, steady.interval.high) == pytest.approx((2.0, 2.0, 2.0))


def test_that_many_more_rounds_decide_with_the_stated_power():
    """At the estimated ratio and scatter."""
    values = [1.0, 1.1, 1.2, 1.15]
    estimate = ratio_over_rounds(values, [1.05] * len(values))
    more = more_runs(estimate, 0.02)
    assert more is not None
    logs = [math.log(value / 1.05) for value in values]
    centre, dice, decided = fmean(logs), random.Random(7), 0
    for _ in range(SWEEPS):
        drawn = [math.exp(dice.gauss(centre, stdev(logs))) for _ in range(len(values) + more)]
        found = ratio_over_rounds(drawn, [1.0] * len(drawn))
        decided += comparative_verdict(found.interval, 0.02) != "INCONCLUSIVE"
    assert decided / SWEEPS == pytest.approx(0.8, abs=0.07)


def test_one_round_gives_no_interval_and_bad_figures_are_refused():
    single = ratio_over_rounds([3.0], [2.0]).interval
    assert (single.value, single.low, single.reason) == (1.5, None, "an interval needs at least two rounds")
    for over, under in (([], []), ([1.0], [1.0, 2.0]), ([0.0, 1.0], [1.0, 1.0])):
        with pytest.raises(ValueError, match="a ratio over rounds needs"):
            ratio_over_rounds(over, under)

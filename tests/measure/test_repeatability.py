"""`repeat`: how often it holds the next result, on simulated series whose truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest

from dyno.measure.repeatability import from_runs
from dyno.models.result import Metric, Repeat, Result
from dyno.models.runner_protocol import RunRecord

MakeRecord = Callable[..., RunRecord]
TRIALS = 1000  # a share of 95 % is known to ±1.4 %, one of 90 % to ±1.9 %


def drawn(rng: random.Random, level: float, within: float, runs: int = 5) -> list[float]:
    """The figures of one job's runs: lognormal around `level`."""
    return [level * math.exp(within * rng.gauss()) for _ in range(runs)]


def holds(repeat: Repeat | None, value: float) -> bool:
    assert repeat is not None
    return repeat.low <= value <= repeat.high


@pytest.mark.parametrize("runs", [2, 5, 20])
def test_from_the_runs_alone_it_holds_one_further_run_in_95_of_100_cases(runs: int) -> None:
    rng, held = random.Random(runs), 0
    for _ in range(TRIALS):
        *own, further = drawn(rng, 100.0, 0.02, runs + 1)
        held += holds(from_runs(fmean(own), own), further)
    assert held / TRIALS == pytest.approx(0.95, abs=0.022)  # three standard deviations


@pytest.mark.parametrize(("between", "least"), [(0.0, 0.98), (0.01, 0.95), (0.02, 0.85)])
def test_it_leaves_room_for_changes_between_jobs(between: float, least: float) -> None:
    """Runs scatter by 2 %; the levels of two jobs by nothing, by half as much, and by as much."""
    rng, held = random.Random(7), 0
    for _ in range(TRIALS):
        own, following = (drawn(rng, math.exp(between * rng.gauss()), 0.02) for _ in range(2))
        held += holds(from_runs(fmean(own), own), fmean(following))
    assert held / TRIALS >= least


def test_it_can_be_computed_by_hand() -> None:
    """Logarithms -0.1, 0 and 0.1 deviate by 0.1; t(2) = 4.3027; x 0.1 x sqrt(4 / 3) = 0.49683."""
    found = from_runs(1.0, [math.exp(-0.1), 1.0, math.exp(0.1)])
    assert found is not None
    assert (found.low, found.high) == pytest.approx((math.exp(-0.49683), math.exp(0.49683)), rel=1e-4)
    assert (found.based_on.runs, found.based_on.jobs) == (3, 0)


def test_a_rate_and_its_time_agree() -> None:
    rates = [90.0, 97.0, 100.0, 104.0, 120.0]
    of_rates, of_times = from_runs(100.0, rates), from_runs(0.01, [1 / rate for rate in rates])
    assert of_rates is not None
    assert of_times is not None
    assert (1 / of_times.high, 1 / of_times.low) == pytest.approx((of_rates.low, of_rates.high))


@pytest.mark.parametrize("figures", [[1e-300, 1.0, 1e300], [0.0, 0.1, 0.3], [0.0, 0.0]])
def test_wild_figures_and_shares_of_zero_have_finite_bounds_above_zero(figures: Sequence[float]) -> None:
    found = from_runs(max(figures), figures)
    assert found is not None
    assert 0 <= found.low <= max(figures) <= found.high < math.inf


def test_equal_runs_repeat_exactly_and_a_single_run_predicts_nothing() -> None:
    found = from_runs(5.0, [5.0, 5.0])
    assert found is not None
    assert (found.low, found.high) == (5.0, 5.0)
    assert from_runs(5.0, [5.0]) is None


def test_every_metric_with_an_interval_has_it_and_no_other(result: Callable[..., Result]) -> None:
    for metric in result().metrics:
        assert (metric.repeat is None) == (metric.low is None), metric.name
    throughput: Metric = result().metrics[0]
    assert throughput.repeat == from_runs(3500 / 3, [2000.0, 1000.0, 500.0])


def test_a_job_of_one_run_has_none(result: Callable[..., Result], record: MakeRecord) -> None:
    assert all(metric.repeat is None for metric in result([record([1.0] * 20, amounts={"execution": 1.0})]).metrics)

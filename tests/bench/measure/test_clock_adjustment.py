"""The elasticity of a series to the device's clock, on figures whose elasticity is known."""

import random

import numpy as np
import pytest

from dyno.bench.measure.clock_adjustment import (
    adjusted,
    assumed_elasticity,
    clock_hz,
    elasticity,
    factor,
    fit_runs,
)
from dyno.models.result import Peak, Peer
from tests.bench.measure.conftest import make_record
from tests.comparisons import a_metric, of_metrics


def jobs(clocks_hz, of_clock, noise=0.0):
    rng = random.Random(1)
    return [
        Peer(job="job", value=100 * (clock / 4e9) ** of_clock * (1 + noise * rng.gauss()), runs=5, clock_hz=clock)
        for clock in clocks_hz
    ]


WANDERING = [3.56e9, 3.7e9, 3.82e9, 3.9e9, 3.95e9, 4.02e9]


@pytest.mark.parametrize("of_clock", [0.89, 0.42, 0.0, -0.42])
def test_a_wandering_clock_shows_the_elasticity(of_clock):
    found = elasticity(jobs(WANDERING, of_clock, 0.001), 1.0 if of_clock >= 0 else -1.0)
    assert found.value == pytest.approx(of_clock, abs=0.05)
    assert found.lost_degrees > 0.9


def test_few_jobs_at_one_clock_leave_the_assumed_one():
    steady = jobs([4.0e9, 4.001e9, 3.999e9], 0.0, 0.01)
    assert elasticity(steady, 1.0).value == pytest.approx(1.0, abs=0.1)
    assert elasticity(steady[:1], -0.5).value == -0.5
    assert elasticity(steady[:1], -0.5).lost_degrees == 0.0


def test_it_is_between_none_and_that_of_the_clock_itself():
    assert elasticity(jobs(WANDERING, 3.0), 1.0).value == 1.0
    assert elasticity(jobs(WANDERING, -3.0), 1.0).value == 0.0
    assert elasticity(jobs(WANDERING, -3.0), -0.5).value == -1.0


def test_a_value_at_another_clock():
    job = Peer(job="job", value=336.0, runs=5, clock_hz=4.02e9)
    assert adjusted(job, 3.56e9, 0.89) == pytest.approx(301.5, abs=0.1)
    assert adjusted(job, 3.56e9, None) == adjusted(job, None, 0.89) == 336.0
    assert factor(None, 3.56e9, 0.89) == 1.0


def test_work_near_the_peak_is_assumed_to_follow_the_clock_and_other_work_by_half():
    result = of_metrics([a_metric()])
    assert assumed_elasticity(result.model_copy(update={"peak": Peak(value=1e12, fraction=0.8)})) == 1.0
    assert assumed_elasticity(result.model_copy(update={"peak": Peak(value=1e12, fraction=0.1)})) == 0.5
    assert assumed_elasticity(result.model_copy(update={"peak": Peak(value=None)})) == 0.5


def test_the_clock_of_a_result_is_the_mean_of_its_runs_and_unknown_if_one_is():
    def of(*clocks):
        runs = [make_record([1.0] * 20, clock_hz=clock).summary for clock in clocks]
        return clock_hz(of_metrics([a_metric()], runs=runs))

    assert of(3e9, 4e9) == 3.5e9
    assert of(3e9, None) is None
    assert of() is None


def test_what_the_clock_leaves_of_the_scatter():
    times = [1 / clock for clock in WANDERING]
    fit = fit_runs(WANDERING, times)
    assert fit.left == pytest.approx(0.0, abs=1e-9)
    assert fit.as_is == pytest.approx(0.045, abs=0.005)
    assert fit.moved == pytest.approx(fit.clock_moved)
    same = fit_runs([4e9, 4e9], [1.0, 2.0])
    assert (same.as_is, same.moved, same.clock_moved) == (same.left, 0.0, 0.0)
    assert fit_runs(WANDERING, [1.0] * len(WANDERING)).moved == 0.0


def test_the_scatter_that_is_left_counts_the_estimated_slope():
    times = [each / clock**0.6 for each, clock in zip((1.0, 1.01, 0.99, 1.02, 0.98, 1.0), WANDERING, strict=True)]
    slope, intercept = np.polyfit(np.log(WANDERING), np.log(times), 1)
    left = np.log(times) - intercept - slope * np.log(WANDERING)
    assert -1 < slope < 0
    assert fit_runs(WANDERING, times).left == pytest.approx(float(np.sqrt(np.sum(left**2) / (len(times) - 2))))

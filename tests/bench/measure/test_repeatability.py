"""`repeat`: how often it holds the next result, on simulated series whose truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean

import pytest

from dyno.bench.measure.clock_adjustment import Elasticity, elasticity
from dyno.bench.measure.repeatability import (
    counting,
    from_runs,
    half_width,
    log_deviation,
    result_scatter,
    series_elasticity,
    usable,
    with_earlier_results,
)
from dyno.models.result import Metric, Peak, Peer
from dyno.models.runner_protocol import RunRecord
from tests.comparisons import RATES, a_metric, of_metrics, times

MakeRecord = Callable[..., RunRecord]
TRIALS = 1000  # a share of 95 % is known to ±1.4 %, one of 90 % to ±1.9 %


def drawn(rng, level, within, runs=5):
    """The figures of one job's runs: lognormal around `level`."""
    return [level * math.exp(within * rng.gauss()) for _ in range(runs)]


def holds(repeat, value):
    assert repeat is not None
    return repeat.low <= value <= repeat.high


@pytest.mark.parametrize("runs", [2, 5, 20])
def test_from_the_runs_alone_it_holds_one_further_run_in_95_of_100_cases(runs):
    rng, held = random.Random(runs), 0
    for _ in range(TRIALS):
        *own, further = drawn(rng, 100.0, 0.02, runs + 1)
        held += holds(from_runs(fmean(own), own), further)
    assert held / TRIALS == pytest.approx(0.95, abs=0.022)  # three standard deviations


@pytest.mark.parametrize(("between", "least"), [(0.0, 0.98), (0.01, 0.95), (0.02, 0.85)])
def test_it_leaves_room_for_changes_between_jobs(between, least):
    """Runs scatter by 2 %; the levels of two jobs by nothing, by half as much, and by as much."""
    rng, held = random.Random(7), 0
    for _ in range(TRIALS):
        own, following = (drawn(rng, math.exp(between * rng.gauss()), 0.02) for _ in range(2))
        held += holds(from_runs(fmean(own), own), fmean(following))
    assert held / TRIALS >= least


def test_it_can_be_computed_by_hand():
    """Logarithms -0.1, 0 and 0.1 deviate by 0.1; t(2) = 4.3027; x 0.1 x sqrt(4 / 3) = 0.49683."""
    found = from_runs(1.0, [math.exp(-0.1), 1.0, math.exp(0.1)])
    assert found is not None
    assert (found.low, found.high) == pytest.approx((math.exp(-0.49683), math.exp(0.49683)), rel=1e-4)
    assert (found.based_on.runs, found.based_on.jobs) == (3, 0)


def test_a_rate_and_its_time_agree():
    rates = [90.0, 97.0, 100.0, 104.0, 120.0]
    of_rates, of_times = from_runs(100.0, rates), from_runs(0.01, [1 / rate for rate in rates])
    assert of_rates is not None
    assert of_times is not None
    assert (1 / of_times.high, 1 / of_times.low) == pytest.approx((of_rates.low, of_rates.high))


@pytest.mark.parametrize("figures", [[1e-300, 1.0, 1e300], [0.0, 0.1, 0.3], [0.0, 0.0]])
def test_wild_figures_and_shares_of_zero_have_finite_bounds_above_zero(figures):
    found = from_runs(max(figures), figures)
    assert found is not None
    assert 0 <= found.low <= max(figures) <= found.high < math.inf


def test_equal_runs_repeat_exactly_and_a_single_run_predicts_nothing():
    found = from_runs(5.0, [5.0, 5.0])
    assert found is not None
    assert (found.low, found.high) == (5.0, 5.0)
    assert from_runs(5.0, [5.0]) is None


def test_every_metric_with_an_interval_has_it_and_no_other(result):
    """Runs of 2000, 1000 and 500 tell that there is no telling, which is a reason too."""
    for metric in result().metrics:
        assert (metric.repeat is None and metric.repeat_reason is None) == (metric.low is None), metric.name
    throughput: Metric = result().metrics[0]
    assert (throughput.repeat, usable(from_runs(3500 / 3, [2000.0, 1000.0, 500.0]))["repeat"]) == (None, None)
    assert "by 3 runs, it could be more than 25% away" in (throughput.repeat_reason or "")
    calm = from_runs(100.0, RATES)
    assert usable(calm) == {"repeat": calm, "repeat_reason": None}


def test_a_job_of_one_run_has_none(result, record):
    assert all(metric.repeat is None for metric in result([record([1.0] * 20, amounts={"execution": 1.0})]).metrics)


WITHIN = 0.02  # scatter between the runs of a job


def a_job(rng, level, runs=5, **fields):
    figures = drawn(rng, level, WITHIN, runs)
    return Peer(job="job", value=fmean(figures), runs=runs, scatter=log_deviation(figures), **fields)


def independent(rng, between, count):
    return [math.exp(between * rng.gauss()) for _ in range(count)]


def alike(rng, between, count):
    """Levels of which each resembles the one before (0.8), as those of a machine in the course of a day."""
    log, found = rng.gauss(), []
    for _ in range(count):
        found.append(math.exp(between * log))
        log = 0.8 * log + 0.6 * rng.gauss()
    return found


Levels = Callable[[random.Random, float, int], list[float]]


def share_held(levels, between, jobs, runs=(5,)):
    """Of how many series the prediction of the job after `jobs` earlier ones holds the next one."""
    rng, held, trials = random.Random(f"{between} {jobs} {runs}"), 0, 600
    for _ in range(trials):
        *series, following = [
            a_job(rng, level, runs[place % len(runs)]) for place, level in enumerate(levels(rng, between, jobs + 2))
        ]
        half = half_width(series[-1], series[:-1])
        assert half is not None
        held += abs(math.log(following.value / series[-1].value)) <= half
    return held / trials


@pytest.mark.parametrize("jobs", [1, 2, 4, 12, 40])
@pytest.mark.parametrize("between", [0.0, 0.01, 0.02, 0.1])
def test_with_earlier_results_it_holds_the_next_one_however_much_jobs_differ(between, jobs):
    held = share_held(independent, between, jobs)
    least = {1: 0.8, 2: 0.86}.get(jobs, 0.92)
    assert held >= least
    if jobs == 40 and between >= WITHIN:
        assert held == pytest.approx(0.95, abs=0.03)  # 600 trials know it to ±1.7 %


@pytest.mark.parametrize("jobs", [2, 12, 40])
def test_jobs_that_resemble_the_one_before_are_held_more_often(jobs):
    assert share_held(alike, 0.05, jobs) >= 0.9


def test_jobs_may_have_different_numbers_of_runs():
    assert share_held(independent, 0.02, 12, (5, 2, 20)) >= 0.9
    assert share_held(independent, 0.02, 12, (1,)) == pytest.approx(0.95, abs=0.03)


def test_with_many_earlier_results_it_is_as_narrow_as_they_agree():
    """Equal jobs: 1.96 sqrt(2 / 5) deviations, against 2.78 sqrt(1.2) from the runs alone."""
    rng = random.Random(5)
    jobs = [a_job(rng, 1.0) for _ in range(41)]
    own = jobs[0].model_copy(update={"scatter": WITHIN})
    alone, informed = half_width(own, []), half_width(own, jobs[1:])
    assert alone is not None
    assert informed is not None
    assert alone == pytest.approx(2.776 * WITHIN * 1.2**0.5, rel=1e-3)
    assert informed == pytest.approx(1.96 * WITHIN * 0.4**0.5, rel=0.25)


def test_runs_that_scatter_more_than_those_of_earlier_jobs_widen_it():
    rng = random.Random(6)
    calm, *earlier = [a_job(rng, 1.0) for _ in range(13)]
    wild = calm.model_copy(update={"scatter": 5 * WITHIN})
    assert (half_width(wild, earlier) or 0) > 2 * (half_width(calm, earlier) or 0)


def test_single_runs_predict_from_two_jobs_on():
    one = Peer(job="job", value=1.0, runs=1)
    assert half_width(one, []) is None
    assert half_width(one, [Peer(job="old", value=1.1, runs=1)]) == pytest.approx(12.706 * math.log(1.1), rel=1e-3)
    assert half_width(one, [one]) == 0.0


def test_a_job_is_predicted_from_results_on_the_same_hardware_and_software():
    result = of_metrics(
        [a_metric(), a_metric("time", [1 / rate for rate in RATES], "lower"), a_metric("accuracy", by_run=[])]
    )
    own = Peer(job="job", value=100.0, hardware_id="hw", context_id="ctx", runs=5, scatter=log_deviation(RATES))
    peers = [own.model_copy(update={"value": value}) for value in (95.0, 105.0)]
    others = [
        peer.model_copy(update=other)
        for peer in peers
        for other in ({"hardware_id": "hw_2"}, {"context_id": "ctx_2"}, {"value": -1.0})
    ]
    found = with_earlier_results(result, own, [*peers, *others], {"throughput", "time", "accuracy"}).metrics
    assert found[0].repeat is not None
    assert found[0].repeat.based_on.jobs == 2
    assert found[0].repeat.low < 95 < 105 < found[0].repeat.high
    assert found[1].repeat is not None
    assert found[1].repeat.high * found[0].repeat.low == pytest.approx(found[1].value * found[0].value)


def test_metrics_of_other_times_keep_the_prediction_from_their_runs():
    result = of_metrics([a_metric(), a_metric("cold_throughput")])
    own = Peer(job="job", value=100.0, hardware_id="hw", runs=5, scatter=log_deviation(RATES))
    found = with_earlier_results(result, own, [own] * 3, {"throughput"}).metrics
    assert found[1] == result.metrics[1]


def wandering(rng, jobs, between, of_clock):
    """Jobs on a host whose clock deviates by 2.7 % from job to job, the most recorded, and is measured to 0.5 %."""
    found = []
    for _ in range(jobs):
        clock = math.exp(0.027 * rng.gauss())
        job = a_job(rng, clock**of_clock * math.exp(between * rng.gauss()))
        found.append(job.model_copy(update={"clock_hz": 4e9 * clock * math.exp(0.005 * rng.gauss())}))
    return found


@pytest.mark.parametrize("jobs", [1, 3, 12])
@pytest.mark.parametrize(("of_clock", "assumed"), [(0.89, 1.0), (-0.42, -0.5), (0.0, 1.0)])
def test_it_holds_the_next_result_as_measured_at_whatever_clock(of_clock, assumed, jobs):
    rng, held, trials = random.Random(f"{of_clock} {jobs}"), 0, 400
    for _ in range(trials):
        *earlier, own, following = wandering(rng, jobs + 2, 0.01, of_clock)
        half = half_width(own, earlier, elasticity([own, *earlier], assumed))
        assert half is not None
        held += abs(math.log(following.value / own.value)) <= half
    assert held / trials >= 0.9


def test_one_wild_job_makes_no_absurd_prediction():
    """Recorded: 347.7 to 349.6 GFLOP/s, and 3.1 GFLOP/s to 39 TFLOP/s for the next one, after one noisy job."""
    result = of_metrics([a_metric(by_run=times(3.486e9))], peak=Peak(value=4.8e11, fraction=0.726))
    own = Peer(job="job", value=3.486e11, hardware_id="hw", runs=5, scatter=0.002)
    noisy = own.model_copy(update={"value": 1.9e11, "scatter": 0.3})
    (unknown,) = with_earlier_results(result, own, [noisy], {"throughput"}).metrics
    assert (unknown.repeat, "not known yet" in (unknown.repeat_reason or "")) == (None, True)
    calm = [own.model_copy(update={"value": 3.486e11 * (1 + share)}) for share in (-0.01, 0.01, 0.0, 0.005)]
    (known,) = with_earlier_results(result, own, [noisy, *calm], {"throughput"}).metrics
    assert known.repeat is not None
    assert known.repeat.high / known.repeat.low < 1.15
    (stray,) = with_earlier_results(result, noisy, calm, {"throughput"}).metrics
    assert stray.repeat is None
    assert "46% below the earlier ones" in (stray.repeat_reason or "")


@pytest.mark.parametrize(("better", "bound"), [("higher", "high"), ("lower", "low")])
def test_no_bound_is_beyond_a_data_sheets_peak(better, bound):
    """A measured peak is that of one moment's clock: results at 1.00 of it exceed it as often as not."""
    own = Peer(job="job", value=100.0, runs=5, scatter=0.02)
    bounds = []
    for provenance in ("datasheet", "measured clock", "measured here"):
        peak = Peak(value=1e12, fraction=0.98, provenance=provenance)
        (metric,) = with_earlier_results(
            of_metrics([a_metric(better=better)], peak=peak), own, [], {"throughput"}
        ).metrics
        bounds.append(getattr(metric.repeat, bound))
    assert bounds[0] == pytest.approx(100 / 0.98 if better == "higher" else 98)
    half = half_width(own, []) or 0.0
    assert bounds[1:] == pytest.approx([100 * math.exp(half if better == "higher" else -half)] * 2)


def test_after_a_step_the_next_result_is_known_at_once():
    """12 % more than eight earlier ones, and the next one is as high."""
    own = Peer(job="job", value=112.0, runs=5, scatter=0.005)
    earlier = [own.model_copy(update={"value": 100.0 + place / 10}) for place in range(8)]
    (metric,) = with_earlier_results(of_metrics([a_metric(by_run=times(1.12))]), own, earlier, {"throughput"}).metrics
    assert holds(metric.repeat, 112.0)
    assert holds(metric.repeat, 101.0), "or it goes back"


def test_the_prediction_names_its_clock_and_the_elasticity_of_each_metric():
    own, *earlier = (
        job.model_copy(update={"hardware_id": "hw", "context_id": "ctx"})
        for job in wandering(random.Random(4), 21, 0.003, 0.89)
    )
    result = of_metrics([a_metric(), a_metric("time", [1 / rate for rate in RATES], "lower")])
    unclocked = own.model_copy(update={"clock_hz": None})
    rate, time = with_earlier_results(result, own, [*earlier, unclocked], {"throughput", "time"}).metrics
    assert rate.repeat is not None
    assert time.repeat is not None
    assert rate.repeat.based_on.jobs == len(earlier)
    assert rate.repeat.clock_hz == time.repeat.clock_hz == own.clock_hz
    assert rate.repeat.elasticity == pytest.approx(0.89, abs=0.1)
    assert time.repeat.elasticity == -rate.repeat.elasticity


def test_without_a_clock_nothing_is_adjusted():
    own = Peer(job="job", value=100.0, runs=5, scatter=0.01)
    (metric,) = with_earlier_results(of_metrics([a_metric()]), own, [], {"throughput"}).metrics
    assert metric.repeat is not None
    assert (metric.repeat.clock_hz, metric.repeat.elasticity) == (None, None)


def test_a_wild_job_does_not_teach_the_elasticity():
    jobs = [Peer(job="job", value=hz / 4e7, runs=5, clock_hz=hz) for hz in (3.8e9, 3.9e9, 4.0e9, 4.1e9, 4.2e9)]
    wild = jobs[0].model_copy(update={"value": 2000.0, "clock_hz": 3.7e9})
    result = of_metrics([a_metric()])
    calm, with_wild = (series_elasticity(result, each) for each in (jobs, [*jobs, wild]))
    assert calm == with_wild
    assert calm.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ([100.0], 1),
        ([100.0, 2000.0], 0),
        ([100.0, 100.0, 2000.0], 2),
        ([100.0] * 7 + [50.0], 7),
        ([100.0] * 6 + [50.0] * 2, 8),
        ([100.0] * 18 + [50.0] * 2, 18),
        ([100.0] * 17 + [50.0] * 3, 20),
        ([100.0] * 7 + [87.0], 8),
    ],
)
def test_a_few_jobs_far_away_do_not_count_and_more_are_a_mode(values, count):
    assert len(counting([Peer(job="job", value=value, runs=5) for value in values])) == count


def test_the_slope_of_no_jobs_needs_no_degrees():
    own = Peer(job="job", value=1.0, runs=5, scatter=0.01, clock_hz=4e9)
    at_one_clock = [result_scatter(own, [], [own], each) for each in (Elasticity(1.0), None)]
    assert at_one_clock[0] == at_one_clock[1]

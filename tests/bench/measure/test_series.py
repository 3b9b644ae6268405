"""Scatter, clocks and intervals of a series: how often they hold, on simulated series whose truth is known."""

from __future__ import annotations

import itertools
import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.bench.measure import series
from dyno.bench.measure.series import BAND_FLOOR, Elasticity, PeerSeries, counting, elasticity, from_runs, robust_band
from dyno.bench.measure.statistics import mad, median
from dyno.models.result import Peak, Peer
from tests.bench.measure.conftest import make_record
from tests.comparisons import RATES, a_metric, of_metrics

TRIALS = 1000  # a share of 95 % is known to ±1.4 %, one of 90 % to ±1.9 %
WITHIN = 0.02  # scatter between the runs of a job
WANDERING = [3.56e9, 3.7e9, 3.82e9, 3.9e9, 3.95e9, 4.02e9]
positive = st.lists(st.floats(0.1, 10.0), min_size=5, max_size=12)


def drawn(rng, level, within=WITHIN, runs=5):
    """The figures of one job's runs: lognormal around `level`."""
    return [level * math.exp(within * rng.gauss()) for _ in range(runs)]


def a_job(rng, level, runs=5, **fields):
    figures = drawn(rng, level, WITHIN, runs)
    return Peer(job="job", value=fmean(figures), runs=runs, scatter=series.log_deviation(figures), **fields)


def of_values(values, **fields):
    return [Peer(job="job", value=value, runs=5, **fields) for value in values]


def at_clocks(clocks_hz, of_clock, noise=0.0):
    rng = random.Random(1)
    return [
        Peer(job="job", value=100 * (clock / 4e9) ** of_clock * (1 + noise * rng.gauss()), runs=5, clock_hz=clock)
        for clock in clocks_hz
    ]


def independent(rng, between, count):
    return [math.exp(between * rng.gauss()) for _ in range(count)]


def alike(rng, between, count):
    """Levels of which each resembles the one before (0.8), as those of a machine in the course of a day."""
    log, levels = rng.gauss(), []
    for _ in range(count):
        levels.append(math.exp(between * log))
        log = 0.8 * log + 0.6 * rng.gauss()
    return levels


def wandering(rng, jobs, between, of_clock):
    """Jobs on a host whose clock deviates by 2.7 % from job to job, the most recorded, and is measured to 0.5 %."""
    found = []
    for _ in range(jobs):
        clock = math.exp(0.027 * rng.gauss())
        job = a_job(rng, clock**of_clock * math.exp(between * rng.gauss()))
        found.append(job.model_copy(update={"clock_hz": 4e9 * clock * math.exp(0.005 * rng.gauss())}))
    return found


def share_held(draw, assumed=None, trials=600):
    """Of how many series the prediction of the last job but one holds the last. `draw()` draws the jobs."""
    held = 0
    for _ in range(trials):
        *earlier, own, following = draw()
        half = PeerSeries(own, earlier, elasticity([own, *earlier], assumed) if assumed else None).half_width()
        held += abs(math.log(following.value / own.value)) <= half
    return held / trials


@pytest.mark.parametrize("runs", [2, 5, 20])
def test_from_the_runs_alone_it_holds_one_further_run_in_95_of_100_cases(runs):
    rng, held = random.Random(runs), 0
    for _ in range(TRIALS):
        *own, further = drawn(rng, 100.0, runs=runs + 1)
        repeat = from_runs(fmean(own), own)
        held += repeat.low <= further <= repeat.high
    assert held / TRIALS == pytest.approx(0.95, abs=0.022)  # three standard deviations


@pytest.mark.parametrize(("between", "least"), [(0.0, 0.98), (0.01, 0.95), (0.02, 0.85)])
def test_it_leaves_room_for_changes_between_jobs(between, least):
    """Runs scatter by 2 %; the levels of two jobs by nothing, by half as much, and by as much."""
    rng = random.Random(7)
    assert share_held(lambda: [a_job(rng, level) for level in independent(rng, between, 2)], trials=TRIALS) >= least


def test_it_can_be_computed_by_hand():
    """Logarithms -0.1, 0 and 0.1 deviate by 0.1; t(2) = 4.3027; x 0.1 x sqrt(4 / 3) = 0.49683."""
    found = from_runs(1.0, [math.exp(-0.1), 1.0, math.exp(0.1)])
    assert (found.low, found.high) == pytest.approx((math.exp(-0.49683), math.exp(0.49683)), rel=1e-4)
    assert (found.based_on.runs, found.based_on.jobs) == (3, 0)
    assert from_runs(5.0, [5.0]) is None


@given(positive)
def test_a_rate_and_its_time_agree(rates):
    times = [1 / rate for rate in rates]
    of_rates, of_times = from_runs(rates[0], rates), from_runs(times[0], times)
    bands = robust_band(rates), robust_band(times)
    for rate, time in ((of_rates, of_times), bands):
        assert (1 / time.high, 1 / time.low) == pytest.approx((rate.low, rate.high))


@pytest.mark.parametrize("figures", [[1e-300, 1.0, 1e300], [0.0, 0.1, 0.3], [0.0, 0.0], [5.0, 5.0]])
def test_wild_figures_and_shares_of_zero_have_finite_bounds_above_zero(figures):
    found = from_runs(max(figures), figures)
    assert 0 <= found.low <= max(figures) <= found.high < math.inf
    assert (found.low == found.high) == (len(set(figures)) == 1)


def test_every_metric_with_an_interval_has_a_prediction_or_a_reason_and_no_other(result, record):
    """Runs of 2000, 1000 and 500 tell that there is no telling, which is a reason too."""
    for metric in result().metrics:
        assert (metric.repeat is None and metric.repeat_reason is None) == (metric.low is None), metric.name
    assert "by 3 runs, it could be more than 25% away" in result().metrics[0].repeat_reason
    assert all(metric.repeat is None for metric in result([record([1.0] * 20)]).metrics)
    calm = from_runs(100.0, RATES)
    assert series.usable(calm) == {"repeat": calm, "repeat_reason": None}


@pytest.mark.parametrize("jobs", [1, 2, 4, 12, pytest.param(40, marks=pytest.mark.verify)])
@pytest.mark.parametrize(
    "between", [0.0, 0.01, *(pytest.param(each, marks=pytest.mark.verify) for each in (0.02, 0.1))]
)
def test_with_earlier_results_it_holds_the_next_one_however_much_jobs_differ(between, jobs):
    rng = random.Random(f"{between} {jobs} (5,)")
    held = share_held(lambda: [a_job(rng, level) for level in independent(rng, between, jobs + 2)])
    assert held >= {1: 0.8, 2: 0.86}.get(jobs, 0.92)
    if jobs == 40 and between >= WITHIN:
        assert held == pytest.approx(0.95, abs=0.03)  # 600 trials know it to ±1.7 %


@pytest.mark.parametrize("jobs", [2, 12, 40])
def test_jobs_that_resemble_the_one_before_are_held_more_often(jobs):
    rng = random.Random(jobs)
    assert share_held(lambda: [a_job(rng, level) for level in alike(rng, 0.05, jobs + 2)]) >= 0.9


@pytest.mark.parametrize("runs", [(5, 2, 20), (1,)])
def test_jobs_may_have_different_numbers_of_runs(runs):
    rng, counts = random.Random(str(runs)), itertools.cycle(runs)
    held = share_held(lambda: [a_job(rng, level, next(counts)) for level in independent(rng, 0.02, 14)])
    assert 0.9 <= held <= 0.98


@pytest.mark.parametrize("jobs", [1, 3, 12])
@pytest.mark.parametrize(("of_clock", "assumed"), [(0.89, 1.0), (-0.42, -0.5), (0.0, 1.0)])
def test_it_holds_the_next_result_as_measured_at_whatever_clock(of_clock, assumed, jobs):
    rng = random.Random(f"{of_clock} {jobs}")
    assert share_held(lambda: wandering(rng, jobs + 2, 0.01, of_clock), assumed, trials=400) >= 0.9


def test_with_many_earlier_results_it_is_as_narrow_as_they_agree():
    """Equal jobs: 1.96 sqrt(2 / 5) deviations, against 2.78 sqrt(1.2) from the runs alone."""
    rng = random.Random(5)
    jobs = [a_job(rng, 1.0) for _ in range(41)]
    own = jobs[0].model_copy(update={"scatter": WITHIN})
    assert PeerSeries(own).half_width() == pytest.approx(2.776 * WITHIN * 1.2**0.5, rel=1e-3)
    assert PeerSeries(own, jobs[1:]).half_width() == pytest.approx(1.96 * WITHIN * 0.4**0.5, rel=0.25)
    wild = own.model_copy(update={"scatter": 5 * WITHIN})
    assert PeerSeries(wild, jobs[1:13]).half_width() > 2 * PeerSeries(own, jobs[1:13]).half_width()


def test_single_runs_predict_from_two_jobs_on():
    one = Peer(job="job", value=1.0, runs=1)
    assert PeerSeries(one).half_width() is None
    old = Peer(job="old", value=1.1, runs=1)
    assert PeerSeries(one, [old]).half_width() == pytest.approx(12.706 * math.log(1.1), rel=1e-3)
    assert PeerSeries(one, [one]).half_width() == 0.0


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
    assert len(counting(of_values(values))) == count


@pytest.mark.parametrize("of_clock", [0.89, 0.42, 0.0, -0.42])
def test_a_wandering_clock_shows_the_elasticity(of_clock):
    found = elasticity(at_clocks(WANDERING, of_clock, 0.001), 1.0 if of_clock >= 0 else -1.0)
    assert found.value == pytest.approx(of_clock, abs=0.05)
    assert found.lost_degrees > 0.9


def test_few_jobs_at_one_clock_leave_the_assumed_one():
    steady = at_clocks([4.0e9, 4.001e9, 3.999e9], 0.0, 0.01)
    assert elasticity(steady, 1.0).value == pytest.approx(1.0, abs=0.1)
    alone = elasticity(steady[:1], -0.5)
    assert (alone.value, alone.lost_degrees) == (-0.5, 0.0)
    own = Peer(job="job", value=1.0, runs=5, scatter=0.01, clock_hz=4e9)
    assert PeerSeries(own, [], Elasticity(1.0)).scatter() == PeerSeries(own).scatter(), "no jobs, no slope"


@pytest.mark.parametrize(("of_clock", "assumed", "value"), [(3.0, 1.0, 1.0), (-3.0, 1.0, 0.0), (-3.0, -0.5, -1.0)])
def test_it_is_between_none_and_that_of_the_clock_itself(of_clock, assumed, value):
    assert elasticity(at_clocks(WANDERING, of_clock), assumed).value == value


def test_a_wild_job_does_not_teach_the_elasticity():
    jobs = at_clocks([3.8e9, 3.9e9, 4.0e9, 4.1e9, 4.2e9], 1.0)
    wild = jobs[0].model_copy(update={"value": 2000.0, "clock_hz": 3.7e9})
    calm, with_wild = (series.series_elasticity(of_metrics([a_metric()]), of) for of in (jobs, [*jobs, wild]))
    assert calm == with_wild
    assert calm.value == pytest.approx(1.0)


@pytest.mark.parametrize(("fraction", "of_rate"), [(0.8, 1.0), (0.1, 0.5), (None, 0.5)])
def test_work_near_the_peak_is_assumed_to_follow_the_clock_and_other_work_by_half(fraction, of_rate):
    result = of_metrics([a_metric()], peak=Peak(value=1e12, fraction=fraction))
    assert [series.assumed_elasticity(result, better) for better in ("higher", "lower")] == [of_rate, -of_rate]


def test_a_value_at_another_clock():
    job = Peer(job="job", value=336.0, runs=5, clock_hz=4.02e9)
    assert series.adjusted(job, 3.56e9, 0.89) == pytest.approx(301.5, abs=0.1)
    assert series.adjusted(job, 3.56e9, None) == series.adjusted(job, None, 0.89) == 336.0
    assert series.factor(None, 3.56e9, 0.89) == 1.0


@pytest.mark.parametrize(("clocks", "mean"), [((3e9, 4e9), 3.5e9), ((3e9, None), None), ((), None)])
def test_the_clock_of_a_result_is_the_mean_of_its_runs_and_unknown_if_one_is(clocks, mean):
    runs = [make_record([1.0] * 20, clock_hz=clock).summary for clock in clocks]
    assert series.mean_clock_hz(of_metrics([a_metric()], runs=runs)) == mean


def test_the_band_is_at_least_a_tenth_wide_and_always_finite():
    alike, wild = robust_band([50.0] * 5), robust_band([1e-300, 1e-200, 1.0, 1e200, 1e300])
    assert (alike.low, alike.high) == pytest.approx((50 / (1 + BAND_FLOOR), 50 * (1 + BAND_FLOOR)))
    assert 0 < wild.low < wild.high < math.inf
    with pytest.raises(ValueError, match="needs 5 values"):
        robust_band([50.0] * 4)


def test_a_few_bad_results_do_not_widen_the_band():
    rest = [100.0 + place / 4 for place in range(-8, 9)]
    clean, spoilt = robust_band(rest), robust_band([*rest, 10.0, 1000.0, 20.0])
    assert spoilt.high / spoilt.low < 1.05 * clean.high / clean.low


def normal(rng):
    return rng.gauss()


def heavy_tailed(rng):
    """Student's t with three degrees of freedom."""
    return rng.gauss() / (rng.gammavariate(1.5, 2.0) / 3) ** 0.5


@pytest.mark.parametrize("peers", [5, 10, 50])
@pytest.mark.parametrize(
    ("draw", "sd", "most"),
    [(normal, 0.05, 0.02), (normal, 0.02, 0.02), (heavy_tailed, 0.05, 0.07), (heavy_tailed, 0.01, 0.02)],
)
def test_at_most_one_clean_result_in_a_hundred_is_out_of_the_band(draw, sd, most, peers):
    """0.02 allows for three standard deviations of a count over 1,000 trials. Heavy tails of 0.05 have an sd of 9 %."""
    assert share_out_of_band(draw, sd, peers) <= most


@pytest.mark.parametrize(("sd", "peers", "least"), [(0.02, 10, 0.95), (0.01, 5, 0.9)])
def test_a_result_a_quarter_slower_is_found_against_the_others(sd, peers, least):
    assert share_out_of_band(normal, sd, peers, slower=0.25) > least


def share_out_of_band(draw, sd, peers, slower=0.0):
    rng, raised = random.Random(f"{draw.__name__} {sd} {peers}"), 0
    for _ in range(TRIALS):
        *others, own = [100 * 2.718281828 ** (sd * draw(rng)) for _ in range(peers + 1)]
        band = robust_band(others)
        raised += not band.low <= own * (1 - slower) <= band.high
    return raised / TRIALS


def test_a_fixed_multiple_would_raise_one_in_eight_against_five():
    rng, raised, trials = random.Random(1), 0, 2000
    for _ in range(trials):
        *others, own = [rng.gauss(100, 5) for _ in range(6)]
        raised += abs(own - median(others)) > 3.5 * 1.4826 * mad(others)
    assert 0.09 < raised / trials < 0.16

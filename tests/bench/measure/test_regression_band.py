"""METRIC_OUT_OF_BAND: the peers of a result, and the width of the band."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

from dyno.bench.contract import Params
from dyno.bench.measure.regression_band import CONFIDENCE, FLOOR, MIN_PEERS, headline, regression_band, with_band_check
from dyno.bench.measure.statistics import mad, median
from dyno.models.result import BasedOn, Peer, Precision, Repeat, Verdict
from dyno.models.spec import Spec
from tests.bench.measure.conftest import make_record
from tests.comparisons import RATES, a_metric, of_metrics, times

DEVICE = {"kind": "cpu", "model": "Test CPU", "cores": [0, 1], "units": 1, "emulated": False}
CLOSE = [100.0, 101.0, 99.0, 100.5, 99.5]


class SomeParams(Params):
    untimed: ClassVar[frozenset[str]] = frozenset({"epochs"})
    n: int = 64
    epochs: int = 1


def a_result(by_run=RATES, **fields):
    known = {"device": DEVICE, "verdict": Verdict.TRUSTED, "details": {}}
    metrics = fields.pop("metrics", [a_metric(by_run=by_run)])
    return of_metrics(metrics, **known | fields)


def the_headline(result, spec=None, **params):
    found = headline(result, Spec.model_validate({"workload": "matmul"} | (spec or {})), SomeParams(**params))
    assert found is not None
    return found


def against(result, values):
    own = the_headline(result).own
    peers = [
        Peer(job=f"job_{at}", value=value, hardware_id="hw_1", context_id="ctx_2", runs=5)
        for at, value in enumerate(values)
    ]
    return with_band_check(result, own, peers)


def codes(result):
    return [raised.code for raised in result.warnings]


def test_the_headline_is_the_first_metric_that_was_sampled():
    once = a_metric("accuracy", by_run=[])
    found = the_headline(a_result(metrics=[once, a_metric(by_run=[5.0, 7.0])]))
    assert (found.own.value, found.own.hardware_id, found.own.context_id) == (6.0, "hw_1", "ctx_1")


def test_params_that_ran_make_the_series_unless_they_change_no_sample():
    usual = the_headline(a_result()).series
    assert the_headline(a_result(params={"n": 32})).series == the_headline(a_result(), n=32).series != usual
    assert the_headline(a_result(params={"n": 64, "epochs": 3})).series == usual


def test_settings_that_do_not_change_a_sample_keep_the_series():
    usual = the_headline(a_result()).series
    measure = {"processes": 1}
    assert the_headline(a_result(), {"seed": 7, "measure": measure, "labels": {"a": "b"}}).series == usual
    assert the_headline(a_result(times(3), hardware_id="hw_2", context_id="ctx_2"), epochs=9).series == usual
    assert the_headline(a_result(device={**DEVICE, "host": "elsewhere", "cores": [2, 3]})).series == usual


@pytest.mark.parametrize(
    ("fields", "spec", "params"),
    [
        ({}, {}, {"n": 128}),
        ({}, {"framework": "jax"}, {}),
        ({}, {"replicas": 2}, {}),
        ({"workload": "resnet50"}, {"workload": "resnet50"}, {}),
        ({"method_version": "0"}, {}, {}),
        ({"precision": Precision(requested="float32", observed="tf32")}, {}, {}),
        ({"metrics": [a_metric("step_time")]}, {}, {}),
        ({"device": {**DEVICE, "model": "Another CPU"}}, {}, {}),
        ({"device": {**DEVICE, "cores": [0]}}, {}, {}),
        ({"device": {**DEVICE, "kind": "gpu"}}, {}, {}),
    ],
)
def test_other_work_and_other_models_have_separate_series(fields, spec, params):
    assert the_headline(a_result(**fields), spec, **params).series != the_headline(a_result()).series


def test_the_host_cores_of_an_accelerator_do_not_affect_the_series():
    board = {**DEVICE, "kind": "tpu", "units": 4}
    of = [
        the_headline(a_result(device=each)).series for each in (board, {**board, "cores": [1]}, {**board, "units": 8})
    ]
    assert of[0] == of[1] != of[2]


def test_emulated_devices_and_results_without_a_sampled_figure_have_no_peers():
    for result in (a_result(device={**DEVICE, "emulated": True}), a_result(metrics=[a_metric(by_run=[])])):
        assert headline(result, Spec(workload="matmul"), SomeParams()) is None


@pytest.mark.parametrize(("factor", "away"), [(0.7, "30% below"), (1.4, "40% above")])
def test_a_figure_far_from_the_others_raises_a_warning_with_the_band(factor, away):
    found = against(a_result(times(factor)), [*CLOSE, 98.0, 102.0, 100.2])
    (raised,) = found.warnings
    assert (raised.code, raised.severity, found.verdict) == ("METRIC_OUT_OF_BAND", "B", Verdict.INDICATIVE)
    assert away in raised.message
    assert "8 results" in raised.message
    assert "Test CPU" in raised.message
    expected = {"value": 100 * factor, "count": 8, "device_model": "Test CPU", "same_hardware": 8, "same_context": 0}
    assert {name: raised.evidence[name] for name in expected} == pytest.approx(expected)
    assert raised.evidence["band"] == pytest.approx([100 / (1 + FLOOR), 100 * (1 + FLOOR)], rel=0.1)
    assert found.unchecked == []


def test_earlier_figures_are_compared_at_the_clock_of_the_new_one():
    """Clocks of 3.0 to 4.2 GHz explain figures 20 % higher; at one clock they are the same."""
    repeat = Repeat(low=90.0, high=110.0, based_on=BasedOn(runs=5, jobs=6), clock_hz=3e9, elasticity=1.0)
    result = a_result(metrics=[a_metric().model_copy(update={"repeat": repeat})])
    own = the_headline(result).own.model_copy(update={"clock_hz": 3e9})
    clocks = [3.0e9, 3.3e9, 3.6e9, 3.6e9, 3.9e9, 4.2e9]
    others = [own.model_copy(update={"value": clock / 3e7, "clock_hz": clock}) for clock in clocks]
    assert with_band_check(result, own, others) == result
    (raised,) = with_band_check(result, own.model_copy(update={"value": 70.0}), others).warnings
    assert (raised.code, raised.evidence["elasticity"], raised.evidence["clock_hz"]) == ("METRIC_OUT_OF_BAND", 1.0, 3e9)
    assert raised.evidence["median"] == pytest.approx(100.0)


def test_a_device_whose_clock_is_far_below_the_others_is_not_excused_by_it():
    repeat = Repeat(low=90.0, high=110.0, based_on=BasedOn(runs=5, jobs=6), clock_hz=3e9, elasticity=1.0)
    result = a_result(metrics=[a_metric().model_copy(update={"repeat": repeat})])
    own = the_headline(result).own.model_copy(update={"clock_hz": 3e9})
    fast = [own.model_copy(update={"value": 1.3 * value, "clock_hz": 3.9e9}) for value in CLOSE]
    (raised,) = with_band_check(result, own, fast).warnings
    assert (raised.code, raised.evidence["elasticity"]) == ("METRIC_OUT_OF_BAND", None)


def test_the_headline_has_the_scatter_and_the_clock_of_its_runs():
    runs = [make_record([1.0] * 20, clock_hz=clock).summary for clock in (3e9, 4e9)]
    own = the_headline(a_result([100.0, 110.0], runs=runs)).own
    assert (own.runs, own.clock_hz) == (2, 3.5e9)
    assert own.scatter == pytest.approx(0.0674, abs=1e-4)  # ln 1.1 / sqrt(2)


def test_a_figure_among_the_others_stays_trusted():
    result = a_result(times(1.08))
    assert against(result, CLOSE) == result


def test_too_few_others_raise_nothing_and_leave_nothing_unchecked():
    result = a_result(times(9))
    assert against(result, CLOSE[: MIN_PEERS - 1]) == result
    assert against(result, [*CLOSE[: MIN_PEERS - 1], 0.0, -1.0]) == result
    with pytest.raises(ValueError, match="needs 5 values"):
        regression_band(CLOSE[: MIN_PEERS - 1])


def test_unreadable_peers_leave_the_check_unmade():
    result = a_result(unchecked=["SLOW_PATH"], details={"unchecked_reasons": {"SLOW_PATH": "untold"}, "n": 1})
    found = with_band_check(result, the_headline(result).own, None)
    assert (found.verdict, found.warnings) == (Verdict.INDICATIVE, [])
    assert found.unchecked == ["SLOW_PATH", "METRIC_OUT_OF_BAND"]
    reasons = found.details["unchecked_reasons"]
    assert isinstance(reasons, dict)
    assert list(reasons) == found.unchecked


def test_a_verdict_never_improves():
    result = a_result(times(9), verdict=Verdict.UNTRUSTED)
    assert against(result, CLOSE).verdict is Verdict.UNTRUSTED
    assert with_band_check(result, the_headline(result).own, None).verdict is Verdict.UNTRUSTED


def test_the_band_is_at_least_a_tenth_wide_and_always_finite():
    alike, wild = regression_band([50.0] * 5), regression_band([1e-300, 1e-200, 1.0, 1e200, 1e300])
    assert (alike.low, alike.high) == pytest.approx((50 / (1 + FLOOR), 50 * (1 + FLOOR)))
    assert 0 < wild.low < wild.high < float("inf")


def test_a_rate_and_its_time_are_judged_alike():
    rates = [90.0, 97.0, 100.0, 104.0, 120.0]
    of_rates, of_times = regression_band(rates), regression_band([1 / rate for rate in rates])
    assert (1 / of_times.high, 1 / of_times.low) == pytest.approx((of_rates.low, of_rates.high))


def test_a_few_bad_results_do_not_widen_the_band():
    rest = [100.0 + place / 4 for place in range(-8, 9)]
    clean, spoilt = regression_band(rest), regression_band([*rest, 10.0, 1000.0, 20.0])
    assert spoilt.high / spoilt.low < 1.05 * clean.high / clean.low


def normal(rng):
    return rng.gauss()


def heavy_tailed(rng):
    """Student's t with three degrees of freedom."""
    return rng.gauss() / (rng.gammavariate(1.5, 2.0) / 3) ** 0.5


def share_raised(draw, sd, peers, slower=0.0):
    """The share of 1,000 results outside the band, each against `peers` others of its kind."""
    rng, raised, trials = random.Random(f"{draw.__name__} {sd} {peers}"), 0, 1000
    for _ in range(trials):
        *others, own = [100 * 2.718281828 ** (sd * draw(rng)) for _ in range(peers + 1)]
        found = regression_band(others)
        raised += not found.low <= own * (1 - slower) <= found.high
    return raised / trials


@pytest.mark.parametrize("peers", [5, 10, 50])
def test_at_most_one_clean_result_in_a_hundred_is_raised(peers):
    allowed = 1 - CONFIDENCE + 0.01  # three standard deviations of a count over 1,000 trials
    assert share_raised(normal, 0.05, peers) <= allowed
    assert share_raised(normal, 0.02, peers) <= allowed
    assert share_raised(heavy_tailed, 0.05, peers) <= 0.07  # its sd is 9 %
    assert share_raised(heavy_tailed, 0.01, peers) <= allowed


def test_a_fixed_multiple_would_raise_one_in_eight_against_five():
    rng, raised, trials = random.Random(1), 0, 2000
    for _ in range(trials):
        *others, own = [rng.gauss(100, 5) for _ in range(6)]
        raised += abs(own - median(others)) > 3.5 * 1.4826 * mad(others)
    assert 0.09 < raised / trials < 0.16


def test_a_result_a_quarter_slower_is_found_against_ten_others():
    assert share_raised(normal, 0.02, 10, slower=0.25) > 0.95
    assert share_raised(normal, 0.01, 5, slower=0.25) > 0.9

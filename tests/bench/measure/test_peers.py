"""A result among its peers: its series, its prediction, and METRIC_OUT_OF_BAND."""

from __future__ import annotations

import math
import random
from typing import ClassVar

import pytest

from dyno.bench.contract import Params
from dyno.bench.measure.peers import headline, with_band_check, with_prediction
from dyno.bench.measure.series import BAND_FLOOR, MIN_PEERS, PeerSeries, log_deviation
from dyno.models.result import Peak, Peer, Precision, Verdict
from dyno.models.spec import Spec
from tests.bench.measure.conftest import make_record
from tests.bench.measure.test_series import wandering
from tests.comparisons import RATES, a_metric, of_metrics, times

DEVICE = {"kind": "cpu", "model": "Test CPU", "cores": [0, 1], "units": 1, "emulated": False}


class SomeParams(Params):
    untimed: ClassVar[frozenset[str]] = frozenset({"epochs"})
    n: int = 64
    epochs: int = 1


def a_result(by_run=RATES, **fields):
    known = {"device": DEVICE, "verdict": Verdict.TRUSTED, "details": {}, "metrics": [a_metric(by_run=by_run)]}
    return of_metrics(**known | fields)


def the_headline(result, spec=None, **params):
    found = headline(result, Spec.model_validate({"workload": "matmul"} | (spec or {})), SomeParams(**params))
    assert found is not None
    return found


def own_of(result, **changes):
    return the_headline(result).own.model_copy(update=changes)


def against(result, values):
    peers = [Peer(job="job", value=value, hardware_id="hw_1", context_id="ctx_2", runs=5) for value in values]
    return with_band_check(result, own_of(result), peers)


def predicted(own, peers, metrics=None, **result):
    """The metrics of a result, all sampled, with their predictions."""
    found = of_metrics(metrics or [a_metric()], **result)
    return with_prediction(found, own, peers, {metric.name for metric in found.metrics}).metrics


def test_the_headline_is_the_first_metric_that_was_sampled_with_the_scatter_and_the_clock_of_its_runs():
    runs = [make_record([1.0] * 20, clock_hz=clock).summary for clock in (3e9, 4e9)]
    metrics = [a_metric("accuracy", by_run=[]), a_metric(by_run=[100.0, 110.0])]
    own = own_of(a_result(metrics=metrics, runs=runs))
    assert (own.value, own.hardware_id, own.context_id, own.runs, own.clock_hz) == (105, "hw_1", "ctx_1", 2, 3.5e9)
    assert own.scatter == pytest.approx(0.0674, abs=1e-4)  # ln 1.1 / sqrt(2)


def test_params_that_ran_make_the_series_unless_they_change_no_sample():
    usual = the_headline(a_result()).series
    assert the_headline(a_result(params={"n": 32})).series == the_headline(a_result(), n=32).series != usual
    assert the_headline(a_result(params={"n": 64, "epochs": 3})).series == usual


BOARD = {**DEVICE, "kind": "tpu", "units": 4}
OF_OTHERS = {"device": {**DEVICE, "host": "elsewhere", "cores": [2, 3]}}


@pytest.mark.parametrize(
    ("fields", "spec", "params", "is_same"),
    [
        ({}, {"seed": 7, "measure": {"processes": 1}, "labels": {"a": "b"}}, {}, True),
        ({"by_run": times(3), "hardware_id": "hw_2", "context_id": "ctx_2"}, {}, {"epochs": 9}, True),
        (OF_OTHERS, {}, {}, True),
        ({}, {}, {"n": 128}, False),
        ({}, {"framework": "jax"}, {}, False),
        ({}, {"replicas": 2}, {}, False),
        ({"workload": "resnet50"}, {"workload": "resnet50"}, {}, False),
        ({"method_version": "0"}, {}, {}, False),
        ({"precision": Precision(requested="float32", observed="tf32")}, {}, {}, False),
        ({"metrics": [a_metric("step_time")]}, {}, {}, False),
        ({"device": {**DEVICE, "model": "Another CPU"}}, {}, {}, False),
        ({"device": {**DEVICE, "cores": [0]}}, {}, {}, False),
        ({"device": {**DEVICE, "kind": "gpu"}}, {}, {}, False),
    ],
)
def test_other_work_and_other_models_have_separate_series(fields, spec, params, is_same):
    assert (the_headline(a_result(**fields), spec, **params).series == the_headline(a_result()).series) is is_same


def test_the_host_cores_of_an_accelerator_do_not_affect_the_series():
    boards = (BOARD, {**BOARD, "cores": [1]}, {**BOARD, "units": 8})
    of = [the_headline(a_result(device=board)).series for board in boards]
    assert of[0] == of[1] != of[2]


def test_emulated_devices_and_results_without_a_sampled_figure_have_no_peers():
    for result in (a_result(device={**DEVICE, "emulated": True}), a_result(metrics=[a_metric(by_run=[])])):
        assert headline(result, Spec(workload="matmul"), SomeParams()) is None


@pytest.mark.parametrize(("factor", "away"), [(0.7, "30% below"), (1.4, "40% above")])
def test_a_figure_far_from_the_others_raises_a_warning_with_the_band(factor, away):
    found = against(a_result(times(factor)), [*RATES, 98.0, 102.0, 100.2])
    (raised,) = found.warnings
    assert (raised.code, raised.severity, found.verdict) == ("METRIC_OUT_OF_BAND", "B", Verdict.INDICATIVE)
    assert all(words in raised.message for words in (away, "8 results", "Test CPU"))
    expected = {"value": 100 * factor, "count": 8, "device_model": "Test CPU", "same_hardware": 8, "same_context": 0}
    assert {name: raised.evidence[name] for name in expected} == pytest.approx(expected)
    assert raised.evidence["band"] == pytest.approx([100 / (1 + BAND_FLOOR), 100 * (1 + BAND_FLOOR)], rel=0.1)
    assert found.unchecked == []


def test_earlier_figures_are_compared_at_the_clock_of_the_new_one():
    """Clocks of 3.0 to 4.2 GHz explain figures 20 % higher; at one clock they are the same."""
    result = a_result()
    own = own_of(result, clock_hz=3e9)
    clocks = [3.0e9, 3.3e9, 3.6e9, 3.6e9, 3.9e9, 4.2e9]
    others = [own.model_copy(update={"value": clock / 3e7, "clock_hz": clock}) for clock in clocks]
    assert with_band_check(result, own, others) == result
    (raised,) = with_band_check(result, own.model_copy(update={"value": 70.0}), others).warnings
    assert (raised.code, raised.evidence["elasticity"], raised.evidence["clock_hz"]) == ("METRIC_OUT_OF_BAND", 1.0, 3e9)
    assert raised.evidence["median"] == pytest.approx(100.0)


def test_a_device_whose_clock_is_far_below_the_others_is_not_excused_by_it():
    own = own_of(a_result(), clock_hz=3e9)
    fast = [own.model_copy(update={"value": 1.3 * value, "clock_hz": 3.9e9}) for value in RATES]
    (raised,) = with_band_check(a_result(), own, fast).warnings
    assert (raised.code, raised.evidence["elasticity"]) == ("METRIC_OUT_OF_BAND", None)


@pytest.mark.parametrize(
    ("factor", "peers"), [(1.08, RATES), (9, RATES[: MIN_PEERS - 1]), (9, [*RATES[: MIN_PEERS - 1], 0.0, -1.0])]
)
def test_a_figure_among_the_others_and_too_few_others_raise_nothing(factor, peers):
    result = a_result(times(factor))
    assert against(result, peers) == result


def test_unreadable_peers_leave_the_check_unmade():
    result = a_result(unchecked=["SLOW_PATH"], details={"unchecked_reasons": {"SLOW_PATH": "untold"}, "n": 1})
    found = with_band_check(result, own_of(result), None)
    assert (found.verdict, found.warnings) == (Verdict.INDICATIVE, [])
    assert list(found.details["unchecked_reasons"]) == found.unchecked == ["SLOW_PATH", "METRIC_OUT_OF_BAND"]


def test_a_verdict_never_improves():
    result = a_result(times(9), verdict=Verdict.UNTRUSTED)
    assert against(result, RATES).verdict is Verdict.UNTRUSTED
    assert with_band_check(result, own_of(result), None).verdict is Verdict.UNTRUSTED


def test_a_job_is_predicted_from_results_on_the_same_hardware_and_software():
    own = Peer(job="job", value=100.0, hardware_id="hw", context_id="ctx", runs=5, scatter=log_deviation(RATES))
    peers = [own.model_copy(update={"value": value}) for value in (95.0, 105.0)]
    elsewhere = ({"hardware_id": "hw_2"}, {"context_id": "ctx_2"}, {"value": -1.0})
    others = [peer.model_copy(update=other) for peer in peers for other in elsewhere]
    metrics = [a_metric(), a_metric("time", [1 / rate for rate in RATES], "lower"), a_metric("accuracy", by_run=[])]
    rate, time, _ = predicted(own, [*peers, *others], metrics)
    assert rate.repeat.based_on.jobs == 2
    assert rate.repeat.low < 95 < 105 < rate.repeat.high
    assert time.repeat.high * rate.repeat.low == pytest.approx(time.value * rate.value)
    assert (rate.repeat.clock_hz, rate.repeat.elasticity) == (None, None)


def test_metrics_of_other_times_keep_the_prediction_from_their_runs():
    result = of_metrics([a_metric(), a_metric("cold_throughput")])
    own = Peer(job="job", value=100.0, hardware_id="hw", runs=5, scatter=log_deviation(RATES))
    assert with_prediction(result, own, [own] * 3, {"throughput"}).metrics[1] == result.metrics[1]


def test_one_wild_job_makes_no_absurd_prediction():
    """Recorded: 347.7 to 349.6 GFLOP/s, and 3.1 GFLOP/s to 39 TFLOP/s for the next one, after one noisy job."""
    metrics, peak = [a_metric(by_run=times(3.486e9))], Peak(value=4.8e11, fraction=0.726)
    own = Peer(job="job", value=3.486e11, hardware_id="hw", runs=5, scatter=0.002)
    noisy = own.model_copy(update={"value": 1.9e11, "scatter": 0.3})
    calm = [own.model_copy(update={"value": 3.486e11 * (1 + share)}) for share in (-0.01, 0.01, 0.0, 0.005)]
    (unknown,) = predicted(own, [noisy], metrics, peak=peak)
    assert (unknown.repeat, "not known yet" in unknown.repeat_reason) == (None, True)
    (known,) = predicted(own, [noisy, *calm], metrics, peak=peak)
    assert known.repeat.high / known.repeat.low < 1.15
    (stray,) = predicted(noisy, calm, metrics, peak=peak)
    assert (stray.repeat, "46% below the earlier ones" in stray.repeat_reason) == (None, True)


@pytest.mark.parametrize(("better", "bound", "sign"), [("higher", "high", 1), ("lower", "low", -1)])
def test_no_bound_is_beyond_a_data_sheets_peak(better, bound, sign):
    """A measured peak is that of one moment's clock: results at 1.00 of it exceed it as often as not."""
    own = Peer(job="job", value=100.0, runs=5, scatter=0.02)
    free = 100 * math.exp(sign * PeerSeries(own).half_width())
    at_most = 100 * 0.98**-sign
    for provenance, expected in (("datasheet", at_most), ("measured clock", free), ("measured here", free)):
        peak = Peak(value=1e12, fraction=0.98, provenance=provenance)
        (metric,) = predicted(own, [], [a_metric(better=better)], peak=peak)
        assert getattr(metric.repeat, bound) == pytest.approx(expected)


def test_after_a_step_the_next_result_is_known_at_once():
    """12 % more than eight earlier ones, and the next one is as high, or goes back."""
    own = Peer(job="job", value=112.0, runs=5, scatter=0.005)
    earlier = [own.model_copy(update={"value": 100.0 + place / 10}) for place in range(8)]
    (metric,) = predicted(own, earlier, [a_metric(by_run=times(1.12))])
    assert metric.repeat.low < 101 < 112 < metric.repeat.high


def test_the_prediction_names_its_clock_and_the_elasticity_of_each_metric():
    conditions = {"hardware_id": "hw", "context_id": "ctx"}
    own, *earlier = (job.model_copy(update=conditions) for job in wandering(random.Random(4), 21, 0.003, 0.89))
    metrics = [a_metric(), a_metric("time", [1 / rate for rate in RATES], "lower")]
    rate, time = predicted(own, [*earlier, own.model_copy(update={"clock_hz": None})], metrics)
    assert rate.repeat.based_on.jobs == len(earlier)
    assert rate.repeat.clock_hz == time.repeat.clock_hz == own.clock_hz
    assert rate.repeat.elasticity == -time.repeat.elasticity == pytest.approx(0.89, abs=0.1)

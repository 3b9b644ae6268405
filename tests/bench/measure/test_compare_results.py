"""Comparable results, and comparisons of results with known ratios."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from dyno.bench.contract import Params
from dyno.bench.measure.compare_results import compare, compare_variants, what_differs
from dyno.bench.measure.warnings import warning
from dyno.bench.registry import registry
from dyno.errors import InvalidComparison, NotComparable
from dyno.models.comparison import Comparative, CompareResults, Comparison, comparison_of, job_of
from dyno.models.result import BasedOn, CoreShares, Peak, Precision, Repeat, Verdict
from dyno.models.spec import InterleavedSpec, Spec
from tests.bench.measure.conftest import make_record
from tests.comparisons import RATES, a_metric, an_entry, of_metrics, times


class Training(Params):
    """Params of a workload whose epochs aren't timed, and that can do its work in two ways."""

    untimed: ClassVar[frozenset[str]] = frozenset({"epochs"})
    how: ClassVar[frozenset[str]] = frozenset({"mode"})


TRAINED = replace(registry()["matmul"], params=Training)
TOTAL = a_metric("execution_time", better="lower")
CPU = {"id": "cpu:0-1", "host": "here", "model": "Test CPU", "kind": "cpu"}
GPU = {"id": "gpu:0", "host": "here", "model": "GPU", "kind": "gpu"}


def precision(observed, requested="float32"):
    return Precision(requested=requested, observed=observed)


def between(*entries, base=0, workload=TRAINED, **asked):
    request = CompareResults(jobs=[entry.job.id for entry in entries], **asked)
    return compare(request, entries, workload, datetime.now(UTC), base=base)


def of_params(*metrics, **params):
    return an_entry(metrics=[a_metric(), *metrics], spec={"params": {"n": 64, "dtype": "float32"} | params})


def refused(error, *entries, **asked):
    with pytest.raises(error) as raised:
        between(*entries, **asked)
    return raised.value


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        (an_entry(workload="resnet50", spec={"workload": "resnet50"}), {"/workload": ["matmul", "resnet50"]}),
        (of_params(n=65), {"/params/n": [64, 65]}),
        (of_params(batch_size=8), {"/params/batch_size": [None, 8]}),
        (an_entry(precision=precision("tf32")), {"/precision/observed": ["float32", "tf32"]}),
        (an_entry(precision=precision("float32", "tf32")), {"/precision/requested": ["float32", "tf32"]}),
        (an_entry(method_version="1"), {"/method_version": ["2", "1"]}),
    ],
)
def test_different_work_is_compared_by_a_rate_and_every_field_is_named(entry, fields):
    for found in (between(an_entry(), entry), between(an_entry(), an_entry(), entry)):
        assert (found.same_work, found.metric) == (False, "throughput")
        assert all(field in found.notes[0] for field in fields)
        assert ratio(found).verdict is Comparative.SAME
    assert {each.field: each.values for each in between(an_entry(), entry).differences} == fields


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (an_entry(precision=precision(None)), "/precision/observed"),
        (an_entry(spec={"framework": "jax"}), "/framework"),
        (an_entry(device={"id": "gpu:0", "host": "here", "model": "Test CPU", "kind": "cpu"}), "/device/id"),
        (an_entry(device=CPU | {"emulated": True}), "/device/emulated"),
        (of_params(mode="dispatch"), "/params/mode"),
        (of_params(epochs=2), "/params/epochs"),
    ],
)
def test_the_same_work_may_be_done_elsewhere_and_in_other_ways(entry, field):
    found = between(an_entry(), entry)
    assert (found.same_work, found.not_compared, found.kind) == (True, [], "results")
    assert [each.field for each in found.differences] == [field]
    [note] = found.notes
    assert "not side by side" in note


def test_totals_of_different_amounts_are_listed_instead_of_compared():
    per_sample, size = (
        a_metric("time_per_sample", better="lower"),
        TOTAL.model_copy(update={"name": "size", "unit": "bytes"}),
    )
    share = a_metric("accuracy").model_copy(update={"unit": "1"})
    both = [of_params(TOTAL, size, per_sample, share, n=n) for n in (64, 65)]
    found = between(*both)
    assert found.not_compared == ["execution_time", "size"]
    assert "depend on the amount of work: execution_time, size" in found.notes[1]
    assert all(between(*both, metric=name).metric == name for name in ("time_per_sample", "accuracy"))
    [error] = refused(InvalidComparison, *both, metric="execution_time").errors
    assert (error.pointer, error.code) == ("/metric", "other-work")
    assert "choose throughput or time_per_sample or accuracy" in error.detail


def test_the_first_metric_that_can_be_compared_is_chosen():
    first, like, other = (an_entry(metrics=[TOTAL, a_metric()], spec={"params": {"n": n}}) for n in (64, 64, 65))
    assert between(first, other).metric == "throughput"
    assert between(first, like).metric == "execution_time"


def test_another_precision_does_not_change_the_amount_of_work():
    """int8 counts OP/s, so only the time of as many products remains."""
    rate = a_metric().model_copy(update={"unit": "OP/s"})
    in_int8 = an_entry(metrics=[rate, TOTAL], spec={"params": {"n": 64, "dtype": "int8"}}, precision=precision("int8"))
    found = between(of_params(TOTAL), in_int8, workload=registry()["matmul"])
    assert (found.metric, found.same_work, found.not_compared) == ("execution_time", False, [])


def test_an_untimed_param_counts_for_a_figure_taken_once():
    once = a_metric("training_time", [], "lower"), a_metric("accuracy", []).model_copy(update={"unit": "1"})
    entries = [of_params(*once, epochs=epochs) for epochs in (1, 2)]
    found = between(*entries)
    assert (found.same_work, found.not_compared) == (True, ["training_time"])
    assert [each.field for each in found.differences] == ["/params/epochs"]
    assert not between(*entries, metric="accuracy").same_work
    assert refused(InvalidComparison, *entries, metric="training_time")


def test_latencies_of_calls_that_arrive_at_different_rates_are_of_different_work():
    latency = a_metric("latency_open_p99", better="lower")
    both = [of_params(latency, rate_per_s=rate_per_s) for rate_per_s in (10.0, 20.0)]
    found = between(*both, workload=registry()["quantized_inference"])
    assert (found.metric, found.same_work, found.not_compared) == ("throughput", True, ["latency_open_p99"])


def test_params_that_ran_are_compared_instead_of_the_requested_ones():
    def ran(samples, **result):
        return an_entry(spec={"params": {"samples": None}}, params={"samples": samples})

    assert [each.values for each in between(ran(100), ran(200)).differences] == [[100, 200]]
    assert not between(ran(100), ran(200)).same_work


def test_the_steps_of_trainings_from_different_weights_are_the_same_work_but_not_of_different_batches():
    mnist = registry()["mnist_cnn"]
    weights = {"job": f"job_{'0' * 26}", "name": "model.weights.h5"}
    step = a_metric("epoch_time", better="lower")
    assert between(of_params(step, weights=None), of_params(step, weights=weights), workload=mnist).not_compared == []
    assert between(of_params(step), of_params(step, jit_compile=True), workload=mnist).same_work
    batches = between(of_params(step, batch_size=64), of_params(step, batch_size=128), workload=mnist)
    assert (batches.same_work, batches.not_compared) == (False, ["epoch_time"])


@pytest.mark.parametrize(
    "other",
    [
        an_entry(metrics=[]),
        an_entry(metrics=[a_metric("time", better="lower")]),
        an_entry(metrics=[a_metric().model_copy(update={"unit": "samples/s"})]),
        an_entry(metrics=[a_metric(better="lower")]),
    ],
)
def test_results_without_a_shared_metric_are_refused_with_their_metrics(other):
    error = refused(NotComparable, an_entry(), other, metric="throughput")
    assert "no metric to compare" in str(error)
    of_first, of_other = error.fields["/metrics"]
    assert of_first == ["throughput in FLOP/s"]
    assert of_other == [f"{each.name} in {each.unit}" for each in other.result.metrics]


def test_results_that_share_only_totals_of_different_amounts_are_refused_with_the_difference():
    entries = [an_entry(metrics=[TOTAL], spec={"params": {"n": n}}) for n in (64, 65)]
    error = refused(NotComparable, *entries)
    assert "execution_time would depend on the amount" in str(error)
    assert error.fields == {"/params/n": [64, 65]}


def test_the_error_for_a_missing_metric_lists_the_common_metrics():
    [error] = refused(InvalidComparison, of_params(TOTAL), of_params(TOTAL), metric="througput").errors
    assert (error.pointer, error.code) == ("/metric", "unknown-metric")
    assert "choose throughput or execution_time" in error.detail


def test_every_ratio_is_to_the_base():
    """GPU, CPU, GPU: the second is the base."""
    found = between(an_entry(times(29)), an_entry(), an_entry(times(2.5)), base=1)
    assert [each.ratio and each.ratio.value for each in found.results] == [pytest.approx(29), None, pytest.approx(2.5)]
    assert found.base == 1
    assert 28 < ratio(found, 0).low < 29 < ratio(found, 0).high < 30


def test_every_other_difference_is_listed():
    first = an_entry(spec={"seed": 1})
    other = an_entry(
        spec={"framework": "jax", "seed": 2, "measure": {"max_s": 5}},
        device={"id": "gpu:0", "host": "here", "model": "Test GPU", "kind": "gpu"},
        environment={"python": "CPython 3.11", "packages": {"jax": "0.10.3"}, "flags": {"a/b": "1"}},
        hardware_id="hw_2",
        context_id="ctx_2",
        details={"jit_compile": True},
    )
    assert what_differs([an_entry(), an_entry()]) == []
    assert {each.field: each.values for each in what_differs([first, other])} == {
        "/framework": ["tensorflow", "jax"],
        "/seed": [1, 2],
        "/measure/max_s": [None, 5.0],
        "/device/id": ["cpu:0-1", "gpu:0"],
        "/device/kind": ["cpu", "gpu"],
        "/device/model": ["Test CPU", "Test GPU"],
        "/environment/packages/jax": ["0.10.2", "0.10.3"],
        "/environment/flags/a~1b": [None, "1"],
        "/hardware_id": ["hw_1", "hw_2"],
        "/context_id": ["ctx_1", "ctx_2"],
        "/details/jit_compile": [None, True],
    }


def ratio(comparison, place=1):
    return comparison.results[place].ratio


@pytest.mark.parametrize(
    ("factor", "better", "verdict"),
    [
        (1.2, "higher", Comparative.FASTER),
        (0.8, "higher", Comparative.SLOWER),
        (1.002, "higher", Comparative.SAME),
        (1.019, "higher", Comparative.FASTER),
        (1.25, "lower", Comparative.SLOWER),
        (0.8, "lower", Comparative.FASTER),
    ],
)
def test_a_ratio_above_1_is_better_whichever_way_the_metric_points(factor, better, verdict):
    first, other = (an_entry(metrics=[a_metric("speed", times(each), better)]) for each in (1.0, factor))
    found, truth = ratio(between(first, other)), factor if better == "higher" else 1 / factor
    assert (found.verdict, found.value) == (verdict, pytest.approx(truth))
    assert found.low < truth < found.high


def test_scatter_wider_than_the_difference_is_inconclusive_with_the_smallest_detectable_effect():
    wide = [80.0, 120.0, 95.0, 105.0, 100.0]
    found = ratio(between(an_entry(wide), an_entry(times(1.05, wide))))
    assert found.verdict is Comparative.INCONCLUSIVE
    assert found.smallest_effect == pytest.approx(0.33, abs=0.04)
    assert found.degrees_of_freedom == pytest.approx(8, abs=0.1)
    assert found.more_runs > 0
    assert ratio(between(an_entry(), an_entry(times(1.2)))).more_runs is None


def test_margin_and_confidence_are_the_requested_ones():
    first, other = an_entry(), an_entry(times(1.04))
    assert ratio(between(first, other)).verdict is Comparative.FASTER
    assert ratio(between(first, other, margin=0.1)).verdict is Comparative.SAME
    wide, narrow = (ratio(between(first, other, confidence=each)) for each in (0.99, 0.9))
    assert wide.low < narrow.low
    assert between(first, other, confidence=0.99).results[0].high == pytest.approx(100 + 4.604 * 0.35355, abs=1e-3)


def test_no_bound_is_below_zero():
    found = between(an_entry(), an_entry([140.0, 290.0, 150.0]))
    assert ratio(found).low == found.results[1].low == 0.0


@pytest.mark.parametrize("lone", [0, 1])
def test_one_run_gets_a_ratio_and_no_interval(lone):
    found = ratio(between(*(an_entry([100.0]) if place == lone else an_entry(times(3)) for place in range(2))))
    assert (found.verdict, found.value) == (Comparative.INCONCLUSIVE, pytest.approx(3 if lone == 0 else 1 / 3))
    assert (found.low, found.high, found.smallest_effect, found.more_runs) == (None, None, None, None)
    assert "at least two runs" in found.reason


@pytest.mark.parametrize(("value", "words"), [(None, "no figure"), (0.0, "zero"), (0.9, "once")])
def test_a_figure_that_is_missing_zero_or_taken_once_is_inconclusive(value, words):
    first = a_metric("accuracy", []).model_copy(update={"value": value})
    found = ratio(between(an_entry(metrics=[first]), an_entry(metrics=[a_metric("accuracy", [])])))
    assert found.verdict is Comparative.INCONCLUSIVE
    assert words in found.reason


def test_the_first_metric_is_compared_unless_another_is_named():
    def both(factor):
        return an_entry(metrics=[a_metric(by_run=times(factor)), a_metric("time", times(1 / factor), "lower")])

    first, other = both(1.0), both(2.0)
    assert between(first, other).metric == "throughput"
    named = between(first, other, metric="time")
    assert (named.metric, named.unit, named.better) == ("time", "s", "lower")
    assert ratio(named).verdict is Comparative.FASTER


@pytest.mark.parametrize(
    ("confidence", "share"),
    [(0.95, "at 95 %, one of 20 misses on average"), (0.5, "at 50 %, one of 2 "), (0.999, "at 99.9 %, one of 1000 ")],
)
def test_each_of_several_is_compared_with_the_first(confidence, share):
    found = between(an_entry(), an_entry(times(2)), an_entry(times(0.5)), confidence=confidence)
    assert [each.ratio and each.ratio.verdict for each in found.results] == [None, "FASTER", "SLOWER"]
    assert share in found.notes[-1]


@pytest.mark.parametrize(
    ("factor", "margin", "verdict", "noted"),
    [(1.01, 0.05, "SAME", True), (0.99, 0.05, "SAME", True), (1.0, 0.05, "SAME", False), (1.1, 0.05, "FASTER", False)],
)
def test_a_note_says_that_results_within_the_margin_differ(factor, margin, verdict, noted):
    steady = [100.0, 100.1, 99.9]
    first, other = an_entry(steady), an_entry(times(factor, steady))
    found = between(first, other, margin=margin)
    assert ratio(found).verdict == verdict
    assert any(note.startswith(f"{other.job.id} is SAME by the margin of 5 %, but") for note in found.notes) is noted


@pytest.mark.parametrize("base", [0, 1])
def test_an_untrusted_result_has_a_ratio_and_no_verdict(base):
    wrong = an_entry(times(2), verdict=Verdict.UNTRUSTED, warnings=[warning("ABOVE_PEAK"), warning("TARGET_MISSED")])
    found = between(an_entry(verdict=Verdict.TRUSTED), wrong, base=base)
    assert found.verdict is Verdict.UNTRUSTED
    told = ratio(found, 1 - base)
    assert (told.verdict, told.low, told.high, told.more_runs) == (Comparative.INCONCLUSIVE, None, None, None)
    assert told.value == told.as_measured == pytest.approx(2 if base == 0 else 0.5)
    assert told.reason == f"{wrong.job.id} is untrusted (ABOVE_PEAK), so the ratio is wrong"
    assert found.results[1].warnings == ["ABOVE_PEAK", "TARGET_MISSED"]
    assert f"{wrong.job.id} is untrusted (ABOVE_PEAK)" in found.notes[0]
    assert between(an_entry(verdict=Verdict.TRUSTED), an_entry()).verdict is Verdict.INDICATIVE


def reaching(share, factor=1.0):
    return an_entry(times(factor), peak=Peak(value=1e12, fraction=share))


@pytest.mark.provokes("WEAK_BASELINE", how="made")
@pytest.mark.silent("WEAK_BASELINE")
@pytest.mark.parametrize(
    ("first", "other", "factor", "raised"),
    [
        (0.10, 0.80, 3.0, True),
        (0.10, 0.15, 3.0, False),  # the work reaches little on any device
        (0.40, 0.90, 3.0, False),
        (0.10, 0.80, 0.5, False),  # no result is faster
        (None, 0.80, 3.0, False),
        (0.10, None, 3.0, False),
    ],
)
def test_a_first_result_that_leaves_its_device_idle_is_a_weak_baseline(first, other, factor, raised):
    found = between(reaching(first), reaching(other, factor))
    assert [each.code for each in found.warnings] == ["WEAK_BASELINE"] * raised
    if raised:
        assert found.warnings[0].evidence["peak_fraction"] == first


@pytest.mark.parametrize(
    ("metric", "shares", "raised"),
    [
        ("throughput", (0.01, 0.04), True),
        ("throughput_8x8x8", (0.01, 0.04), True),
        ("throughput_512x512x512", (0.6, 0.7), False),
        ("cold_throughput", (None, None), False),  # the fraction of peak is that of later executions
    ],
)
def test_a_baseline_is_judged_by_the_fraction_of_peak_of_the_compared_work(metric, shares, raised):
    def of_sizes(factor, small, large):
        cases = {"8x8x8": {"peak_fraction": small}, "512x512x512": {"peak_fraction": large}}
        metrics = [a_metric(metric, times(factor))]
        return an_entry(metrics=metrics, peak=Peak(value=1e12, fraction=small), details={"cases": cases})

    found = between(of_sizes(1.0, 0.01, 0.6), of_sizes(2.0, 0.04, 0.7))
    assert tuple(each.peak_fraction for each in found.results) == shares
    assert [each.code for each in found.warnings] == ["WEAK_BASELINE"] * raised


def test_a_comparison_survives_a_round_trip_through_json():
    for found in (
        between(an_entry(), an_entry(RATES[:1]), an_entry(times(2))),
        made(a_result(DRIFTING), a_result(DRIFTING)),
    ):
        assert Comparison.model_validate_json(found.model_dump_json(by_alias=True)) == found


class Products(Params):
    how: ClassVar[frozenset[str]] = frozenset({"repeats"})


PRODUCTS = replace(registry()["matmul"], params=Products)

DRIFTING = [100.0, 99.0, 98.0, 97.0, 96.0, 95.0]
NOISE = [1.001, 0.999, 1.0005, 0.9995, 1.002, 0.998]


def rates(factor):
    """Rates of runs on a machine that slows down; neighbouring runs differ only by little noise."""
    return [factor * level * noise for level, noise in zip(DRIFTING, NOISE, strict=True)]


def made(second, control=None, confidence=0.95, **first):
    one = Spec(workload="matmul", params={"n": 64, "repeats": 1})
    two = one.model_copy(update={"params": {"n": 64, "repeats": 2}, "framework": "jax"})
    asked = {"pairs": 6, "metric": "throughput", "confidence": confidence}
    spec = InterleavedSpec(**dict(one), against=two, control=control is not None, **asked)
    entry = an_entry(DRIFTING, params=one.params, **first)
    job = entry.job.model_copy(update={"spec": spec})
    arms = [second.model_copy(update={"params": two.params})]
    arms += [] if control is None else [control.model_copy(update={"params": one.params})]
    return compare_variants(job, spec, entry.result.model_copy(update={"arms": arms}), PRODUCTS)


def test_a_result_without_the_arms_of_its_spec_is_not_comparable():
    entry = an_entry(DRIFTING)
    spec = InterleavedSpec(
        workload="matmul", against=Spec(workload="matmul"), pairs=6, control=False, metric="throughput"
    )
    alone = entry.result.model_copy(update={"arms": []})
    with pytest.raises(NotComparable, match="another number of arms"):
        compare_variants(entry.job.model_copy(update={"spec": spec}), spec, alone, PRODUCTS)


def a_result(by_run, **result):
    return of_metrics([a_metric(by_run=by_run)], **result)


def test_the_ratio_of_neighbouring_runs_is_free_of_drift():
    found = made(a_result(rates(1.03)), a_result(rates(1.0)))
    assert (ratio(found).verdict, ratio(found).degrees_of_freedom) == (Comparative.FASTER, 4)
    assert ratio(found).value == pytest.approx(1.03, rel=1e-3)
    assert (found.kind, found.status, found.id) == ("interleaved", "done", comparison_of(str(found.job)))
    assert job_of(found.id) == found.job
    assert [each.arm for each in found.results] == ["first", "second"]


def beside(*places):
    """Six runs on two cores, of which others used a tenth during those at these places."""
    quiet = CoreShares(others=0.01, stolen=0.0, beside=0.0, most_taken=0.0, package_busy=0.0, package_cores=0)
    loud = quiet.model_copy(update={"others": 0.1})
    runs = [make_record([1.0], core_shares=loud if place in places else quiet).summary for place in range(6)]
    return {"runs": runs, "device": {"id": "cpu:0-1", "host": "here", "kind": "cpu", "cores": [0, 1]}}


def slow_at(place):
    return [rate * (0.8 if at == place else 1.0) for at, rate in enumerate(rates(1.03))]


def test_a_pair_that_others_spoilt_does_not_count():
    found = made(a_result(slow_at(2), **beside(2)), **beside())
    assert (ratio(found).verdict, ratio(found).degrees_of_freedom) == (Comparative.FASTER, 3)
    assert ratio(found).value == pytest.approx(1.03, rel=1e-3)
    assert found.notes == ["Pairs that don't count: 1 of 6. Other work used the cores during one of their runs."]
    of_first = made(a_result(slow_at(2), **beside()), **beside(2))
    assert ratio(of_first).value == ratio(found).value
    counted = made(a_result(slow_at(2), **beside()), **beside())
    assert (ratio(counted).verdict, counted.notes) == (Comparative.INCONCLUSIVE, [])


def test_a_control_is_judged_without_the_pairs_that_others_spoilt():
    found = made(a_result(rates(1.0), **beside()), a_result(slow_at(3), **beside(3)), **beside())
    assert found.control.value == pytest.approx(1.03, rel=1e-3)
    assert (ratio(found).degrees_of_freedom, found.control.degrees_of_freedom) == (4, 3)


def test_where_others_spoilt_most_pairs_of_an_order_every_pair_counts():
    found = made(a_result(slow_at(2), **beside(2)), **beside(4))
    assert (ratio(found).degrees_of_freedom, found.notes) == (4, [])


def test_the_control_shows_the_noise_without_a_note():
    found = made(a_result(rates(1.03)), a_result(rates(1.0)))
    assert (found.control.verdict, found.notes) == (Comparative.SAME, [])
    assert made(a_result(rates(1.03))).control is None


@pytest.mark.parametrize("departure", [1.1, 1 / 1.1])
@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.03, "INCONCLUSIVE"), (1.09, "INCONCLUSIVE"), (1.2, "FASTER"), (0.95, "INCONCLUSIVE"), (0.8, "SLOWER")],
)
def test_only_ratios_beyond_the_control_count(departure, factor, verdict):
    """The first spec differs from itself by 10 %, so less than 10 % tells nothing."""
    found = made(a_result(rates(factor)), a_result(rates(departure)))
    assert found.control.verdict in (Comparative.FASTER, Comparative.SLOWER)
    alone = made(a_result(rates(factor)), a_result(rates(1.0)))
    told, plain = ratio(found), ratio(alone)
    assert (told.verdict, told.value, told.more_runs) == (verdict, plain.value, None)
    assert (told.low, told.high) == pytest.approx((plain.low / 1.1, 1.1 * plain.high), 1e-2)


@pytest.mark.parametrize(
    ("confidence", "chance"), [(0.95, "at 95 %, one of 20 does by chance"), (0.5, "at 50 %, one of 2 does by chance")]
)
def test_a_control_that_differs_from_itself_is_noted_with_its_chance(confidence, chance):
    found = made(a_result(rates(1.03)), a_result(rates(1.1)), confidence=confidence)
    assert found.control.verdict is Comparative.FASTER
    assert "widened by the control's ratio" in found.notes[0]
    assert chance in found.notes[0]


def test_notes_are_of_the_widened_ratio():
    """1.012 alone is SAME by a margin of 2 %, with a note that 1 is outside of its interval."""
    alone, beside_noise = (made(a_result(rates(1.012)), a_result(rates(control))) for control in (1.0, 1.03))
    assert (ratio(alone).verdict, ratio(beside_noise).verdict) == (Comparative.SAME, Comparative.INCONCLUSIVE)
    assert any("is SAME by the margin" in note for note in alone.notes)
    assert not any("is SAME by the margin" in note for note in beside_noise.notes)


def test_an_untrusted_control_shows_no_noise_and_a_note_says_so():
    control = a_result(rates(1.1), verdict=Verdict.UNTRUSTED, warnings=[warning("ABOVE_PEAK")])
    found = made(a_result(rates(1.03)), control)
    assert (found.control.verdict, found.control.low) == (Comparative.INCONCLUSIVE, None)
    assert found.notes == [
        "The control is untrusted (ABOVE_PEAK), so it doesn't show the noise. The intervals ignore it."
    ]
    assert ratio(found).verdict is Comparative.FASTER


def test_a_note_names_an_untrusted_arm():
    found = made(a_result(rates(1.0), verdict=Verdict.UNTRUSTED, warnings=[warning("ABOVE_PEAK")]))
    assert found.verdict is Verdict.UNTRUSTED
    assert "the second spec is untrusted (ABOVE_PEAK)" in found.notes[0]


def test_the_intended_difference_is_listed():
    differences = {each.field: each.values for each in made(a_result(rates(1.0))).differences}
    assert differences == {"/params/repeats": [1, 2], "/framework": ["tensorflow", "jax"]}


def test_arms_that_ran_in_different_precisions_are_different_work():
    found = made(a_result(rates(1.0), precision=Precision(requested="float32", observed="tf32", rel_error=3e-4)))
    assert not found.same_work
    assert "/precision/observed" in found.notes[0]


def at_clock(hz, factor, jobs=0, elasticity=1.0, known=True, **result):
    """A result whose runs all had the clock `hz`, with a prediction if that is `known`."""
    based_on = BasedOn(runs=5, jobs=jobs)
    repeat = Repeat(low=1.0, high=2.0, based_on=based_on, clock_hz=hz, elasticity=elasticity if hz else None)
    metric = a_metric(by_run=times(factor)).model_copy(update={"repeat": repeat if known else None})
    runs = [make_record([1.0] * 20, clock_hz=hz).summary] * 5
    return an_entry(metrics=[metric], runs=runs, **result)


def test_results_of_equal_hardware_are_compared_at_the_clock_of_the_first():
    """3.9 / 3.6 GHz is 1.083; to the power of 0.89 it is 1.074. More results know the elasticity better."""
    found = between(at_clock(3.6e9, 1.0), at_clock(3.9e9, 1.074, jobs=12, elasticity=0.89))
    first, second = found.results
    assert (first.clock_hz, first.adjusted_value, second.clock_hz) == (3.6e9, None, 3.9e9)
    assert second.value == pytest.approx(107.4)
    assert second.adjusted_value == pytest.approx(100.0, abs=0.05)
    assert ratio(found).value == pytest.approx(1.0, abs=1e-3)
    assert ratio(found).as_measured == pytest.approx(1.074)
    assert any(second.job in note and first.job in note and "clock" in note for note in found.notes)
    assert found.warnings == []


def test_the_interval_of_an_adjusted_ratio_holds_the_errors_of_the_clock_and_of_the_elasticity():
    found = [
        between(an_entry(), an_entry()),
        *(between(at_clock(3.6e9, 1.0), at_clock(hz, hz / 3.6e9, jobs=12)) for hz in (3.6e9, 3.6000001e9, 3.9e9)),
    ]
    plain, same, nearly, another = (math.log(of.high / of.low) for of in map(ratio, found))
    assert plain < same < another
    assert same == pytest.approx(nearly, rel=1e-3), "equal clocks are measured with an error, too"
    assert another > 2 * plain


def test_without_a_prediction_the_elasticity_of_a_sampled_metric_is_assumed():
    """A stray or noisy result has no `repeat`. At 70 % of the peak, a rate follows the clock."""
    first, second = (at_clock(hz, factor, known=False) for hz, factor in ((3.6e9, 1.0), (3.9e9, 1.08333)))
    found = ratio(between(first, second))
    assert (found.value, found.as_measured) == (pytest.approx(1.0, abs=1e-3), pytest.approx(1.08333))
    assert ratio(between(first, second, workload=None)).value == pytest.approx(1.08333), "perhaps it isn't sampled"


@pytest.mark.provokes("CLOCK_CHANGED", how="made")
@pytest.mark.parametrize("device", [{}, {"device": GPU}])
def test_a_large_step_of_the_clock_is_a_finding_and_no_excuse(device):
    """At 60 % of the clock with 65 % of the throughput, adjusted values would say 1.083: FASTER."""
    found = between(at_clock(4e9, 1.0, **device), at_clock(2.4e9, 0.65, **device))
    assert found.results[1].adjusted_value is None
    assert (ratio(found).verdict, ratio(found).value) == (Comparative.SLOWER, pytest.approx(0.65))
    (raised,) = found.warnings
    assert (raised.code, raised.evidence["jobs"]) == ("CLOCK_CHANGED", [found.results[1].job])
    assert raised.evidence["clocks_hz"] == [4e9, 2.4e9]
    (of_all,) = between(*(at_clock(hz, hz / 4e9, **device) for hz in (4e9, 2.4e9, 3.9e9, 5e9))).warnings
    assert of_all.evidence["clocks_hz"] == [4e9, 2.4e9, 5e9]
    assert "2.40 GHz" in of_all.message
    assert "5.00 GHz" in of_all.message


@pytest.mark.silent("CLOCK_CHANGED")
@pytest.mark.parametrize(
    "fields",
    [
        {"spec": {"params": {"n": 65}}},
        {"spec": {"framework": "jax"}},
        {"spec": {"params": {"n": 64, "mode": "dispatch"}}},
        {"precision": precision("tf32")},
        {"hardware_id": "hw_2"},
        {"hardware_id": None},
    ],
)
def test_other_work_other_ways_and_other_hardware_keep_their_clocks(fields):
    for hz in (3.9e9, 2.4e9):
        found = between(at_clock(3.6e9, 1.0), at_clock(hz, 1.05, **fields))
        assert found.results[1].adjusted_value is None
        assert ratio(found).value == ratio(found).as_measured == pytest.approx(1.05)
        assert found.warnings == []
        assert not any("at the clock" in note for note in found.notes)


def test_a_clock_that_the_work_sets_is_no_covariate():
    """A GPU's power limit makes its clock: float32 at 1.98 GHz and bfloat16 at 1.35 GHz are two figures as they are."""
    found = between(at_clock(1.98e9, 1.0, device=GPU), at_clock(1.85e9, 1.05, device=GPU))
    assert (found.results[1].adjusted_value, found.warnings) == (None, [])
    assert ratio(found).value == pytest.approx(1.05)


def test_values_are_adjusted_to_the_clock_of_the_base():
    found = between(at_clock(3.9e9, 1.0833), at_clock(3.6e9, 1.0), base=1)
    assert found.results[0].adjusted_value == pytest.approx(100, abs=0.1)
    assert found.results[1].adjusted_value is None
    assert f"at the clock of {found.results[1].job}, for {found.results[0].job}" in found.notes[-1]


@pytest.mark.parametrize("second", [at_clock(None, 1.114), an_entry(times(1.114))])
def test_unknown_clocks_are_not_adjusted(second):
    found = between(at_clock(3.56e9, 1.0), second)
    assert found.results[1].adjusted_value is None
    assert ratio(found).value == pytest.approx(1.114)
    assert not any("at the clock" in note for note in found.notes)

"""Results held against baselines: the outcome, its interval, and how often it is wrong."""

import math
import random
from datetime import UTC, datetime

import pytest

from dyno.bench.measure.baseline_outcome import (
    JudgedResult,
    check_metric,
    figure_metric,
    figure_of,
    is_another_level,
    judge,
    margin_advice,
    most_runs,
    runs_to_settle,
)
from dyno.bench.measure.peers import peer
from dyno.bench.measure.ratios import ratio_of_means
from dyno.bench.measure.result_metrics import judged_metrics
from dyno.bench.registry import registry
from dyno.errors import InvalidBaseline, InvalidSpec
from dyno.models.baseline import BASELINE_MARGIN, Baseline
from dyno.models.job import BaselineOutcome
from dyno.models.result import Headline, Precision, ResultWarning, RunSummary, Verdict
from dyno.models.spec import Spec
from tests.comparisons import a_metric, of_metrics, times

SERIES = "series"
SPEC = Spec.model_validate({"workload": "matmul", "params": {"n": 64}})
NOW = datetime(2026, 11, 23, tzinfo=UTC)


def a_peer(result, clock_hz=None, **changes):
    metric = result.metrics[0]
    return peer(result, metric, metric.value or 0).model_copy(update={"clock_hz": clock_hz, **changes})


def a_baseline(result, margin=0.05, clock_hz=None, **fields):
    metric = figure_metric(result, fields.pop("metric", None))
    headline = Headline(SERIES, a_peer(result, clock_hz))
    figure = figure_of(metric, result, SPEC, headline, [result.metrics[0].name], NOW)
    of_metric = {"metric": metric.name, "unit": metric.unit, "better": metric.better}
    return Baseline(name="main", margin=margin, job=result.job, figure=figure, saved_at=NOW, **of_metric | fields)


def a_limit(**limit):
    return Baseline(name="floor", margin=0, job=None, metric="throughput", saved_at=NOW, **limit)


def held(baseline, result, earlier=(), *, clock_hz=None, series=SERIES, further=None, allowed=(), free=()):
    headline = Headline(series, a_peer(result, clock_hz)) if result.metrics and result.metrics[0].by_run else None
    peers = {series: earlier, **(further or {})}
    spec = SPEC.model_copy(update={"baseline_allow": list(allowed)})
    return JudgedResult(baseline, spec, result, headline, [each.name for each in result.metrics[:1]], peers, free)


def rates(factor=1.0, **result):
    return of_metrics([a_metric(by_run=times(factor))], **result)


def of_runs(*figures):
    return of_metrics([a_metric(by_run=list(figures))])


def peers_at(*factors):
    return [a_peer(rates(factor)) for factor in factors]


CALM = peers_at(0.999, 1.001, 1.0, 0.998, 1.002, 1.0, 0.9995, 1.0005)


def outcome_of(factor, earlier=(), **how):
    """Of a result at this factor of the baseline."""
    return judge(held(a_baseline(rates()), rates(factor), earlier, **how))


@pytest.mark.parametrize(
    ("factor", "outcome"), [(1.0, "pass"), (1.2, "pass"), (0.98, "pass"), (0.95, "inconclusive"), (0.9, "fail")]
)
def test_a_result_fails_only_if_its_whole_interval_is_beyond_the_margin(factor, outcome):
    found = outcome_of(factor)
    assert (found.outcome, found.ratio) == (outcome, pytest.approx(factor))
    assert found.low < factor < found.high
    limit = 1 / 1.05
    assert (found.high < limit, found.low >= limit) == (outcome == "fail", outcome == "pass")
    assert (found.reason is None) == (outcome != "inconclusive")


def test_a_time_that_grows_is_a_slowdown():
    def of_times(factor):
        return of_metrics([a_metric("execution_time", times(factor), "lower")])

    slower, faster = (judge(held(a_baseline(of_times(1)), of_times(factor))) for factor in (1.2, 0.8))
    assert (slower.outcome, slower.ratio) == ("fail", pytest.approx(1 / 1.2))
    assert (faster.outcome, faster.ratio) == ("pass", pytest.approx(1 / 0.8))


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        ({"at_least": 90.0}, "pass"),
        ({"at_least": 100.0}, "inconclusive"),
        ({"at_least": 110.0}, "fail"),
        ({"at_most": 110.0}, "pass"),
        ({"at_most": 90.0}, "fail"),
    ],
)
def test_a_limit_has_no_scatter_of_its_own(limit, outcome):
    found = judge(held(a_limit(**limit), rates()))
    assert (found.outcome, found.job, found.differences) == (outcome, None, [])
    assert width(found) < width(outcome_of(1.0))


def width(found):
    return math.log(found.high / found.low)


def test_jobs_that_differ_widen_the_interval_beyond_their_runs():
    """Each job's runs lie within 1 %, the jobs within 20 %."""
    alone, informed = outcome_of(0.9), outcome_of(0.9, peers_at(0.9, 1.1, 0.95, 1.05, 1.0))
    assert (alone.outcome, informed.outcome) == ("fail", "inconclusive")
    assert width(outcome_of(0.9, CALM[:5])) < width(alone)


def test_a_slow_result_does_not_hide_behind_its_own_slowness():
    failed = [a_peer(rates(0.7), failed=True) for _ in range(5)]
    same, slow, again = outcome_of(1.0, CALM), outcome_of(0.7, CALM), outcome_of(0.7, [*CALM, *failed])
    assert width(again) == pytest.approx(width(slow)) == pytest.approx(width(same))


def outcomes(machine, margin, speed=1.0, earlier=0, jobs=30):
    """Of jobs one after the other, each held against the same baseline with the results before it."""
    peers, found = [a_peer(of_runs(*machine.job())) for _ in range(earlier)], []
    baseline = a_baseline(of_runs(*machine.job()), margin)
    for _ in range(jobs):
        result = of_runs(*machine.job(speed))
        found.append(str(judge(held(baseline, result, peers)).outcome))
        peers.insert(0, a_peer(result, failed=found[-1] == "fail"))
    return found


@pytest.mark.parametrize("between", [0.03, pytest.param(0.05, marks=pytest.mark.verify)])
def test_unchanged_work_hardly_fails_at_the_default_margin(between):
    """Levels deviate by 3 % or by the margin itself. At a margin of nothing, 9 % of the former would fail."""
    machine = Machine(5, 0.01, between)
    found = [outcome for _ in range(20) for outcome in outcomes(machine, BASELINE_MARGIN)]
    assert found.count("fail") / len(found) <= 0.025


def test_code_that_stays_slow_keeps_failing():
    """If failed results counted as scatter, 10 % of the repeated jobs would fail."""
    machine = Machine(5, 0.01, 0.005)
    assert outcomes(machine, 0.02, speed=0.9, earlier=8, jobs=10) == ["fail"] * 10


@pytest.mark.parametrize("jobs", [8, 20])
@pytest.mark.parametrize("mode", [0.87, 0.7, 0.5])
def test_work_with_two_modes_does_not_fail(jobs, mode):
    """A quarter of the earlier jobs ran in the slower mode, as the new one does."""
    peers = peers_at(*((mode if place % 4 == 0 else 1.0) * (1 + place % 3 / 1000) for place in range(jobs)))
    assert outcome_of(mode, peers).outcome == "inconclusive"


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_an_accepted_change_does_not_widen_the_interval(factor):
    """Results of the level before it show no scatter, neither for its own job as baseline nor for a later one."""
    accepted, next_one, later = rates(factor), rates(factor), peers_at(1.001 * factor, 0.999 * factor)
    for result, peers in ((accepted, later), (next_one, [*later, a_peer(next_one)])):
        baseline = a_baseline(result)
        figure = baseline.figure.model_copy(update={"level_since": accepted.job})
        baseline = baseline.model_copy(update={"figure": figure})
        alone = judge(held(baseline, rates(factor), peers))
        among = judge(held(baseline, rates(factor), [*peers, a_peer(accepted), *CALM]))
        assert (among.outcome, among.low, among.high) == ("pass", alone.low, alone.high)


@pytest.mark.parametrize(
    ("fields", "differs"),
    [
        ({"low": 0.8, "high": 0.9}, True),
        ({"low": 1.1, "high": 1.2}, True),
        ({"low": 0.9, "high": 1.2}, False),
        ({"low": 1.01, "high": 1.2}, False),
        ({"low": 0.8, "high": 0.9, "job": None}, False),
        ({}, False),
    ],
)
def test_a_level_is_another_one_beyond_the_margin(fields, differs):
    known = {"name": "main", "outcome": "inconclusive", "margin": 0.05, "job": "job_1"}
    assert is_another_level(BaselineOutcome.model_validate(known | fields)) is differs
    assert not is_another_level(None)


@pytest.mark.parametrize(
    ("baseline", "code"),
    [
        (a_baseline(rates()), None),
        (a_limit(at_least=1.0), None),
        (a_limit(at_least=1.0).model_copy(update={"metric": "epoch_time"}), "unknown-metric"),
        (a_baseline(rates()).model_copy(update={"unit": "OP/s"}), "other-unit"),
        (a_baseline(rates()).model_copy(update={"better": "lower"}), "other-unit"),
        (a_baseline(rates()).model_copy(update={"metric": "cold_throughput"}), None),
        (a_limit(at_most=1.0).model_copy(update={"metric": "execution_time"}), None),
    ],
)
def test_a_baseline_that_no_result_can_be_held_against_is_refused(baseline, code):
    matmul = registry()["matmul"]
    metrics = judged_metrics(matmul, matmul.params())
    if code is None:
        return check_metric(baseline, metrics)
    with pytest.raises(InvalidSpec) as refused:
        check_metric(baseline, metrics)
    assert [(error.pointer, error.code) for error in refused.value.errors] == [("/baseline", code)]


def test_results_of_one_device_are_compared_at_one_clock():
    """8 % slower at a clock that is 8 % lower."""
    earlier = [a_peer(rates(hz / 4e9), hz) for hz in (3.6e9, 3.8e9, 4.1e9, 4.2e9, 3.7e9, 3.9e9)]
    baseline = a_baseline(rates(), clock_hz=4e9)
    at_one = judge(held(baseline, rates(0.92), earlier, clock_hz=0.92 * 4e9))
    assert at_one.ratio == pytest.approx(1, abs=0.005)
    assert at_one.outcome == "pass"
    elsewhere = judge(held(baseline, rates(0.92, hardware_id="hw_2"), earlier, clock_hz=0.92 * 4e9))
    assert elsewhere.ratio == pytest.approx(0.92)
    unknown = judge(held(a_baseline(rates()), rates(0.92), clock_hz=0.92 * 4e9))
    assert unknown.ratio == pytest.approx(0.92)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_gate_is_not_excused_by_a_clock_that_fell(kind):
    """At 60 % of the baseline's clock with 65 % of its throughput, an adjusted ratio would be 1.083."""
    device = {"device": {"id": f"{kind}:0", "host": "here", "model": "Test", "kind": kind}}
    found = judge(held(a_baseline(rates(**device), clock_hz=4e9), rates(0.65, **device), clock_hz=2.4e9))
    assert (found.outcome, found.ratio) == ("fail", pytest.approx(0.65))
    assert found.ratio_as_measured == pytest.approx(0.65)
    assert "2.40 GHz" in found.reason
    assert "4.00 GHz" in found.reason


@pytest.mark.parametrize(
    ("hz", "factor", "outcome"), [(3.6e9, 1.1, "inconclusive"), (3.6e9, 0.7, "fail"), (2.1e9, 1.1, "pass")]
)
def test_a_higher_clock_is_no_reason_to_pass(hz, factor, outcome):
    """50 % more cycles for 10 % more work: 27 % slower in each cycle. A lower clock hides no slowdown."""
    judged = held(a_baseline(rates(), clock_hz=2.4e9), with_runs(rates(factor)), clock_hz=hz)
    found = judge(judged)
    assert (found.outcome, found.ratio) == (outcome, pytest.approx(factor))
    assert ("may hide a slowdown" in found.reason) == (outcome == "inconclusive")
    assert runs_to_settle(judged, 15) == 5, "more runs have the same clock"


def test_an_undecided_outcome_says_that_no_earlier_result_counts():
    alone, among = outcome_of(0.95), outcome_of(0.95, peers_at(1.0))
    assert alone.outcome == among.outcome == "inconclusive"
    told = [" no earlier result shows how much jobs differ" in found.reason for found in (alone, among)]
    assert told == [True, False]


def test_a_gate_on_a_gpu_uses_no_clock():
    device = {"device": {"id": "gpu:0", "host": "here", "model": "Test GPU", "kind": "gpu"}}
    found = judge(held(a_baseline(rates(**device), clock_hz=2e9), rates(0.93, **device), clock_hz=0.93 * 2e9))
    assert found.ratio == pytest.approx(0.93)


def test_the_errors_of_the_clock_widen_the_interval():
    earlier = [a_peer(rates(hz / 4e9), hz) for hz in (3.8e9, 3.9e9, 4.1e9, 4.2e9)]
    same, lower = (
        judge(held(a_baseline(rates(), clock_hz=4e9), rates(hz / 4e9), earlier, clock_hz=hz)) for hz in (4e9, 3.7e9)
    )
    assert lower.ratio == pytest.approx(same.ratio, abs=1e-3)
    assert lower.ratio_as_measured == pytest.approx(0.925)
    assert width(lower) > width(same)


def test_what_else_differs_is_named():
    device = {"id": "gpu:0", "host": "there", "model": "Test GPU", "kind": "gpu"}
    other = rates(
        params={"n": 128},
        hardware_id="hw_2",
        device=device,
        environment={"python": "CPython 3.11", "packages": {"jax": "0.11.0"}},
    )
    found = judge(held(a_baseline(rates(params={"n": 64})), other, series="other work"))
    named = {each.field: (each.baseline, each.job) for each in found.differences}
    assert named["/params/n"] == (64, 128)
    assert named["/device/model"] == ("Test CPU", "Test GPU")
    assert named["/hardware_id"] == ("hw_1", "hw_2")
    assert named["/environment/packages/jax"] == ("0.10.2", "0.11.0")
    assert "/environment/python" not in named


CPU = {"id": "cpu:0-1", "host": "here", "model": "Test CPU", "kind": "cpu"}
GPU = {"id": "gpu:0", "host": "there", "model": "Test GPU", "kind": "gpu"}


@pytest.mark.parametrize(
    ("then", "now", "allowed", "field"),
    [
        ({"params": {"n": 64}}, {"params": {"n": 128}}, ["params.n"], "/params/n"),
        ({}, {"hardware_id": "hw_2", "device": GPU}, ["hardware"], "/hardware_id"),
        ({"hardware_id": None}, {"device": GPU}, ["hardware"], "/hardware_id"),
        ({"hardware_id": None}, {"device": CPU | {"cores": [0, 1]}}, ["hardware"], "/hardware_id"),
        ({"hardware_id": None, "device": {}}, {"device": {}}, ["hardware"], "/hardware_id"),
        ({}, {"precision": Precision(requested="float32", observed="tf32")}, ["precision"], "/precision/observed"),
        ({"params": {"dtype": "float32"}}, {"params": {"dtype": "bfloat16"}}, ["precision"], "/params/dtype"),
        ({}, {"method_version": "1"}, ["method"], "/method_version"),
        ({}, {"workload": "resnet50"}, ["workload"], "/workload"),
    ],
)
def test_other_work_and_other_hardware_are_inconclusive_unless_named(then, now, allowed, field):
    """20 times as good, because it is something else."""
    baseline, result = a_baseline(rates(**then)), rates(20, **now)
    found = judge(held(baseline, result, series="other work"))
    assert (found.outcome, found.ratio, found.low) == ("inconclusive", pytest.approx(20), None)
    assert found.other_work == [field]
    assert field in found.reason
    assert f"{allowed[0]} (--baseline-allow" in found.reason
    assert runs_to_settle(held(baseline, with_runs(result), series="other work"), 15) == 5
    named = judge(held(baseline, result, series="other work", allowed=allowed))
    assert (named.outcome, named.other_work) == ("pass", [])
    assert judge(held(baseline, result, series="other work", allowed=["replicas"])).outcome == "inconclusive"


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({}, {"params": {"new": 1}}),  # a param that the baseline's version didn't have
        ({"params": {"way": 1}}, {"params": {"way": 2}}),
        ({}, {"context_id": "ctx_2", "environment": {}}),
        ({}, {"precision": Precision(requested="float32", observed=None)}),
        ({}, {"hardware_id": None}),
    ],
)
def test_other_software_and_other_ways_are_judged(then, now):
    found = judge(held(a_baseline(rates(**then)), rates(0.8, **now), free=["way"]))
    assert (found.outcome, found.other_work) == ("fail", [])
    assert found.differences != []


@pytest.mark.parametrize("earlier", [1, 2, 3, 8])
@pytest.mark.parametrize("stray", [20.0, 0.05])
def test_one_result_far_away_does_not_keep_a_gate_from_failing(earlier, stray):
    peers = [*peers_at(stray), *CALM[: earlier - 1]]
    assert [outcome_of(factor, peers).outcome for factor in (0.85, 1.0)] == ["fail", "pass"]


def test_one_result_far_away_does_not_hide_the_elasticity():
    earlier = [a_peer(rates(hz / 4e9), hz) for hz in (3.8e9, 3.9e9, 4.0e9, 4.1e9, 4.2e9)]
    peers, baseline = [*earlier, a_peer(rates(20), 3.7e9)], a_baseline(rates(), clock_hz=4e9)
    found = judge(held(baseline, rates(0.92), peers, clock_hz=3.68e9))
    assert (found.outcome, found.ratio) == ("pass", pytest.approx(1.0, abs=1e-3))


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (of_metrics([a_metric("accuracy")]), "the result has no metric throughput"),
        (of_metrics([a_metric().model_copy(update={"unit": "samples/s"})]), "is in samples/s here, and in FLOP/s"),
        (of_metrics([a_metric(by_run=[]).model_copy(update={"value": None, "reason": "lost"})]), "lost"),
        (of_metrics([a_metric(by_run=[])]), "taken once"),
        (
            rates(
                verdict=Verdict.UNTRUSTED,
                warnings=[ResultWarning(code="ABOVE_PEAK", severity="A", message="too fast")],
            ),
            "untrusted: ABOVE_PEAK",
        ),
    ],
    ids=["no metric", "another unit", "no value", "once", "untrusted"],
)
def test_what_can_not_be_judged_is_inconclusive_and_says_why(result, reason):
    found = judge(held(a_baseline(rates()), result))
    assert (found.outcome, found.low, found.high) == ("inconclusive", None, None)
    assert reason in found.reason


def test_a_single_run_has_an_interval_only_by_other_jobs_of_its_series():
    one, of_one = of_runs(70.0), a_baseline(of_runs(100.0))
    alone = judge(held(of_one, one))
    assert (alone.outcome, alone.ratio, alone.low) == ("inconclusive", pytest.approx(0.7), None)
    assert "one run" in alone.reason
    assert judge(held(a_baseline(rates()), one)).outcome == "fail", "the baseline's runs show the scatter of runs"
    assert judge(held(a_baseline(rates()), one, series="other work")).low is None
    earlier = [a_peer(of_runs(value)) for value in (99.0, 100.0, 101.0, 100.5, 99.5, 100.0)]
    assert judge(held(of_one, one, earlier)).outcome == "fail"


@pytest.mark.parametrize(
    ("result", "metric", "code"),
    [
        (of_metrics([]), None, "unknown-metric"),
        (rates(), "speed", "unknown-metric"),
        (of_metrics([a_metric(), a_metric("accuracy", [])]), "accuracy", "no-scatter"),
        (rates(verdict=Verdict.UNTRUSTED), None, "untrusted"),
    ],
)
def test_a_figure_that_no_job_could_be_held_against_is_refused(result, metric, code):
    with pytest.raises(InvalidBaseline) as refused:
        figure_metric(result, metric)
    assert [error.code for error in refused.value.errors] == [code]


def test_the_bound_on_runs_is_that_of_a_range_or_three_times_the_number():
    def bound(processes):
        return most_runs(Spec.model_validate({"workload": "matmul", "measure": {"processes": processes}}))

    assert [bound(each) for each in (5, 1, 60, {"min": 5, "max": 8})] == [15, 3, 100, 8]


def with_runs(result):
    runs = [RunSummary.model_construct(process_start="forked") for _ in result.metrics[0].by_run]
    return result.model_copy(update={"runs": runs})


def test_more_runs_are_made_only_where_they_settle_the_outcome():
    scattered = of_runs(97.0, 102.0, 101.0)

    def needed(baseline, result, most=15):
        return runs_to_settle(held(baseline, with_runs(result), CALM), most)

    tight = a_baseline(rates(), margin=0.03)
    more = needed(tight, scattered)
    assert judge(held(tight, scattered, CALM)).outcome == "inconclusive"
    assert more == 6
    assert needed(tight, scattered, more - 1) == 3, "fewer don't settle it, so there is no further run"
    assert needed(tight, rates()) == 5, "settled"
    assert needed(a_baseline(rates(), margin=0.001), rates(1 / 1.001)) == 5, "at the margin no number helps"
    one = with_runs(of_runs(100.0))
    assert runs_to_settle(held(tight, one, series="other work"), 3) == 3, "no scatter yet"
    assert needed(tight, of_metrics([a_metric("accuracy")])) == 5, "no such metric"


class Machine:
    """Jobs whose runs scatter by `within` and which differ by `between`, both as shares."""

    def __init__(self, seed, within, between):
        self._random, self._within, self._between = random.Random(seed), within, between

    def job(self, speed=1.0, runs=5):
        level = math.log(speed) + self._random.gauss(0, self._between)
        return [100 * math.exp(level + self._random.gauss(0, self._within)) for _ in range(runs)]


def gated(machine, speed, margin, history):
    """The outcome of a gate as the worker makes it: a first look, perhaps more runs, and a second one."""
    earlier = [a_peer(of_runs(*machine.job())) for _ in range(history)]
    baseline = a_baseline(of_runs(*machine.job()), margin)
    figures = machine.job(speed, runs=15)  # of one stretch of time
    needed = runs_to_settle(held(baseline, with_runs(of_runs(*figures[:5])), earlier), 15)
    return str(judge(held(baseline, of_runs(*figures[:needed]), earlier)).outcome)


@pytest.mark.parametrize("history", [0, 8])
@pytest.mark.parametrize(
    ("within", "between"),
    [(0.01, 0.01), *(pytest.param(*both, marks=pytest.mark.verify) for both in ((0.01, 0.005), (0.02, 0.0)))],
)
def test_wrong_answers_are_rare_even_at_the_margin(within, between, history):
    """Without earlier jobs, an allowance stands for what jobs differ by; it is too small where that is as much as runs.

    Fieller's interval over the runs, which ignores what jobs differ by, is wrong far more often (next test).
    """
    machine, trials, margin = Machine(7, within, between), 400, 0.05
    at_margin = [gated(machine, 1 / (1 + margin), margin, history) for _ in range(trials)]
    for wrong in ("fail", "pass"):
        assert at_margin.count(wrong) / trials <= (0.05 if history else 0.08)
    unchanged = [gated(machine, 1.0, margin, history) for _ in range(trials)]
    assert unchanged.count("fail") == 0
    much_slower = [gated(machine, 0.8, margin, history) for _ in range(trials)]
    assert much_slower.count("pass") == 0
    assert much_slower.count("fail") / trials > 0.95


def advice(machine, margin, **measure):
    """The advice on a gate with 20 earlier jobs, and how many of 40 unchanged jobs pass at the first look."""
    earlier = [a_peer(of_runs(*machine.job(runs=15))) for _ in range(20)]
    baseline = a_baseline(of_runs(*machine.job(runs=15)), margin)
    spec = Spec.model_validate({"workload": "matmul", "measure": measure})
    outcomes = [judge(held(baseline, of_runs(*machine.job(runs=15)), earlier)).outcome for _ in range(40)]
    return margin_advice(baseline, spec, earlier, "higher"), outcomes.count("pass")


def test_a_margin_that_a_gate_often_can_not_tell_is_named():
    fine, fine_passed = advice(Machine(5, 0.02, 0.0), 0.01)
    assert (fine.code, fine.evidence["margin"]) == ("MARGIN_FINE", 0.01)
    assert 0.01 < fine.evidence["rel_half_width"] < fine.evidence["least_margin"] < 0.06
    enough, passed = advice(Machine(5, 0.02, 0.0), 1.2 * fine.evidence["least_margin"])
    assert enough is None
    assert fine_passed < 20 < 36 <= passed
    assert advice(Machine(5, 0.02, 0.0), 0.01, processes=1)[0] is None, "a single run is judged by the series alone"
    assert margin_advice(a_limit(at_least=1.0), SPEC, [], "higher") is None, "a limit has no scatter"


def test_jobs_whose_clocks_explain_their_figures_can_tell_a_finer_margin():
    """Also for a metric that isn't the headline: its series has the headline's figures, and their direction."""
    clocks_hz = [3e9 * (1 + 0.01 * step) for step in range(-4, 5)]
    earlier = [a_peer(rates(hz / 3e9), hz) for hz in clocks_hz]
    unclocked = [peer.model_copy(update={"clock_hz": None}) for peer in earlier]

    def least(baseline, stored):
        return margin_advice(baseline, SPEC, stored, "higher").evidence["least_margin"]

    clocked = a_baseline(rates(), 0.001, clock_hz=3e9)
    assert least(clocked, earlier) < 0.7 * least(a_baseline(rates(), 0.001), unclocked)
    assert least(clocked.model_copy(update={"better": "lower"}), earlier) == least(clocked, earlier)


def test_jobs_that_differ_too_much_for_any_margin_are_named():
    told = margin_advice(a_baseline(of_runs(50.0, 100.0, 200.0, 90.0, 110.0)), SPEC, [], "higher")
    assert (told.evidence["least_margin"], "can't even tell 50%" in told.message) == (None, True)


def test_the_interval_over_the_runs_alone_would_fail_unchanged_work():
    machine, wrong, trials = Machine(7, 0.005, 0.01), 0, 400
    for _ in range(trials):
        found = ratio_of_means(machine.job(), machine.job()).interval
        wrong += found.high is not None and found.high < 1
    assert wrong / trials > 0.1
    honest = [gated(machine, 1.0, 1e-9, 8) for _ in range(trials)]
    assert honest.count("fail") / trials <= 0.05

"""Series of results: their class, and the state of their alarms."""

from __future__ import annotations

import itertools
from datetime import timedelta

import numpy as np
import pytest

from benchmarks.synthetic import autoregressive
from dyno.bench.measure.change_points import find_changes
from dyno.bench.measure.result_series import alarms_of, history_of, is_alarm, with_changes
from dyno.bench.registry import registry
from dyno.models.history import AlarmRecord
from dyno.models.job import WorkerRef
from dyno.models.result import BasedOn, Repeat, ResultSummary, RunClock
from tests.comparisons import a_metric, an_entry

NOISE = (0.995, 1.0, 1.005)


def results(levels, host="here", **entry):
    """Jobs a day apart, in order, with a value near each level."""
    found = []
    for day, (level, noise) in enumerate(zip(levels, itertools.cycle(NOISE), strict=False)):
        each = an_entry([level * noise] * 2, **entry)
        at = each.job.created_at + timedelta(days=day)
        times = {"created_at": at, "finished_at": at}
        job = each.job.model_copy(update=times | {"worker": WorkerRef(id="w", device="cpu:0-1", host=host)})
        found.append((job, ResultSummary.model_validate(each.result.model_dump())))
    return found


def the_series(levels):
    (series,) = history_of(results(levels), None, {})
    return with_changes(series, {})


def alarms(series, records):
    return alarms_of(with_changes(series, records), records)


def test_a_param_that_does_not_change_the_timed_work_makes_no_other_series():
    figures = [a_metric(), a_metric("epoch_time", better="lower"), a_metric("training_time", [], "lower")]
    specs = [{"workload": "mnist_cnn", "params": {"batch_size": 64, "epochs": epochs}} for epochs in (1, 5)]
    both = [each for spec in specs for each in results([1.0], metrics=figures, spec=spec)]
    for metric, series in ((None, 1), ("throughput", 1), ("epoch_time", 1), ("training_time", 2)):
        assert len(history_of(both, metric, registry())) == series, metric
    assert len(history_of(both, None, {})) == 2


def test_results_are_in_the_order_in_which_they_were_measured():
    """The first of three jobs waited in the queue until the others were done."""
    first, *others = results([1.0, 2.0, 3.0])
    late = first[0].created_at + timedelta(days=9)
    first = (first[0].model_copy(update={"finished_at": late}), first[1])
    done = [(job.model_copy(update={"finished_at": job.created_at}), figures) for job, figures in others]
    (series,) = history_of([first, *done], None, {})
    assert [point.job for point in series.points] == [job.id for job, _ in [*done, first]]
    assert series.points[-1].time == late
    unknown = [(job.model_copy(update={"finished_at": None}), figures) for job, figures in [first, *done]]
    (series,) = history_of(unknown, None, {})
    assert series.points[0].time == first[0].created_at


def test_a_series_that_begins_with_a_single_run_is_adjusted_too():
    """A single run without earlier jobs has no `repeat`, but its clock is known."""
    clocks = [3.6e9, 3.7e9, 3.8e9, 3.7e9]
    found = []
    for clock_hz, (job, figures) in zip(clocks, results([25.0 * clock / 1e9 for clock in clocks]), strict=True):
        metric = figures.metrics[0].model_copy(update={"value": 25.0 * clock_hz / 1e9})
        if found:
            repeat = Repeat(low=1, high=1e9, based_on=BasedOn(runs=1, jobs=1), clock_hz=clock_hz, elasticity=1.0)
            metric = metric.model_copy(update={"repeat": repeat})
        found.append((job, figures.model_copy(update={"metrics": [metric], "runs": [RunClock(clock_hz=clock_hz)]})))
    (series,) = history_of(found, None, {})
    assert [point.clock_hz for point in series.points] == clocks
    assert [point.adjusted_value for point in series.points] == pytest.approx([92.5] * 4)


def clocked(clocks, elasticity=1.0, **entry):
    """The series of results in proportion to their clocks, 25 for each GHz. Without a clock, none has an elasticity."""
    found = []
    for clock_hz, (job, figures) in zip(clocks, results([1.0] * len(clocks), **entry), strict=True):
        repeat = Repeat(
            low=1,
            high=1e9,
            based_on=BasedOn(runs=1, jobs=1),
            clock_hz=clock_hz if elasticity else None,
            elasticity=elasticity if clock_hz else None,
        )
        metric = figures.metrics[0].model_copy(update={"value": 25.0 * (clock_hz or 3.7e9) / 1e9, "repeat": repeat})
        runs = [RunClock(clock_hz=clock_hz)]
        found.append((job, figures.model_copy(update={"metrics": [metric], "runs": runs})))
    (series,) = history_of(found, None, {})
    return series


@pytest.mark.parametrize("unknown", [0, 1, 3])
def test_a_result_without_a_clock_stays_as_it_is_and_the_others_are_adjusted(unknown):
    clocks: list[float | None] = [3.6e9, 3.7e9, 3.8e9]
    clocks.insert(unknown, None)
    series = clocked(clocks)
    assert series.clock_hz == 3.7e9
    adjusted = [point.adjusted_value for point in series.points]
    assert adjusted.pop(unknown) is None
    assert adjusted == pytest.approx([92.5] * 3)


def test_a_result_whose_clock_was_far_from_the_others_is_not_adjusted():
    """Two results are no stretch of time with a clock of its own. At one clock, they would be as fast as the others."""
    series = clocked([4e9] * 6 + [2.4e9] * 2 + [4e9] * 4)
    assert [point.adjusted_value for point in series.points[6:8]] == [None, None]
    assert [point.value for point in series.points[6:8]] == [60.0, 60.0]
    assert series.points[0].adjusted_value == pytest.approx(100.0)


def test_a_gpus_results_show_their_clocks_and_are_not_adjusted():
    """Neither are older ones, which have an elasticity. The clock of a GPU is a part of its figure."""
    clocks, gpu = [1.5e9, 1.6e9, 1.7e9], {"id": "gpu:0", "host": "here", "model": "Test GPU", "kind": "gpu"}
    for elasticity in (None, 1.0):
        series = clocked(clocks, elasticity, device=gpu)
        assert [point.clock_hz for point in series.points] == clocks
        assert (series.clock_hz, {point.adjusted_value for point in series.points}) == (None, {None})


def test_equal_devices_and_owners_have_series_of_their_own():
    mine = results([1.0, 1.0])
    theirs = [(job.model_copy(update={"owner": "key_1"}), figures) for job, figures in results([1.0])]
    series = history_of([*mine, *theirs, *results([1.0], "there")], None, {})
    assert len({each.spec_id for each in series}) == len({each.hardware_id for each in series}) == 1
    assert sorted(len(each.points) for each in series) == [1, 1, 2]
    assert len({each.series_id for each in series}) == 3


def test_a_device_beyond_the_others_of_its_class_is_slow():
    others = [result for place in range(5) for result in results([100.0 + place], f"host-{place}")]
    slow = results([80.0] * 3, "slow")
    found = {each.device: each.of_class for each in history_of([*others, *slow], None, {})}
    band = found["cpu:0-1@slow"]
    assert (band.outcome, band.devices) == ("slow", 5)
    assert 80 < band.low < 95
    assert {each.outcome for name, each in found.items() if each and name != "cpu:0-1@slow"} == {"typical"}


def test_few_other_devices_give_no_class():
    found = history_of([*results([100.0], "a"), *results([50.0], "b")], None, {})
    assert [each.of_class and each.of_class.outcome for each in found] == ["unknown"] * 2
    assert "there are 1" in (found[0].of_class.reason or "")


def test_a_small_or_insignificant_change_raises_no_alarm():
    small = the_series([100.0] * 30 + [97.0] * 30)
    assert len(small.changes) == 1
    assert alarms_of(small, {}) == []
    large = the_series([100.0] * 30 + [94.0] * 30)
    assert len(alarms_of(large, {})) == 1


def test_only_the_headline_metric_raises_an_alarm():
    """With every metric searched, each would add its false alarms."""
    found = []
    for level, (job, figures) in zip([100.0] * 10 + [80.0] * 10, results([1.0] * 20), strict=True):
        metrics = [a_metric(name, [level * 0.999, level * 1.001]) for name in ("throughput", "memory_rate")]
        found.append((job, figures.model_copy(update={"metrics": metrics})))
    raised = {}
    for metric in (None, "throughput", "memory_rate"):
        (series,) = history_of(found, metric, {})
        series = with_changes(series, {})
        assert len(series.changes) == 1
        raised[metric] = len(alarms_of(series, {}))
    assert raised == {None: 1, "throughput": 1, "memory_rate": 0}


def test_results_that_resemble_each_other_as_recorded_raise_few_alarms():
    """At most 0.1 a year, and a step of 10 % is found all the same."""
    false = found = 0
    for number, deviation in itertools.product(range(8), (0.02, 0.03, 0.04)):
        rng = np.random.default_rng([1, number, round(100 * deviation)])
        year = np.exp(deviation * autoregressive(0.44)(rng, (365,)))
        false += sum(map(is_alarm, find_changes(year.tolist())))
        stepped = find_changes((year * np.repeat([1.0, 0.9], [200, 165])).tolist())
        found += any(is_alarm(change) and abs(change.index - 200) < 8 for change in stepped)
    assert false <= 2
    assert found == 24


@pytest.mark.parametrize(("moved_by", "is_same"), [(0, True), (1, True), (2, True), (3, False)])
def test_the_record_of_an_alarm_is_found_if_new_results_moved_the_change(moved_by, is_same):
    series = the_series([100.0] * 10 + [80.0] * 10)
    record = AlarmRecord(rerun="job_1")
    (alarm,) = alarms(series, {series.points[10 + moved_by].job: record, "gone": AlarmRecord()})
    assert (alarm.record == record) is is_same
    assert alarm.job == series.points[10 + moved_by if is_same else 10].job


@pytest.mark.parametrize(("value", "state"), [(81.0, "confirmed"), (88.0, "confirmed"), (100.0, "not_confirmed")])
def test_a_rerun_confirms_an_alarm_if_it_is_near_the_new_level(value, state):
    """Even one that, counted as a result, would have hidden the change."""
    series = the_series([100.0] * 10 + [80.0] * 4 + [value])
    first = series.points[10].job
    (alarm,) = alarms(series, {first: AlarmRecord(rerun=series.points[-1].job)})
    assert alarm.state == state


def test_an_alarm_is_new_until_its_rerun_has_a_result():
    series = the_series([100.0] * 10 + [80.0] * 4)
    (alarm,) = alarms(series, {series.points[10].job: AlarmRecord(rerun="job_that_runs")})
    assert alarm.state == "new"


def test_only_the_last_change_is_the_present_one():
    found = alarms_of(the_series([100.0] * 10 + [80.0] * 10 + [100.0] * 10), {})
    assert [alarm.is_last for alarm in found] == [False, True]


def test_a_change_in_an_earlier_environment_is_not_the_present_one():
    old = results([100.0] * 10 + [80.0] * 10)
    moved = [
        (job.model_copy(update={"finished_at": job.created_at + timedelta(days=20)}), figures)
        for job, figures in results([80.0] * 3, context_id="ctx_2")
    ]
    (series,) = history_of([*old, *moved], None, {})
    first = series.points[10].job
    assert [alarm.is_last for alarm in alarms(series, {})] == [False]
    (alarm,) = alarms(series, {first: AlarmRecord(rerun=series.points[-1].job)})
    assert alarm.state == "new"

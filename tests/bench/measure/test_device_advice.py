"""Rankings of devices by results with known figures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dyno.bench.measure.device_advice import DeviceResult, RankedDevices, ranked
from dyno.bench.workloads.mnist_cnn import WORKLOAD
from dyno.models.inventory import DeviceStatus
from dyno.models.result import Energy, Phases, Precision, RunSummary, Sensors
from tests.comparisons import a_metric, an_entry, times

NOW = datetime.now(UTC)
RATES = [1000.0, 1010.0, 990.0, 1005.0, 995.0]


def a_rate(by_run):
    return a_metric(by_run=by_run).model_copy(update={"unit": "samples/s"})


def a_run(fixed_s, power_w=None):
    phases = Phases(build_s=0.1, compile_s=fixed_s and fixed_s - 0.3, first_execution_s=fixed_s and 0.2, steady_s=9.0)
    counts: dict[str, Any] = {"samples": 20, "executions_per_sample": 1, "warmup_samples": 3, "pid": 1, "median": 1.0}
    ended: dict[str, Any] = {"steady": True, "stopped_because": "target", "started_at_s": 0.0}
    sensors = Sensors(energy_j=10 * power_w, energy_s=10.0) if power_w else None
    return RunSummary(process_start="forked", phases=phases, sensors=sensors, **counts, **ended)


def on(device, by_run, fixed_s=None, price=None, **result):
    runs = result.pop("runs", [a_run(seconds) for seconds in fixed_s or []])
    spec = {"workload": "mnist_cnn", "params": {"batch_size": 128}}
    entry = an_entry(metrics=[a_rate(by_run)], spec=spec, runs=runs, **result)
    status = DeviceStatus(
        **{"id": device, "kind": "cpu", "model": "Test", "host": "h", "memory_bytes": 1, "state": "idle"},
        **{"queue_length": 0, "worker": "w", "last_heartbeat": NOW},
    )
    return DeviceResult(status, entry.job, entry.result, price)


def advised(*chosen, metric="throughput"):
    return ranked(chosen, WORKLOAD, metric, datetime.now(UTC) + timedelta(seconds=60))


def test_devices_are_ranked_by_their_rate_with_the_ratio_of_a_comparison():
    found = advised(on("cpu:0", times(0.5, RATES)), on("cpu:1", RATES))
    assert [row.device for row in found.rows] == ["cpu:1@h", "cpu:0@h"]
    assert found.rows[0].age_s == pytest.approx(60, abs=10)
    [ranking] = found.rankings
    assert (ranking.by, ranking.best) == ("per_s", ["cpu:1@h"])
    ratio = ranking.devices[1].ratio
    assert (ratio.verdict, ratio.value) == ("SLOWER", pytest.approx(0.5))
    assert ratio.low < 0.5


def test_devices_that_cannot_be_told_apart_are_both_the_best():
    found = advised(on("cpu:0", [1000.0, 900.0, 1100.0]), on("cpu:1", [1010.0, 890.0, 1120.0]), on("cpu:2", [1.0, 1.1]))
    assert found.rankings[0].best == ["cpu:1@h", "cpu:0@h"]


def test_a_price_and_energy_can_change_the_order():
    frugal, hungry = (Energy(joules=1.0, joules_per_sample=each) for each in (0.01, 0.1))
    slow = on("cpu:0", times(0.5, RATES), price=0.1, energy=frugal)
    found = advised(slow, on("gpu:0", RATES, price=2.0, energy=hungry), on("cpu:1", times(0.1, RATES)))
    assert [(ranking.by, ranking.best) for ranking in found.rankings] == [
        ("per_s", ["gpu:0@h"]),
        ("per_joule", ["cpu:0@h"]),
        ("per_currency", ["cpu:0@h"]),
    ]
    row = found.rows[1]
    assert (row.per_currency.unit, row.per_currency.value) == ("samples", pytest.approx(500 * 3600 / 0.1))
    assert row.per_currency.low == pytest.approx((row.per_s.low or 0) * 36000)
    assert (row.per_joule.unit, row.per_joule.value, row.per_joule.low) == ("samples/J", 100, None)
    assert row.per_joule.reason
    assert (found.rows[2].per_currency, found.rows[2].per_joule) == (None, None)
    of_energy = found.rankings[1].devices[1].ratio
    assert (of_energy.verdict, of_energy.value) == ("INCONCLUSIVE", pytest.approx(0.1))


def test_single_runs_are_ranked_by_their_values_without_a_best_of_all():
    [ranking] = advised(on("a", [1.0]), on("b", [1000.0]), on("c", [999.0])).rankings
    assert [each.device for each in ranking.devices] == ["b@h", "c@h", "a@h"]
    assert (ranking.best, ranking.by_value_alone) == (["b@h"], ["c@h", "a@h"])


def test_energy_of_each_run_gives_work_per_joule_an_interval():
    """450 ms an execution at 100 W are 45 J, for 9 units of work."""
    hungry, frugal = ([a_run(1.0, factor * watt) for watt in (99.0, 100.0, 101.0)] for factor in (1, 0.5))
    five = Energy(joules=1.0, joules_per_sample=5.0)
    ranking = advised(
        on("a", RATES, runs=hungry, energy=five),
        on("b", RATES, runs=frugal, energy=five.model_copy(update={"joules_per_sample": 2.5})),
    ).rankings[1]
    assert (ranking.by, ranking.best, ranking.by_value_alone) == ("per_joule", ["b@h"], [])
    ratio = ranking.devices[1].ratio
    assert (ratio.verdict, ratio.value) == ("SLOWER", pytest.approx(0.5))


def test_the_work_per_joule_is_the_mean_over_the_runs():
    runs = [a_run(1.0, watt) for watt in (80.0, 100.0, 125.0)]
    [row] = advised(on("a", RATES, runs=runs, energy=Energy(joules=1.0, joules_per_sample=305 / 3 / 20))).rows
    figure = row.per_joule
    assert figure.value == pytest.approx((1 / 80 + 1 / 100 + 1 / 125) / 3 * 20)
    assert figure.low < figure.value < figure.high


def test_results_of_other_work_are_named_and_not_ranked():
    tf32 = Precision(requested="float32", observed="tf32")
    found = advised(on("cpu:0", RATES), on("gpu:0", times(9, RATES), precision=tf32), on("cpu:1", RATES))
    assert {row.device for row in found.rows} == {"cpu:0@h", "cpu:1@h"}
    [other] = found.not_ranked
    assert other.device == "gpu:0@h"
    assert "/precision/observed" in other.reason
    found = advised(on("cpu:0", RATES), on("cpu:1", RATES), on("cpu:2", RATES, method_version="0"))
    assert [each.device for each in found.not_ranked] == ["cpu:2@h"]


def test_the_crossover_is_where_both_need_the_same_time():
    slow_start = on("gpu:0", times(10, RATES), fixed_s=[11.0, 11.2, 10.8, 11.1, 10.9])
    quick_start = on("cpu:0", RATES, fixed_s=[2.0, 2.1, 1.9, 2.05, 1.95])
    [found] = advised(quick_start, slow_start).crossovers
    assert (found.faster, found.slower, found.unit) == ("gpu:0@h", "cpu:0@h", "samples")
    assert found.amount == pytest.approx(9.0 / (1 / 1000 - 1 / 10_000), rel=0.01)
    assert 0.9 * found.amount < found.low < found.amount < found.high < 1.1 * found.amount


def test_without_a_longer_start_the_faster_device_always_wins():
    [found] = advised(on("a", RATES, [2.0, 2.1]), on("b", times(2, RATES), [1.0, 1.1])).crossovers
    assert (found.faster, found.amount, found.high) == ("b@h", 0.0, 0.0)
    assert "no more time" in str(found.reason)


def test_a_start_that_is_shorter_by_chance_is_no_proof():
    """The faster rate is certain, the shorter start isn't: it might need some data to catch up."""
    [found] = advised(on("a", RATES, [2.0, 2.4]), on("b", times(2, RATES), [1.9, 2.3])).crossovers
    assert (found.faster, found.amount, found.low, found.reason) == ("b@h", 0.0, 0.0, None)
    assert found.high > 0


def test_the_faster_device_is_named_first_only_if_its_rate_is_known_to_be_higher():
    alike = advised(
        on("a", [1000.0, 900.0, 1100.0], [2.0, 2.1, 2.2]), on("b", [1010.0, 890.0, 1120.0], [1.0, 1.1, 1.2])
    )
    assert (alike.crossovers[0].faster, alike.crossovers[0].amount) == ("b@h", None)
    assert "told apart" in str(alike.crossovers[0].reason)


def test_a_crossover_that_is_not_known_has_a_reason():
    alike = advised(
        on("a", [1000.0, 900.0, 1100.0], [2.0, 2.1, 2.2]), on("b", [1010.0, 890.0, 1120.0], [5.0, 5.1, 5.2])
    )
    assert (alike.crossovers[0].amount, alike.crossovers[0].low) == (None, None)
    assert "told apart" in str(alike.crossovers[0].reason)
    unknown = advised(on("a", RATES, [2.0, 2.1]), on("b", times(2, RATES)))
    assert (unknown.crossovers[0].amount, unknown.rows[0].fixed_s) == (None, None)
    assert "two runs" in str(unknown.crossovers[0].reason)


def test_nothing_is_ranked_without_results():
    assert advised() == RankedDevices([], [], [], [], [])

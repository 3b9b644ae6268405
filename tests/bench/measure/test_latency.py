"""Latency of single calls, on a simulated clock: closed and open loop, and intervals of percentiles."""

import random

import numpy as np
import pytest

from dyno.bench.contract import metric_name
from dyno.bench.measure.latency import (
    MOST_CALLS,
    closed_loop,
    measure_calls,
    open_loop,
)
from dyno.bench.measure.statistics import median, quantile, quantile_interval


class Server:
    """A clock that passes while a call is served, and a little with each look. `served_s`: of each call."""

    def __init__(self, served_s):
        self.time_s, self.calls = 100.0, 0
        self._served_s = served_s

    def now_s(self):
        self.time_s += 1e-7
        return self.time_s

    def wait_until(self, time_s):
        self.time_s = max(self.time_s, time_s)

    def execute(self, count):
        assert count == 1, "each call is synchronised"
        self.time_s += self._served_s(self.calls)
        self.calls += 1


def readings(server, rate_per_s=None, known=None):
    rates = {} if known is None else {"": known}
    return measure_calls({"": server.execute}, rate_per_s, rates, 7, 2.0, server, lambda: None)


def test_a_closed_loop_times_each_call_alone():
    server = Server(lambda call: 0.05 if call % 10 == 9 else 0.01)
    calls = closed_loop(server.execute, server, 1.4)
    assert calls.latencies_s == calls.services_s == pytest.approx(([0.01] * 9 + [0.05]) * 10, abs=1e-5)


def test_a_loop_is_bounded_by_its_calls_and_its_time_and_makes_one_call_at_least():
    assert len(closed_loop(Server(lambda call: 1e-5).execute, Server(lambda call: 0.0)).latencies_s) == MOST_CALLS
    slow = Server(lambda call: 30.0)
    assert len(closed_loop(slow.execute, slow).latencies_s) == 1
    assert len(open_loop(slow.execute, 10.0, 1, slow).latencies_s) == 1  # that began before the time was up
    fast = Server(lambda call: 1e-5)
    assert len(open_loop(fast.execute, 5000.0, 1, fast).latencies_s) == MOST_CALLS


def test_calls_of_an_open_loop_arrive_at_random_at_the_rate():
    server, begun_s = Server(lambda call: 0.0), []
    calls = open_loop(lambda count: begun_s.append(server.time_s), 400.0, 3, server)
    gaps_s = np.diff(begun_s)
    assert len(calls.latencies_s) == pytest.approx(800, abs=100)
    assert gaps_s.mean() == pytest.approx(1 / 400, rel=0.1)
    assert gaps_s.std() == pytest.approx(gaps_s.mean(), rel=0.15)  # as for exponential gaps
    assert max(calls.latencies_s) < 1e-5


def test_a_call_that_stalls_delays_those_that_arrive_meanwhile():
    def served_s(call):
        return 0.5 if call == 100 else 0.0001

    server = Server(served_s)
    calls = open_loop(server.execute, 200.0, 5, server)
    late = [each for each in calls.latencies_s if each > 0.01]
    assert len(late) == pytest.approx(100, abs=25)  # those that arrived in the half second, not one
    assert sorted(late)[len(late) // 2] == pytest.approx(0.25, abs=0.06)
    assert max(calls.services_s[101:]) < 0.001


def test_the_wait_in_the_open_loop_is_that_of_queueing_theory():
    server = Server(lambda call: 0.002)  # M/D/1 at half load: the mean wait is half a service
    calls = open_loop(server.execute, 250.0, 11, server, most_s=1000.0)
    assert len(calls.latencies_s) == MOST_CALLS
    assert sum(calls.latencies_s) / MOST_CALLS == pytest.approx(0.003, rel=0.08)


def test_without_a_rate_the_open_loop_loads_the_device_by_half_and_later_runs_keep_the_rate():
    found = readings(Server(lambda call: 0.002))
    assert found.rates_per_s[""] == pytest.approx(250, rel=0.01)
    assert readings(Server(lambda call: 0.001), known=250.0).rates_per_s == {"": 250.0}
    assert readings(Server(lambda call: 0.001), 40.0, known=250.0).rates_per_s == {"": 40.0}
    closed, opened = (found.quantiles[metric_name(loop, "p50")] for loop in ("closed", "open"))
    assert closed.value == pytest.approx(0.002, rel=0.01)
    assert opened.value > 0.002
    assert found.details["all"]["open_utilisation"] == pytest.approx(0.5, rel=0.01)


def test_calls_that_arrive_faster_than_they_are_served_have_no_latency():
    found = readings(Server(lambda call: 0.01), 150.0)
    reason = found.quantiles[metric_name("open", "p99")].reason
    assert reason is not None
    assert "150 calls a second arrive" in reason
    assert {found.quantiles[metric_name("open", name)].value for name in ("p50", "p90", "p99")} == {None}
    assert found.quantiles[metric_name("closed", "p50")].value == pytest.approx(0.01, rel=0.01)


def test_calls_too_rare_to_arrive_within_the_loop_are_not_waited_for():
    server = Server(lambda call: 0.01)
    found = readings(server, 1e-6)
    assert server.time_s - 100.0 < 5.0
    p50 = found.quantiles[metric_name("open", "p50")]
    assert (p50.value, p50.calls, p50.reason) == (None, 0, "no call arrived in 2 s at 1e-06 calls a second")
    assert found.details["all"]["open_utilisation"] is None


def test_a_percentile_that_no_call_lies_beyond_on_average_is_unknown():
    found = readings(Server(lambda call: 0.021))  # 96 calls one by one
    p90, p99 = (found.quantiles[metric_name("closed", name)] for name in ("p90", "p99"))
    assert (p90.value, p90.calls) == (pytest.approx(0.021, rel=0.01), 96)
    assert (p99.value, p99.reason) == (None, "p99 needs 100 calls in the loop, and there were 96")
    assert readings(Server(lambda call: 0.01)).quantiles[metric_name("closed", "p99")].value is not None
    single = readings(Server(lambda call: 3.0)).quantiles[metric_name("closed", "p50")]
    assert single.reason == "p50 needs 2 calls in the loop, and there were 1"


def test_the_first_case_is_also_the_run_s_own():
    server = Server(lambda call: 0.01)
    cases = {"int8": server.execute, "float32": server.execute}
    found = measure_calls(cases, None, {}, 7, 0.5, server, lambda: None)
    suffixes = ("", "_int8", "_float32")
    assert sorted(found.quantiles) == sorted(
        f"latency_{loop}_{name}{suffix}"
        for loop in ("closed", "open")
        for name in ("p50", "p90", "p99")
        for suffix in suffixes
    )
    assert found.quantiles["latency_closed_p50"] == found.quantiles["latency_closed_p50_int8"]


@pytest.mark.parametrize(("share", "count"), [(0.5, 40), (0.9, 200), (0.99, 1000)])
def test_the_interval_of_a_percentile_holds_it_as_often_as_it_says(share, count):
    draw = random.Random(2)
    held = 0
    for _ in range(400):
        found = quantile_interval([draw.random() for _ in range(count)], share)
        held += found.low <= share <= found.high
    assert held / 400 == pytest.approx(0.965, abs=0.03)


def test_an_interval_needs_enough_values():
    assert quantile_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.5).low is None
    six = quantile_interval([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 0.5)
    assert (six.value, six.low, six.high) == (median([3.0, 4.0]), 1.0, 6.0)
    values = [float(each) for each in range(368)]
    found = quantile_interval(values, 0.99)
    assert (found.value, found.high) == (quantile(values, 0.99), 367.0)
    assert quantile_interval(values[1:], 0.99).reason == "367 values are too few for a 95% interval of p99"

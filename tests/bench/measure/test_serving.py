"""Queues whose answer is known: the rates that the search finds, and batches as a server makes them."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from dyno.bench.measure import serving
from dyno.bench.measure.serving import (
    WITHIN,
    Batching,
    arrivals_of,
    find_rate,
    highest_rate,
    serve,
)
from dyno.bench.measure.statistics import quantile

ONE_BY_ONE, SERVICE_S = Batching(), 0.01


def in_full(value):
    """An example that only `make verify` runs."""
    return pytest.param(value, marks=pytest.mark.verify)


class Server:
    """A clock and a model: a batch takes one of the `services_s` of its size, or of the next larger size."""

    def __init__(self, services_s):
        self._services_s, self._draw, self.time_s = services_s, random.Random(9), 100.0

    def now_s(self):
        return self.time_s

    def wait_until(self, time_s):
        self.time_s = max(self.time_s, time_s)

    def execute(self, size):
        measured = min(each for each in self._services_s if each >= size)
        self.time_s += self._draw.choice(self._services_s[measured])


def waits_within(wait_s, rate_per_s):
    """P(wait <= `wait_s`) in M/D/1 with SERVICE_S: Erlang (1909), the series of Iversen & Staalhagen (1999)."""
    load, turns = rate_per_s * SERVICE_S, math.floor(wait_s / SERVICE_S + 1e-9)
    return (1 - load) * math.fsum(
        (-rate_per_s * (wait_s - turn * SERVICE_S)) ** turn
        / math.factorial(turn)
        * math.exp(rate_per_s * (wait_s - turn * SERVICE_S))
        for turn in range(turns + 1)
    )


def exact_rate(limit_s):
    """The rate at which p99 of M/D/1 is `limit_s`, by bisection."""
    low, high = 0.0, 1 / SERVICE_S
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_within(limit_s - SERVICE_S, middle) >= WITHIN else (low, middle)
    return low


@pytest.mark.parametrize("limit_s", [in_full(0.015), 0.03, in_full(0.06), 0.1])
def test_with_a_fixed_service_time_the_rate_is_that_of_erlang(limit_s):
    found = highest_rate({1: [SERVICE_S]}, ONE_BY_ONE, limit_s, seed=(1, 0))
    assert found == pytest.approx(exact_rate(limit_s), rel=0.05)


@pytest.mark.parametrize("limit_s", [in_full(0.06), 0.1, in_full(0.3)])
def test_with_exponential_service_times_the_rate_is_that_of_m_m_1(limit_s):
    """The response time is exponential with the rate mu - lambda, so p99 is ln 100 / (mu - lambda)."""
    draw = random.Random(3)
    services_s = [draw.expovariate(1 / SERVICE_S) for _ in range(20_000)]
    found = highest_rate({1: services_s}, ONE_BY_ONE, limit_s, seed=(2, 0))
    assert found == pytest.approx(1 / SERVICE_S - math.log(100) / limit_s, rel=0.05)


def test_the_rate_grows_with_the_batch_where_a_batch_takes_no_longer():
    services_s = {size: [SERVICE_S] for size in (1, 2, 4)}
    one, four = (highest_rate(services_s, Batching(size), 0.05, seed=(1, 0)) for size in (1, 4))
    assert four > 3 * one


def test_a_limit_below_one_call_is_met_at_no_rate():
    assert highest_rate({1: [SERVICE_S]}, ONE_BY_ONE, 0.9 * SERVICE_S, seed=(1, 0)) is None
    server = Server({1: [SERVICE_S]})
    found = find_rate(server.execute, {1: [SERVICE_S]}, ONE_BY_ONE, 0.009, 1.0, 1, server)
    assert found is None


def test_a_batch_begins_once_it_is_full_or_its_first_query_has_waited():
    server = Server({1: [1.0], 4: [1.0]})
    arrivals_s = [10.0, 10.1, 10.2, 10.3, 20.0, 20.1, 20.9]
    served = serve(server.execute, arrivals_s, Batching(4, 0.5), server)
    assert served.batches == {1: 1, 2: 1, 4: 1}
    # A full batch begins at 10.3. The next begins at 20.5 without the last query, which begins at 21.5.
    assert served.latencies_s == pytest.approx([1.3, 1.2, 1.1, 1.0, 1.5, 1.4, 1.6])


def test_queries_wait_while_a_batch_is_answered_and_come_into_the_next_one():
    server = Server({1: [1.0], 2: [1.0], 4: [2.0]})
    served = serve(server.execute, [0.0, 0.5, 0.6, 0.7], Batching(4), server)
    assert served.batches == {1: 1, 3: 1}
    assert served.latencies_s == pytest.approx([1.0, 2.5, 2.4, 2.3])


def test_queries_that_come_too_late_are_not_waited_for():
    server = Server({1: [10.0]})
    found = find_rate(server.execute, {1: [10.0]}, ONE_BY_ONE, 11.0, 0.01, 1, server)
    assert server.time_s == 100.0
    assert (found.queries, found.late, found.observed_s(0.5)) == (0, 0.0, None)


def test_an_overloaded_server_gives_up_in_time():
    server = Server({1: [1.0]})
    served = serve(server.execute, arrivals_of(1000, 10.0, 1), ONE_BY_ONE, server, ends_s=5.0)
    assert len(served.latencies_s) < 10


@pytest.mark.parametrize("slower", [in_full(1.0), 1.5])
def test_the_real_run_corrects_what_the_first_service_times_promised(slower):
    """Calls that come at random take `slower` times as long as the calls that were timed without a pause."""
    real = Server({1: [slower * SERVICE_S]})
    found = find_rate(real.execute, {1: [SERVICE_S]}, ONE_BY_ONE, 0.1, 200.0, 5, real)
    exact = highest_rate({1: [slower * SERVICE_S]}, ONE_BY_ONE, 0.1, seed=(77, 0))
    assert found.rate_per_s == pytest.approx(exact, rel=0.05)
    assert found.late <= found.late_by_chance < 0.1
    assert quantile(found.served.latencies_s, 0.5) < 0.1


def test_stalls_that_the_service_times_do_not_have_are_more_than_chance():
    """Every 50th call waits for 0.3 s, which is rare among the service times but long."""
    real, calls = Server({1: [SERVICE_S]}), iter(range(10**6))

    def execute(size):
        real.time_s += 0.3 if next(calls) % 50 == 49 else 0.0
        real.execute(size)

    at = arrivals_of(1000, 60.0, 1)
    served = serve(execute, at, ONE_BY_ONE, real)
    late = sum(latency_s > 0.1 for latency_s in served.latencies_s) / 1000
    by_chance = serving._late_by_chance({1: [SERVICE_S]}, ONE_BY_ONE, 60.0, 0.1, (1, 1), 1000)
    assert late > by_chance


@pytest.mark.parametrize(("queries", "seeds"), [(200, 20), pytest.param(1000, 200, marks=pytest.mark.verify)])
def test_chance_explains_nearly_all_late_queries_of_a_server_without_stalls(queries, seeds):
    rate = highest_rate({1: [SERVICE_S]}, ONE_BY_ONE, 0.05, (1, 0))
    raised = 0
    for seed in range(seeds):
        server = Server({1: [SERVICE_S]})
        served = serve(server.execute, arrivals_of(queries, rate, seed), ONE_BY_ONE, server)
        late = sum(latency_s > 0.05 for latency_s in served.latencies_s) / queries
        by_chance = serving._late_by_chance({1: [SERVICE_S]}, ONE_BY_ONE, rate, 0.05, (seed, 1), queries)
        raised += late > by_chance
    assert raised <= 0.02 * seeds + 1


def test_unanswered_queries_are_late_and_leave_no_quantile():
    """After a tenth of a second, the server stands still. So few service times don't replace the first ones."""
    real = Server({1: [SERVICE_S]})

    def execute(size):
        real.time_s += 1000.0 if real.time_s > 100.1 else 0.0
        real.execute(size)

    found = find_rate(execute, {1: [SERVICE_S]}, ONE_BY_ONE, 0.1, 0.6, 1, real)
    assert (found.late, found.queries > 10) == (1.0, True)
    assert found.observed_s(0.5) is None


def test_a_batch_may_wait_for_nearly_as_long_as_the_limit():
    """At the lowest rates each query waits in vain; at high rates a batch is full before."""
    rate = highest_rate({8: [0.001], 1: [0.001]}, Batching(8, 0.099), 0.1, (1, 0))
    assert rate > 1000


@pytest.mark.parametrize("calls", [100, in_full(1000)])
def test_a_limit_of_many_calls_is_found_near_the_capacity(calls):
    """In heavy traffic, the wait in M/D/1 is exponential with the mean s / (2 (1 - load)): Kingman 1961."""
    found = highest_rate({1: [SERVICE_S]}, ONE_BY_ONE, calls * SERVICE_S, (1, 0))
    assert found * SERVICE_S == pytest.approx(1 - math.log(100) / (2 * calls), abs=0.006)


def test_a_large_batch_that_the_limit_hardly_allows_leaves_a_low_rate():
    rate = highest_rate({size: [0.01] for size in (1, 64)}, Batching(64), 0.0105, (1, 0))
    assert 0 < rate < 20


@pytest.mark.verify
def test_rates_vary_little_with_the_arrivals():
    rates = [highest_rate({1: [SERVICE_S]}, ONE_BY_ONE, 0.05, (seed, 0)) for seed in range(4)]
    assert max(rates) / min(rates) < 1.06


@pytest.mark.parametrize("batching", [ONE_BY_ONE, Batching(3, 0.02), Batching(8)], ids=str)
@pytest.mark.parametrize("rate_per_s", [20.0, 90.0, 300.0])
def test_the_simulation_serves_as_a_server_does(monkeypatch, batching, rate_per_s):
    """With one queue and fixed service times, each latency is the same."""
    monkeypatch.setattr(serving, "_QUEUES", 1)
    services_s = {1: [SERVICE_S], 2: [0.012], 8: [0.02]}
    found = serving.simulated(services_s, batching, rate_per_s, (4, 0))[0]
    count = 1500 + 2 * batching.max_batch
    arrivals_s = np.cumsum(np.random.default_rng((4, 0)).exponential(1 / rate_per_s, count)).tolist()
    server = Server(services_s)
    served = serve(server.execute, arrivals_s, batching, server)
    np.testing.assert_allclose(found, served.latencies_s[500:1500], rtol=1e-9)


def test_the_curve_rises_to_the_limit_and_ends_at_the_capacity():
    points = serving.load_curve({1: [SERVICE_S]}, ONE_BY_ONE, 80.0, 0.1, (1, 0))
    assert [point["rate_per_s"] for point in points] == sorted(point["rate_per_s"] for point in points)
    assert points[-1]["rate_per_s"] < 100
    assert all(after["p99_s"] > before["p99_s"] for before, after in pairwise(points))
    assert all(point["p99_s"] >= point["p50_s"] >= 0.99 * SERVICE_S for point in points)

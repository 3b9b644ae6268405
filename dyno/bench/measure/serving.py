"""Serve queries that arrive at random, and find the highest rate at which nearly all are answered within a limit.

A server answers one batch of queries at a time. It begins a batch when `max_batch` queries wait, or when the first of
them has waited for `max_wait_s`. Latency counts from a query's arrival, also if the server is late ("coordinated
omission": Schroeder et al., Open Versus Closed, NSDI 2006). MLPerf's scenario "server" is the same with 99 % of queries
within the limit (Reddi et al., MLPerf Inference Benchmark, ISCA 2020).

To try each rate for real would take thousands of queries per rate. So the search simulates the queue: `serve` runs on a
simulated clock, with service times drawn from measured ones. Then `serve` runs on the real clock, with the real model,
at the rate that was found. Its service times replace the first ones, since work that comes at random may take longer
than work without a pause, and a second search and a second real run follow.
"""

import itertools
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from dyno.bench.measure.latency import CallClock
from dyno.bench.measure.statistics import quantile

WITHIN = 0.99  # the share of queries that the limit holds for
_RARELY = 0.99  # the share of cases in which chance explains the late queries
_QUEUES, _QUERIES = 256, 1500  # simulated for each rate; the rate that is found varies by 1 to 3 % with the arrivals
_OCTAVES, _HALVINGS = 10, 11  # the search begins at 1/1024 of the capacity, and ends within 0.4 %


@dataclass(frozen=True)
class Batching:
    """`max_wait_s`: how long the first query of a batch waits for others."""

    max_batch: int = 1
    max_wait_s: float = 0.0


@dataclass(frozen=True)
class Answers:
    """`latencies_s`: of the answered queries, in the order of their arrival. `services_s`: (batch size, seconds)."""

    latencies_s: list[float]
    services_s: list[tuple[int, float]]

    @property
    def batches(self) -> dict[int, int]:
        """How often each batch size arose."""
        return dict(sorted(Counter(size for size, _ in self.services_s).items()))


def arrivals_of(count: int, rate_per_s: float, seed: int) -> list[float]:
    """Seconds from the beginning to each arrival, of a Poisson process. Other rates scale the same arrivals."""
    draw = random.Random(seed)
    return list(itertools.accumulate(draw.expovariate(1.0) / rate_per_s for _ in range(count)))


def serve(
    execute: Callable[[int], None],
    arrivals_s: Sequence[float],
    batching: Batching,
    clock: CallClock,
    ends_s: float = math.inf,
) -> Answers:
    """Answer the queries in batches; `execute(size)` returns when a batch of that size is answered.

    Queries that would be begun later than `ends_s` after the beginning aren't answered.
    """
    latencies_s, services_s, began_s, count = list[float](), list[tuple[int, float]](), clock.now_s(), len(arrivals_s)
    while (first := len(latencies_s)) < count:
        last = first + batching.max_batch - 1
        full_s = arrivals_s[last] if last < count else math.inf
        due_s = min(full_s, arrivals_s[first] + batching.max_wait_s)
        if due_s > ends_s:
            break
        clock.wait_until(began_s + due_s)
        starts_s = max(due_s, clock.now_s() - began_s)
        if starts_s > ends_s:
            break
        arrived = bisect_right(arrivals_s, starts_s, lo=first)
        size = min(max(arrived - first, 1), batching.max_batch)
        execute(size)
        answered_s = clock.now_s() - began_s
        latencies_s += [answered_s - arrivals_s[number] for number in range(first, first + size)]
        services_s.append((size, answered_s - starts_s))
    return Answers(latencies_s, services_s)


def simulated(
    services_s: Mapping[int, Sequence[float]], batching: Batching, rate_per_s: float, seed: int
) -> NDArray[np.float64]:
    """Latencies of QUEUES simulated servers, one row each, by the rules of `serve`.

    A batch takes one of the `services_s` of its size, or of the next larger size that was measured. The first third of
    each row is left out, because the queues begin empty. Other rates scale the same arrivals.
    """
    draw, width = np.random.default_rng(seed), batching.max_batch
    gaps_s, picks = draw.exponential(1 / rate_per_s, (_QUEUES, _QUERIES)), draw.random((_QUEUES, _QUERIES))
    arrivals_s = np.concatenate([np.cumsum(gaps_s, axis=1), np.full((_QUEUES, width), math.inf)], axis=1)
    latencies_s, times_s, row_of = np.empty_like(arrivals_s), *_table(services_s, width)
    first, free_s, active = np.zeros(_QUEUES, int), np.zeros(_QUEUES), np.arange(_QUEUES)
    for turn in itertools.count():
        rows, numbers = active[:, np.newaxis], first[active][:, np.newaxis] + np.arange(width)
        waiting_s = arrivals_s[rows, numbers]
        starts_s = np.maximum(free_s[active], np.minimum(waiting_s[:, -1], waiting_s[:, 0] + batching.max_wait_s))
        sizes = (waiting_s <= starts_s[:, np.newaxis]).sum(axis=1)
        ends_s = starts_s + times_s[row_of[sizes], (picks[active, turn] * times_s.shape[1]).astype(int)]
        latencies_s[rows, numbers] = ends_s[:, np.newaxis] - waiting_s  # later turns replace those of other batches
        first[active] += sizes
        free_s[active] = ends_s
        active = active[first[active] < _QUERIES]
        if not active.size:
            return latencies_s[:, _QUERIES // 3 : _QUERIES]
    raise AssertionError("each turn answers a query of each queue")


def _table(services_s: Mapping[int, Sequence[float]], most: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """As many service times for each measured size, (sizes, times), and the row of each batch size up to `most`."""
    sizes, longest = sorted(services_s), max(map(len, services_s.values()))
    rows = [np.sort(services_s[size])[np.arange(longest) * len(services_s[size]) // longest] for size in sizes]
    return np.array(rows), np.searchsorted(sizes, np.arange(most + 1))


def capacity_per_s(services_s: Mapping[int, Sequence[float]], batching: Batching) -> float:
    """The queries per second of the fastest batch size, if queries always wait."""
    return max(size / fmean(times_s) for size, times_s in services_s.items() if size <= batching.max_batch)


def highest_rate(
    services_s: Mapping[int, Sequence[float]], batching: Batching, limit_s: float, seed: int
) -> float | None:
    """The highest rate at which WITHIN of all queries are answered within `limit_s`, by bisection in log rate.

    None if the limit can't be met at any rate.
    """

    def is_met(rate_per_s: float) -> bool:
        latencies_s = simulated(services_s, batching, rate_per_s, seed)
        return bool((latencies_s <= limit_s).mean() >= WITHIN)

    high = math.log2(capacity_per_s(services_s, batching))
    low = high - _OCTAVES
    if not is_met(2**low):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_met(2**middle) else (low, middle)
    return float(2**low)


_SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.05, 1.1, 1.2)  # of the rate that was found


def load_curve(
    services_s: Mapping[int, Sequence[float]], batching: Batching, rate_per_s: float, seed: int
) -> list[dict[str, float]]:
    """Simulated latencies at rates below and above `rate_per_s`, up to the capacity: where they begin to rise."""
    rates = [share * rate_per_s for share in _SHARES]
    points = []
    for rate in rates[: 1 + bisect_right(rates, capacity_per_s(services_s, batching))]:
        p50_s, p99_s = np.quantile(simulated(services_s, batching, rate, seed), (0.5, WITHIN))
        points.append({"rate_per_s": rate, "p50_s": float(p50_s), "p99_s": float(p99_s)})
    return points


@dataclass(frozen=True)
class ServedRate:
    """The rate that a run found, and how the real model answered at this rate.

    `late`: the share of the real queries that took longer than the limit. `late_by_chance`: the share that as many
    simulated queries exceed in one of 100 cases. `answers`: of the real queries. `services_s`: the service times by
    batch size with which the rate was found.
    """

    rate_per_s: float
    late: float
    late_by_chance: float
    answers: Answers
    services_s: Mapping[int, Sequence[float]]


def find_rate(
    execute: Callable[[int], None],
    services_s: Mapping[int, Sequence[float]],
    batching: Batching,
    limit_s: float,
    most_s: float,
    seed: int,
    clock: CallClock,
) -> ServedRate | str:
    """Search, try the rate on the real model for half of `most_s`, and do both again with the observed service times.

    `services_s`: measured seconds of each batch size that the model is compiled for. Returns why, if no rate keeps the
    limit.
    """
    found: ServedRate | str = ""
    known = dict(services_s)
    for number in range(2):
        rate = highest_rate(known, batching, limit_s, seed + number)
        if rate is None:
            one_s = quantile(known[min(known)], WITHIN)
            return f"p{WITHIN * 100:g} of a single call is {one_s:.4g} s, so no rate keeps the limit of {limit_s:g} s"
        arrivals_s = arrivals_of(max(1, round(rate * most_s / 2)), rate, -1 - seed - number)
        answers = serve(execute, arrivals_s, batching, clock, ends_s=most_s)
        if not answers.latencies_s:
            return f"no query arrived within {most_s:.3g} s at {rate:.3g} a second: give a larger budget_s"
        late = 1 - sum(latency_s <= limit_s for latency_s in answers.latencies_s) / len(arrivals_s)
        by_chance = _late_by_chance(known, batching, rate, limit_s, seed + number, len(arrivals_s))
        found = ServedRate(rate, late, by_chance, answers, known)
        known = _with_observed(known, answers)
    return found


def _late_by_chance(
    services_s: Mapping[int, Sequence[float]],
    batching: Batching,
    rate_per_s: float,
    limit_s: float,
    seed: int,
    count: int,
) -> float:
    """Late queries come together, so no interval of independent ones describes their share."""
    late = simulated(services_s, batching, rate_per_s, abs(seed) + 1)[:, :count] > limit_s
    return float(np.quantile(late.mean(axis=1), _RARELY))


_ENOUGH = 30  # service times of a size, to draw from them alone


def _with_observed(services_s: Mapping[int, Sequence[float]], answers: Answers) -> dict[int, Sequence[float]]:
    """`services_s`, with the times of `answers` for each size that they have often enough."""
    sizes, observed = sorted(services_s), {size: list[float]() for size in services_s}
    for size, taken_s in answers.services_s:
        observed[next(each for each in sizes if each >= size)].append(taken_s)
    return {size: seen if len(seen := observed[size]) >= _ENOUGH else services_s[size] for size in sizes}

"""Serve queries that arrive at random, and find the highest rate at which nearly all are answered within a limit.

A server answers one batch of queries at a time. It begins a batch when `max_batch` queries wait, or when the first of
them has waited for `max_wait_s`. Latency counts from a query's arrival, also if the server is late ("coordinated
omission": Schroeder et al., Open Versus Closed, NSDI 2006). MLPerf's scenario "server" is the same with 99 % of queries
within the limit (Reddi et al., MLPerf Inference Benchmark, ISCA 2020).

To try each rate for real would take thousands of queries per rate. So the search simulates the queue with service times
drawn from measured ones. Then the real model serves queries at the rate that was found. Their service times replace the
first ones, since work that comes at random may take longer than work without a pause, and a second search and a second
real run follow.
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

Services = Mapping[int, Sequence[float]]  # batch size -> seconds of its batches

WITHIN = 0.99  # the share of queries that the limit holds for
_QUEUES, _QUERIES, _RUN_IN = 256, 1000, 500  # simulated for each rate; the first _RUN_IN queries aren't counted
_RATE_ERROR = 1.03  # the rates that are found vary by 1 to 3 % with the simulated arrivals
_MARGIN = 1.5  # of the late queries that chance explains
_HALVINGS = 8  # of an octave, so that the rate is known within 0.3 %
_LOWEST = 1 / 1024  # the lowest rate that is tried, as a share of the rate of single calls
_MOST_QUERIES = 20_000
FEW_QUERIES = 20  # fewer real queries say nothing about the late ones


@dataclass(frozen=True)
class Batching:
    """`max_wait_s`: how long the first query of a batch waits for others."""

    max_batch: int = 1
    max_wait_s: float = 0.0


@dataclass(frozen=True)
class Served:
    """`latencies_s`: of the answered queries, in the order of their arrival. `services_s`: (batch size, seconds)."""

    latencies_s: list[float]
    services_s: list[tuple[int, float]]

    @property
    def batches(self) -> dict[int, int]:
        """How often each batch size arose."""
        return dict(sorted(Counter(size for size, _ in self.services_s).items()))


def arrivals_of(count: int, rate_per_s: float, seed: int | str) -> list[float]:
    """Seconds from the beginning to each arrival, of a Poisson process."""
    draw = random.Random(seed)
    return list(itertools.accumulate(draw.expovariate(rate_per_s) for _ in range(count)))


def serve(
    execute: Callable[[int], None],
    arrivals_s: Sequence[float],
    batching: Batching,
    clock: CallClock,
    ends_s: float = math.inf,
    after_each: Callable[[], None] = lambda: None,
) -> Served:
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
        after_each()
    return Served(latencies_s, services_s)


def simulated(
    services_s: Services,
    batching: Batching,
    rate_per_s: float,
    seed: Sequence[int],
    backlog_s: float = 0.0,
    run_in: int = _RUN_IN,
) -> NDArray[np.float64]:
    """Latencies of _QUERIES queries at each of _QUEUES simulated servers, one row each, by the rules of `serve`.

    A batch takes one of the `services_s` of its size, or of the next larger size that was measured. `backlog_s`: the
    mean work that waits at the beginning; exponential, as in a queue near its capacity. The first `run_in` queries of a
    row are left out, and the last ones, whose batches no later query fills.
    """
    draw, width = np.random.default_rng(seed), batching.max_batch
    count = run_in + _QUERIES + 2 * width
    gaps_s, picks = draw.exponential(1 / rate_per_s, (_QUEUES, count)), draw.random((_QUEUES, count))
    arrivals_s = np.concatenate([np.cumsum(gaps_s, axis=1), np.full((_QUEUES, width), math.inf)], axis=1)
    latencies_s, (times_s, row_of) = np.empty_like(arrivals_s), _table(services_s, width)
    free_s = draw.exponential(backlog_s, _QUEUES) if backlog_s else np.zeros(_QUEUES)
    first, active = np.zeros(_QUEUES, int), np.arange(_QUEUES)
    for turn in range(count):
        rows, numbers = active[:, np.newaxis], first[active][:, np.newaxis] + np.arange(width)
        waiting_s = arrivals_s[rows, numbers]
        starts_s = np.maximum(free_s[active], np.minimum(waiting_s[:, -1], waiting_s[:, 0] + batching.max_wait_s))
        sizes = (waiting_s <= starts_s[:, np.newaxis]).sum(axis=1)
        ends_s = starts_s + times_s[row_of[sizes], (picks[active, turn] * times_s.shape[1]).astype(int)]
        latencies_s[rows, numbers] = ends_s[:, np.newaxis] - waiting_s  # later turns replace those of other batches
        first[active] += sizes
        free_s[active] = ends_s
        active = active[first[active] < count]
        if not active.size:
            break
    return latencies_s[:, run_in : run_in + _QUERIES]


def _table(services_s: Services, most: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """As many service times for each measured size, (sizes, times), and the row of each batch size up to `most`."""
    sizes, longest = sorted(services_s), max(map(len, services_s.values()))
    rows = [np.sort(services_s[size])[np.arange(longest) * len(services_s[size]) // longest] for size in sizes]
    return np.array(rows), np.searchsorted(sizes, np.arange(most + 1))


def capacity_per_s(services_s: Services, batching: Batching) -> float:
    """The queries per second of the fastest batch size, if queries always wait."""
    return max(size / fmean(times_s) for size, times_s in services_s.items() if size <= batching.max_batch)


def highest_rate(services_s: Services, batching: Batching, limit_s: float, seed: Sequence[int]) -> float | None:
    """The highest rate at which WITHIN of all queries are answered within `limit_s`; None if no rate keeps the limit.

    Rates are halved from the capacity on until one keeps the limit, and then bisected. Each simulation begins with the
    backlog that a queue near its capacity has if WITHIN of its queries wait for less than the limit. From an empty
    queue, a long limit would never be reached within the simulated queries.
    """
    backlog_s = -limit_s / math.log(1 - WITHIN)

    def is_met(rate_per_s: float) -> bool:
        latencies_s = simulated(services_s, batching, rate_per_s, seed, backlog_s)
        return bool((latencies_s <= limit_s).mean() >= WITHIN)

    high = capacity_per_s(services_s, batching)
    lowest = _LOWEST / fmean(services_s[min(services_s)])
    while not is_met(low := high / 2):
        high = low
        if high < lowest:
            return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_met(middle) else (low, middle)
    return low


_SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.05, 1.1, 1.2)  # of the rate that was found


def load_curve(
    services_s: Services, batching: Batching, rate_per_s: float, limit_s: float, seed: Sequence[int]
) -> list[dict[str, float]]:
    """Simulated latencies at rates below and above `rate_per_s`, up to the capacity: where they begin to rise."""
    points, capacity = [], capacity_per_s(services_s, batching)
    for share in _SHARES:
        if share > 1 and share * rate_per_s >= capacity:
            break
        backlog_s = -limit_s / math.log(1 - WITHIN) if share >= 1 else 0.0
        latencies_s = simulated(services_s, batching, share * rate_per_s, seed, backlog_s)
        p50_s, p99_s = np.quantile(latencies_s, (0.5, WITHIN)).tolist()
        points.append({"rate_per_s": share * rate_per_s, "p50_s": p50_s, "p99_s": p99_s})
    return points


@dataclass(frozen=True)
class ServedRate:
    """The rate that a run found, and how the real model answered at this rate.

    `queries`: real ones that arrived in time to be answered; `late`: the share of them that took longer than the limit
    or wasn't answered. `late_by_chance`: the largest such share in simulations of as many queries. `served`: the
    real answers. `services_s`: the service times by batch size with which the rate was found. `curve`: see
    `load_curve`.
    """

    rate_per_s: float
    queries: int
    late: float
    late_by_chance: float
    served: Served
    services_s: Services
    curve: list[dict[str, float]]

    def observed_s(self, share: float) -> float | None:
        """A quantile of the real latencies; None if too few queries or too late ones would decide it."""
        if self.queries < 1 / (1 - share) or len(self.served.latencies_s) < self.queries:
            return None
        return quantile(self.served.latencies_s[: self.queries], share)


def find_rate(
    execute: Callable[[int], None],
    services_s: Services,
    batching: Batching,
    limit_s: float,
    most_s: float,
    seed: int,
    clock: CallClock,
    report: Callable[[], None] = lambda: None,
) -> ServedRate | None:
    """Search, serve at the rate for half of `most_s`, and do both again with the observed service times.

    `services_s`: measured seconds of each batch size that the model is compiled for. `report`: called now and then.
    None if no rate keeps the limit.
    """
    known, served_rate = dict(services_s), None
    for number in range(2):
        report()
        seeds = (seed, number)
        rate = highest_rate(known, batching, limit_s, seeds)
        if rate is None:
            return None
        report()
        count = min(_MOST_QUERIES, round(rate * most_s / 2))
        # Further queries fill the last batches.
        arrivals_s = arrivals_of(count + 2 * batching.max_batch, rate, f"{seeds} real")
        served = serve(execute, arrivals_s, batching, clock, most_s, report)
        count = bisect_right(arrivals_s, most_s, hi=count)
        late = count - sum(latency_s <= limit_s for latency_s in served.latencies_s[:count])
        by_chance = _late_by_chance(known, batching, rate, limit_s, (*seeds, 1), count)
        curve = load_curve(known, batching, rate, limit_s, seeds) if number else []
        served_rate = ServedRate(rate, count, late / max(1, count), by_chance, served, known, curve)
        known = _with_observed(known, served)
    return served_rate


def _late_by_chance(
    services_s: Services, batching: Batching, rate_per_s: float, limit_s: float, seed: Sequence[int], count: int
) -> float:
    """The largest share of late queries among groups of simulated queues with `count` queries or slightly fewer.

    The simulated rate is higher than `rate_per_s` by as much as the search may err, and the share gets a margin, since
    a single long queue varies more than several short ones.
    """
    late = simulated(services_s, batching, _RATE_ERROR * rate_per_s, seed, run_in=0)[:, : max(1, count)] > limit_s
    queues = max(1, count // _QUERIES)
    shares = late.mean(axis=1)[: _QUEUES // queues * queues]
    return _MARGIN * float(shares.reshape(-1, queues).mean(axis=1).max())


_ENOUGH = 30  # service times of a size, to draw from them alone


def _with_observed(services_s: Services, served: Served) -> dict[int, Sequence[float]]:
    """`services_s`, with the times of `served` for each size that has enough of them."""
    sizes, observed = sorted(services_s), {size: list[float]() for size in services_s}
    for size, taken_s in served.services_s:
        observed[next(measured for measured in sizes if measured >= size)].append(taken_s)
    return {size: times if len(times := observed[size]) >= _ENOUGH else services_s[size] for size in sizes}

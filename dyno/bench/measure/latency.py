"""Measure the latency of single calls, each synchronised with the device: percentiles in a closed and an open loop.

In the closed loop, one caller begins its next call when it has read the answer to its previous call. In the open loop,
calls arrive at random (Poisson) at a given rate, whether or not earlier calls have been answered, and wait for their
turn. Latency is measured from the time of arrival, not from the start of the call. Otherwise a slow call would hide the
wait of the calls behind it ("coordinated omission"). Schroeder et al., Open Versus Closed (NSDI 2006).

A percentile's interval comes from order statistics and assumes no distribution. It describes one run. The 99th
percentile needs 100 calls, so that one call lies beyond it on average. With fewer calls, the 99th percentile would be
the longest call, whose latency grows with the number of calls.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

from dyno.bench.contract import PERCENTILES, Loop, metric_name
from dyno.bench.measure.statistics import quantile_interval
from dyno.models.runner_protocol import CallQuantile

Execute = Callable[[int], None]  # executes this number of times, then drains the device

MOST_CALLS = 2000  # in each loop; an interval of the 99th percentile needs 368 calls
MOST_S, LEAST_S = 2.0, 0.2  # seconds of each loop
MOST_LOAD_S = 60.0  # seconds for the queries of a run; a rate needs thousands of queries, not more
OF_SHARE = 0.5  # maximum time of all loops of a run, as a part of the run's share of the budget
_FIRST_CALLS = 10  # unmeasured calls before the first loop
_UTILISATION = 0.5  # share of the time in which calls use the device, at the rate that run 0 chooses
_SPIN_S = 0.002  # time to spin instead of sleeping; only on a busy host does a sleep overrun by more
RATES = "call_rates_per_s"  # the key of the rates in the settings that run 0 tunes


class CallClock(Protocol):
    def now_s(self) -> float:
        """Monotonic seconds from an arbitrary zero."""

    def wait_until(self, time_s: float) -> None:
        """Return at `time_s`, or at once if it has passed."""


class HostCallClock:
    def now_s(self) -> float:
        return time.perf_counter()

    def wait_until(self, time_s: float) -> None:
        """Sleep, then spin: a sleep alone ends 0.05 ms late, which is as long as a short call."""
        while (left_s := time_s - self.now_s()) > 0:
            if left_s > _SPIN_S:
                time.sleep(left_s - _SPIN_S)


@dataclass(frozen=True)
class Calls:
    """Seconds to the end of each call: from its arrival, and from its start. In a closed loop, both are equal."""

    latencies_s: Sequence[float]
    services_s: Sequence[float]

    @property
    def mean_service_s(self) -> float | None:
        """None if there were no calls."""
        return math.fsum(self.services_s) / len(self.services_s) if self.services_s else None


def closed_loop(execute: Execute, clock: CallClock, most_s: float = MOST_S) -> Calls:
    """Make one call after the other for `most_s` seconds, at most MOST_CALLS and at least one."""
    taken_s: list[float] = []
    ends_s = clock.now_s() + most_s
    while not taken_s or (len(taken_s) < MOST_CALLS and clock.now_s() < ends_s):
        begins_s = clock.now_s()
        execute(1)
        taken_s.append(clock.now_s() - begins_s)
    return Calls(taken_s, taken_s)


def open_loop(execute: Execute, rate_per_s: float, seed: int, clock: CallClock, most_s: float = MOST_S) -> Calls:
    """Make the calls that arrive within `most_s`; there may be none.

    If the device can't keep up, calls begin late. The loop ends before a second or later call that would begin after
    2 x `most_s`.
    """
    arrivals, latencies_s, services_s = random.Random(seed), list[float](), list[float]()
    began_s = clock.now_s()
    arrives_s = began_s + arrivals.expovariate(rate_per_s)
    while len(latencies_s) < MOST_CALLS and arrives_s < began_s + most_s:
        clock.wait_until(arrives_s)
        begins_s = clock.now_s()
        if latencies_s and begins_s > began_s + 2 * most_s:
            break
        execute(1)
        ends_s = clock.now_s()
        latencies_s.append(ends_s - arrives_s)
        services_s.append(ends_s - begins_s)
        arrives_s += arrivals.expovariate(rate_per_s)
    return Calls(latencies_s, services_s)


@dataclass
class CallReadings:
    """The readings of one run's calls. `quantiles`: by metric. `rates_per_s`, `details`: by case."""

    quantiles: dict[str, CallQuantile] = field(default_factory=dict)
    rates_per_s: dict[str, JsonValue] = field(default_factory=dict)
    details: dict[str, JsonValue] = field(default_factory=dict)


def measure_calls(
    cases: Mapping[str, Execute],
    rate_per_s: float | None,
    known_rates_per_s: Mapping[str, JsonValue],
    seed: int,
    most_s: float,
    clock: CallClock,
    report: Callable[[], None],
) -> CallReadings:
    """Run both loops for each case. The run has the first case's readings, too; a run without cases has the case "".

    `rate_per_s`: the open loop's arrival rate. None: the rate of an earlier run, else half the rate of the closed loop.
    """
    readings = CallReadings()
    for number, (case, execute) in enumerate(cases.items()):
        report()
        for _ in range(_FIRST_CALLS):
            execute(1)
        closed = closed_loop(execute, clock, most_s)
        assert closed.mean_service_s is not None, "a closed loop makes a call"
        rate = rate_per_s or known_rates_per_s.get(case) or _UTILISATION / closed.mean_service_s
        assert isinstance(rate, float | int)
        report()
        opened = open_loop(execute, rate, seed, clock, most_s)
        readings.rates_per_s[case] = rate
        readings.details[case or "all"] = _details(closed, opened, rate)
        for name in {case, ""} if number == 0 else {case}:
            readings.quantiles |= _quantiles("closed", name, closed, None)
            readings.quantiles |= _quantiles("open", name, opened, _unsteady(opened, rate, most_s))
    return readings


def _quantiles(loop: Loop, case: str, calls: Calls, unknown: str | None) -> dict[str, CallQuantile]:
    count, quantiles = len(calls.latencies_s), {}
    for name, share in PERCENTILES.items():
        required = round(1 / (1 - share))
        few = None if count >= required else f"{name} needs {required} calls in the loop, and there were {count}"
        quantiles[metric_name(loop, name, case)] = _quantile(calls, share, unknown or few)
    return quantiles


def _quantile(calls: Calls, share: float, unknown: str | None) -> CallQuantile:
    count = len(calls.latencies_s)
    if unknown:
        return CallQuantile(value=None, calls=count, reason=unknown)
    interval = quantile_interval(calls.latencies_s, share)
    return CallQuantile(value=interval.value, low=interval.low, high=interval.high, calls=count, reason=interval.reason)


def _unsteady(calls: Calls, rate_per_s: float, most_s: float) -> str | None:
    """Why the open loop has no percentiles: no call arrived, or calls arrive faster than they are served. Else None."""
    if calls.mean_service_s is None:
        return f"no call arrived in {most_s:g} s at {rate_per_s:.4g} calls a second"
    served_per_s = 1 / calls.mean_service_s
    if rate_per_s < served_per_s:
        return None
    return f"{rate_per_s:.4g} calls a second arrive, but the device serves {served_per_s:.4g}: the line grows for ever"


def _details(closed: Calls, opened: Calls, rate_per_s: float) -> dict[str, JsonValue]:
    return {
        "closed_calls": len(closed.latencies_s),
        "open_calls": len(opened.latencies_s),
        "open_rate_per_s": rate_per_s,
        "open_utilisation": None if opened.mean_service_s is None else rate_per_s * opened.mean_service_s,
    }

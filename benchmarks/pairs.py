"""Statistics of benchmarks (ratios of interleaved pairs, shares, percentiles), and processes of a benchmark's own.

If a machine's speed drifts, only interleaved comparisons are valid.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dyno.bench.measure.statistics import Interval, mean_interval, median, wilson_interval


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of the pairs' ratios with Student's t interval on their logarithms (n - 1 degrees)."""

    value: float
    low: float
    high: float
    upper_95: float  # one-sided
    pairs: int

    def __str__(self) -> str:
        return (
            f"{self.value:.4f} (95 % interval {self.low:.4f} to {self.high:.4f}, "
            f"one-sided upper 95 % bound {self.upper_95:.4f}, {self.pairs} pairs)"
        )


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Raises ValueError with fewer than two pairs."""
    logs = [math.log(a / b) for a, b in zip(numerators, denominators, strict=True)]
    both, one_sided = mean_interval(logs), mean_interval(logs, confidence=0.9)
    if both.low is None or both.high is None or one_sided.high is None:
        raise ValueError("an interval needs two pairs")
    value, low, high, upper_95 = map(math.exp, (both.value, both.low, both.high, one_sided.high))
    return Ratio(value, low, high, upper_95, len(logs))


def in_turns(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """The figures of each way, measured once a round in the order ABC, CBA, …, so that a steady drift cancels."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways)[:: 1 if number % 2 == 0 else -1]:
            found[way].append(ways[way]())
        figures = ", ".join(f"{way} {values[-1]:.6g}" for way, values in found.items())
        print(f"round {number + 1} of {rounds}: {figures}", flush=True)
    return found


def printed(name: str, *arguments: float | str) -> str:
    """Run a benchmark's script in a process of its own. Returns the last line that it prints."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    return done.stdout.splitlines()[-1]


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank; not a number without values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    low, p95, high = (percentile(values, share) * scale for share in (0, 0.95, 1))
    return f"median {median(values) * scale:.4g}, min {low:.4g}, p95 {p95:.4g}, max {high:.4g}, n = {len(values)}"


def holds(interval: Interval, truth: float) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= truth <= interval.high


def share(hits: int, trials: int) -> str:
    """The share as text, with Wilson's 95 % interval."""
    interval = wilson_interval(hits, trials)
    return f"{interval.value:.1%} [{interval.low:.1%} to {interval.high:.1%}]"

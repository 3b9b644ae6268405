"""Ratios of interleaved pairs: the only way to compare on a machine whose speed drifts."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from scipy.special import stdtrit


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
    logs = [math.log(a / b) for a, b in zip(numerators, denominators, strict=True)]
    n = len(logs)
    centre, error = fmean(logs), stdev(logs) / math.sqrt(n)
    half, upper = (float(stdtrit(n - 1, level)) * error for level in (0.975, 0.95))
    return Ratio(*(math.exp(x) for x in (centre, centre - half, centre + half, centre + upper)), n)


def interleave(first: Callable[[], float], second: Callable[[], float], pairs: int) -> tuple[list[float], list[float]]:
    """ABBA: every second pair starts with the other, so that a steady drift cancels."""
    a: list[float] = []
    b: list[float] = []
    for index in range(pairs):
        for measure, into in ((first, a), (second, b))[:: 1 if index % 2 == 0 else -1]:
            into.append(measure())
        print(f"pair {index + 1} of {pairs}: {a[-1]:.6g} against {b[-1]:.6g}, ratio {a[-1] / b[-1]:.4f}", flush=True)
    return a, b


def printed(name: str, *arguments: float | str) -> str:
    """The last line that a benchmark's own script prints, in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    return done.stdout.splitlines()[-1]


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    ordered = sorted(values)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return (
        f"median {median(ordered) * scale:.4g}, min {ordered[0] * scale:.4g}, p95 {p95 * scale:.4g}, "
        f"max {ordered[-1] * scale:.4g}, n = {len(ordered)}"
    )

"""Do forked runners scatter like spawned ones? Both in turns, on several workloads: their medians, and how far apart.

A forked runner shares the layout of its address space with its siblings, so that it might hide what spawned ones show.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, stdev

from scipy.special import fdtri

from benchmarks.pairs import ratio
from benchmarks.recorded import PARAMS, RUNS, Run, medians, recorded
from benchmarks.report import prose, table, write
from dyno.measure.statistics import CONFIDENCE, Interval, median

Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def deviations_ratio(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Of standard deviations, with the interval of the F distribution: exact where the runs are normal."""
    return _by_f(stdev(first) / stdev(second), len(first) - 1, len(second) - 1)


def neighbours_ratio(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Of standard deviations taken from differences between one run and the next, which a slow drift hardly moves.

    Von Neumann (1941): half the mean square of successive differences. Its variance is 3/2 of the usual one's, so its
    degrees of freedom count for two thirds.
    """
    over, under = (math.sqrt(fmean((b - a) ** 2 for a, b in pairwise(values)) / 2) for values in (first, second))
    return _by_f(over / under, 2 / 3 * (len(first) - 1), 2 / 3 * (len(second) - 1))


def robust_ratio(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Of mean absolute deviations from the median: Bonett & Seier (2003), right without a normal distribution too."""
    (over, over_variance), (under, under_variance) = _mean_deviation(first), _mean_deviation(second)
    half = Z * math.sqrt(over_variance + under_variance)
    return Interval(over / under, over / under * math.exp(-half), over / under * math.exp(half))


def _by_f(value: float, degrees: float, other_degrees: float) -> Interval:
    low, high = (float(fdtri(degrees, other_degrees, (1 + sign * CONFIDENCE) / 2)) for sign in (-1, 1))
    return Interval(value, value / math.sqrt(high), value / math.sqrt(low))


def _mean_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Over n - 1, which takes out most of its bias, and the variance of its logarithm."""
    centre, count = median(values), len(values)
    tau = fmean(abs(value - centre) for value in values)
    skew, spread = (fmean(values) - centre) / tau, stdev(values) / tau
    return tau * count / (count - 1), (skew**2 + spread**2 - 1) / count


def main() -> None:
    found: dict[str, list[Run]] = {}
    try:
        for name in PARAMS:
            found[name] = recorded(name, RUNS)
    finally:  # also when Ctrl-C ends it
        if found:
            write("scatter", "Do forked runners scatter like spawned ones?", lines(found))


def lines(found: Mapping[str, Sequence[Run]]) -> list[str]:
    text = """A median a run, each run a fresh process, forked from a zygote or spawned, in the order ABBA; both by a
        worker's own launcher. Ratios are forked to spawned, with 95 % intervals: *medians* is the geometric mean over
        the pairs (Student's t on logarithms); *sd* that of standard deviations over the runs (F distribution, right for
        normal runs only); *neighbours* the same from the differences between one run and the next, which a slow drift
        of the machine hardly moves; *robust* that of mean absolute deviations (Bonett and Seier 2003), right with heavy
        tails too. An interval that holds 1 shows no difference; its width says how small a one it could show."""
    head = ("workload", "n each", "forked", "spawned", "medians", "sd", "neighbours", "robust")
    params = (f"- `{name}`: `{PARAMS[name][0]}` with `{json.dumps(PARAMS[name][1])}`" for name in found)
    return [*prose(text), *table(head, [_row(name, runs) for name, runs in found.items()]), *params]


def _row(name: str, runs: Sequence[Run]) -> list[object]:
    forked, spawned = medians(runs, "forked"), medians(runs, "spawned")
    centres = ratio(forked, spawned)
    scatters = (way(forked, spawned) for way in (deviations_ratio, neighbours_ratio, robust_ratio))
    return [
        f"`{name}`",
        len(forked),
        *(f"{median(of) * 1e3:.4g} ms, sd {stdev(of) / fmean(of):.2%}" for of in (forked, spawned)),
        f"{centres.value:.4f} [{centres.low:.4f} to {centres.high:.4f}]",
        *(f"{each.value:.2f} [{each.low:.2f} to {each.high:.2f}]" for each in scatters),
    ]

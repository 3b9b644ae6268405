"""Do forked runners scatter like spawned ones? Both in turns, on several workloads: their medians, and how far apart.

A forked runner shares the layout of its address space with its siblings, so that it might hide what spawned ones show.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev

from scipy.special import fdtri

from benchmarks.pairs import ratio
from benchmarks.recorded import PARAMS, RUNS, Run, medians, recorded
from benchmarks.report import prose, table, write
from dyno.measure.statistics import CONFIDENCE, Interval, median

Z = 1.959963984540054  # the normal quantile for two-sided 95 %


def deviations_ratio(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Of standard deviations, with the interval of the F distribution: exact where the runs are normal."""
    return _by_f(stdev(first) / stdev(second), len(first) - 1, len(second) - 1)


def neighbours_ratio(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Of standard deviations taken from differences between one run and the next, which a slow drift hardly moves.

    Von Neumann (1941): half the mean square of successive differences. Its variance is 3/2 of the usual one's, so its
    degrees of freedom count for two thirds.
    """
    value = _of_differences(first) / _of_differences(second)
    return _by_f(value, 2 / 3 * (len(first) - 1), 2 / 3 * (len(second) - 1))


def robust_ratio(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Of mean absolute deviations from the median: Bonett & Seier (2003), right without a normal distribution too."""
    value = _mean_deviation(first) / _mean_deviation(second)
    half = Z * math.sqrt(_log_variance(first) + _log_variance(second))
    return Interval(value, value * math.exp(-half), value * math.exp(half))


def main(runs: int = RUNS) -> None:
    found: dict[str, list[Run]] = {}
    try:
        for name in PARAMS:
            found[name] = recorded(name, runs)
    finally:  # also when it is ended by Ctrl-C
        if found:
            write("scatter", "Do forked runners scatter like spawned ones?", lines(found))


def lines(found: Mapping[str, Sequence[Run]]) -> list[str]:
    text = """A median a run, each run a fresh process, forked from a zygote or spawned, in the order ABBA; both by a
        worker's own launcher. Ratios are forked to spawned, with 95 % intervals: *medians* is the geometric mean over
        the pairs (Student's t on logarithms); *sd* that of standard deviations over the runs (F distribution, right
        for normal runs only); *neighbours* the same from the differences between one run and the next, which a slow
        drift of the machine hardly moves; *robust* that of mean absolute deviations (Bonett and Seier 2003), right with
        heavy tails too. An interval that holds 1 shows no difference; its width says how small a one it could show."""
    head = ("workload", "n each", "forked", "spawned", "medians", "sd", "neighbours", "robust")
    return [*prose(text), *table(head, [_row(name, runs) for name, runs in found.items()]), *_params(found)]


def _row(name: str, runs: Sequence[Run]) -> list[object]:
    forked, spawned = medians(runs, "forked"), medians(runs, "spawned")
    centres = ratio(forked, spawned)
    ways = (deviations_ratio, neighbours_ratio, robust_ratio)
    return [
        f"`{name}`",
        len(forked),
        _spread(forked),
        _spread(spawned),
        f"{centres.value:.4f} [{centres.low:.4f} to {centres.high:.4f}]",
        *(_shown(way(forked, spawned)) for way in ways),
    ]


def _params(names: Mapping[str, object]) -> list[str]:
    return [f"- `{name}`: `{PARAMS[name][0]}` with `{json.dumps(PARAMS[name][1])}`" for name in names]


def _spread(values: Sequence[float]) -> str:
    return f"{median(values) * 1e3:.4g} ms, sd {stdev(values) / fmean(values):.2%}"


def _shown(interval: Interval) -> str:
    return f"{interval.value:.2f} [{interval.low:.2f} to {interval.high:.2f}]"


def _by_f(value: float, degrees: float, other_degrees: float) -> Interval:
    low, high = (float(fdtri(degrees, other_degrees, (1 + sign * CONFIDENCE) / 2)) for sign in (-1, 1))
    return Interval(value, value / math.sqrt(high), value / math.sqrt(low))


def _of_differences(values: Sequence[float]) -> float:
    squares = [(after - before) ** 2 for before, after in pairwise(values)]
    return math.sqrt(fmean(squares) / 2)


def _mean_deviation(values: Sequence[float]) -> float:
    """Over n - 1, which takes out most of its bias."""
    centre = median(values)
    return math.fsum(abs(value - centre) for value in values) / (len(values) - 1)


def _log_variance(values: Sequence[float]) -> float:
    """Of the logarithm of the mean absolute deviation: Bonett & Seier (2003)."""
    centre, count = median(values), len(values)
    tau = fmean(abs(value - centre) for value in values)
    skew, spread = (fmean(values) - centre) / tau, stdev(values) / tau
    return (skew**2 + spread**2 - 1) / count


if __name__ == "__main__":
    main()

"""Do forked runners scatter like spawned ones? Both run in turns on several workloads: their medians and their scatter.

Forked runners share the layout of their address space, so they might hide scatter that spawned runners show.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

from scipy.special import fdtri

from benchmarks.pairs import ratio
from benchmarks.recorded import FOLDER, PARAMS, RUNS, Run, medians, recorded
from benchmarks.report import prose, table, write
from dyno.bench.measure.statistics import CONFIDENCE, Interval, median


def neighbours_ratio(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Ratio of standard deviations from the differences between successive runs, which a slow drift hardly changes.

    Von Neumann (1941): half the mean square of successive differences. This estimate's variance is 3/2 of the usual
    one's, so two thirds of its degrees of freedom count in the interval of the F distribution, which is exact for
    normal runs.
    """
    over, under = (math.sqrt(fmean((b - a) ** 2 for a, b in pairwise(values)) / 2) for values in (first, second))
    degrees, other_degrees = 2 / 3 * (len(first) - 1), 2 / 3 * (len(second) - 1)
    low, high = (float(fdtri(degrees, other_degrees, (1 + sign * CONFIDENCE) / 2)) for sign in (-1, 1))
    return Interval(over / under, over / under / math.sqrt(high), over / under / math.sqrt(low))


def main(names: Iterable[str] = tuple(PARAMS), runs: int = RUNS, folder: Path = FOLDER) -> None:
    found: dict[str, list[Run]] = {}
    try:
        for name in names:
            found[name] = recorded(name, runs, folder)
    finally:  # also when Ctrl-C ends it
        if found:
            write("scatter", "Do forked runners scatter like spawned ones?", lines(found))


def lines(found: Mapping[str, Sequence[Run]]) -> list[str]:
    text = """Each run gives one median. It is a fresh process that a worker's own launcher forked from a zygote or
        spawned, in the order ABBA. Ratios are forked divided by spawned, with 95 % intervals. *Medians*: the geometric
        mean over the pairs (Student's t on logarithms). *Neighbours*: the ratio of standard deviations from the
        differences between successive runs, which a slow drift of the machine hardly changes (F distribution). An
        interval that holds 1 shows no difference; its width says how small a difference it could show."""
    head = ("workload", "n each", "forked", "spawned", "medians", "neighbours")
    params = (f"- `{name}`: `{PARAMS[name][0]}` with `{json.dumps(PARAMS[name][1])}`" for name in found)
    return [*prose(text), *table(head, [_row(name, runs) for name, runs in found.items()]), *params]


def _row(name: str, runs: Sequence[Run]) -> list[object]:
    forked, spawned = medians(runs, "forked"), medians(runs, "spawned")
    centres, scatters = ratio(forked, spawned), neighbours_ratio(forked, spawned)
    return [
        *(f"`{name}`", len(forked)),
        *(f"{median(of) * 1e3:.4g} ms, sd {stdev(of) / fmean(of):.2%}" for of in (forked, spawned)),
        f"{centres.value:.4f} [{centres.low:.4f} to {centres.high:.4f}]",
        f"{scatters.value:.2f} [{scatters.low:.2f} to {scatters.high:.2f}]",
    ]

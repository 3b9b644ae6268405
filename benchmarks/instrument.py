"""Does `dyno.bench` give the figure that a service gives for the same spec? Writes instrument.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.files import Spec
from benchmarks.jobs import headline, own_dyno
from benchmarks.pairs import in_turns, ratio
from benchmarks.report import prose, table, write
from dyno.bench.bench import Bench
from dyno.models.result import Result

ROUNDS = 10
WORKLOADS: dict[str, Spec] = {
    "matmul, n = 512": {"workload": "matmul", "params": {"n": 512}},
    "mnist_cnn": {"workload": "mnist_cnn"},
}
METHOD = """The same spec runs in turns (AB, BA) in `dyno.bench.Bench` and as a job of a separate Dyno, on all cores of
    this machine, with a budget of {budget_s:g} s. *Ratio*: the instrument's figure divided by the service's, the
    geometric mean over the pairs with its 95 % interval. *Overlap*: pairs whose intervals share a value."""


def main(rounds: int = ROUNDS, budget_s: float = 5) -> None:
    rows = [row(name, {**spec, "measure": {"budget_s": budget_s}}, rounds) for name, spec in WORKLOADS.items()]
    lines = [*prose(METHOD.format(budget_s=budget_s)), *table(("workload", "pairs", "ratio", "overlap"), rows)]
    write("instrument", "The instrument and the service", lines)


def row(name: str, spec: Spec, rounds: int) -> list[object]:
    results: dict[str, list[Result]] = {"instrument": [], "service": []}

    def noted(way: str, result: Result) -> float:
        results[way].append(result)
        return headline(result).value or math.nan

    with ExitStack() as stack:
        bench, client = stack.enter_context(Bench("cpu")), stack.enter_context(own_dyno())
        ways = {
            "instrument": lambda: noted("instrument", bench.run(spec)),
            "service": lambda: noted("service", client.run({**spec, "device": "cpu"})),
        }
        figures = in_turns(ways, rounds)
    of = ratio(figures["instrument"], figures["service"])
    return [f"`{name}`", rounds, f"{of.value:.3f} [{of.low:.3f} to {of.high:.3f}]", _overlap(*results.values())]


def _overlap(first: Sequence[Result], second: Sequence[Result]) -> str:
    metrics = ((headline(one), headline(other)) for one, other in zip(first, second, strict=True))
    shared = [
        max(one.low or 0.0, other.low or 0.0) <= min(one.high or math.inf, other.high or math.inf)
        for one, other in metrics
    ]
    return f"{sum(shared)} of {len(shared)}"

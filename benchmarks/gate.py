"""How often is a gate in CI wrong? The same work and work that takes 5 % longer, in turns, held against one baseline.

The work of one `execution_time` is a chain of matrix products: 20 of them, and 21. Writes gate.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from benchmarks.files import Spec
from benchmarks.jobs import own_dyno
from benchmarks.pairs import share
from benchmarks.report import prose, table, write
from dyno.client import Client
from dyno.measure.statistics import median
from dyno.models.job import BaselineOutcome
from dyno.models.result import Result

JOBS, MARGIN, METRIC, NAME = 20, 0.02, "execution_time", "gate"
N, MEASURE = 1024, dict[str, JsonValue]()  # by the default method
# By the words of the page: products in a chain, and the outcome that would be wrong.
REPEATS = {"the same": 20, "5 % slower": 21}
WRONG = {"the same": "fail", "5 % slower": "pass"}

Taken = Mapping[str, Sequence[Result]]


def main(jobs: int = JOBS) -> None:
    taken: dict[str, list[Result]] = {code: [] for code in REPEATS}
    try:
        _measure(jobs, taken)
    finally:
        write("gate", "How often is a gate wrong?", lines(taken))


def _measure(jobs: int, taken: dict[str, list[Result]]) -> None:
    with own_dyno() as client:
        saved = client.run(spec(REPEATS["the same"]))
        client.save_baseline(NAME, saved.job, metric=METRIC, margin=MARGIN)
        for number in range(jobs):
            for code in list(REPEATS)[:: 1 if number % 2 == 0 else -1]:
                taken[code].append(_gated(client, code))
                print(f"{number + 1} of {jobs}, {code}: {outcome(taken[code][-1]).outcome}", flush=True)


def spec(repeats: int, **fields: JsonValue) -> Spec:
    params: dict[str, JsonValue] = {"n": N, "repeats": repeats}
    return {"workload": "matmul", "params": params, "device": "cpu", "measure": MEASURE, **fields}


def _gated(client: Client, code: str) -> Result:
    return client.run(spec(REPEATS[code], baseline=NAME))


def outcome(result: Result) -> BaselineOutcome:
    assert result.baseline is not None, "the spec names a baseline"
    return result.baseline


def lines(taken: Taken) -> list[str]:
    text = f"""`matmul` at n = {N}, {METRIC}, margin {MARGIN:.0%}: one job is saved as the baseline, then jobs of equal
        work and of work that takes 5 % longer are held against it, in turns. *Wrong*: unchanged work that fails, and
        slower work that passes; its interval is Wilson's, 95 %. *Half-width*: of the ratio's interval, the median."""
    head = ("code", "jobs", "pass", "inconclusive", "fail", "wrong", "ratio", "half-width", "runs")
    return [*prose(text), *table(head, [_row(code, results) for code, results in taken.items() if results])]


def _row(code: str, results: Sequence[Result]) -> list[object]:
    found = [outcome(result) for result in results]
    counts = {word: sum(each.outcome == word for each in found) for word in ("pass", "inconclusive", "fail")}
    ratios = [each.ratio for each in found if each.ratio is not None]
    halves = [(each.high / each.low) ** 0.5 - 1 for each in found if each.low and each.high]
    wrong = counts[WRONG[code]]
    return [
        *(code, len(found), *counts.values(), f"**{wrong} of {len(found)}, {share(wrong, len(found))}**"),
        f"{median(ratios):.4f}" if ratios else "–",
        f"±{median(halves):.2%}" if halves else "–",
        f"{median([len(result.runs) for result in results]):g}",
    ]

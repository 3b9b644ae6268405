"""How often is a gate in CI wrong? It judges code that is as before and code that takes 5 % longer, in turns.

One gate runs both versions in turns as one job. The other compares a job of one version with a saved baseline. Answers
are kept in build/. Writes gate.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from benchmarks.files import Files, Spec, here
from benchmarks.jobs import own_dyno
from benchmarks.pairs import share
from benchmarks.report import prose, table, write
from dyno.bench.measure.statistics import median
from dyno.client import Client
from dyno.models.comparison import Comparative

STATE = Path("build") / "gate"
WORKLOADS = Path(__file__).parent / "gate_workloads"
JOBS, PAIRS, MARGIN, METRIC, NAME = 20, 16, 0.02, "execution_time", "gate"
N = 1024
MAX_S = 1  # of sampling in each process: many short processes tell more than a few long ones
MEASURE: dict[str, JsonValue] = {"max_s": MAX_S}
# By the name of the code on the page: its version, and the outcome that would be wrong.
VERSIONS = {"as before": "as_before", "5 % slower": "slower"}
WRONG = {"as before": "fail", "5 % slower": "pass"}
OUTCOMES = {Comparative.SLOWER: "fail", Comparative.FASTER: "pass", Comparative.SAME: "pass"}
IN_TURNS, AGAINST_BASELINE = "in turns", "against a baseline"


class Judged(NamedTuple):
    """A gate's answer. `low` and `high` bound the ratio. `runs`: number of runs of the judged version."""

    outcome: str
    ratio: float | None
    low: float | None
    high: float | None
    runs: int


Taken = Mapping[tuple[str, str], Sequence[Judged]]  # by gate and code


def main(jobs: int = JOBS, folder: Path = STATE) -> None:
    os.environ["DYNO_WORKLOADS_DIR"] = str(WORKLOADS)
    taken: dict[tuple[str, str], list[Judged]] = {}
    try:
        with own_dyno() as client:
            gate = Gate(client, Files(folder, here()))
            for kind, judge in {IN_TURNS: gate.in_turns, AGAINST_BASELINE: gate.against_baseline}.items():
                for number in range(jobs):
                    for code in list(VERSIONS)[:: 1 if number % 2 == 0 else -1]:
                        judged = judge(code, number)
                        taken.setdefault((kind, code), []).append(judged)
                        print(f"{number + 1} of {jobs}, {kind}, {code}: {judged.outcome}", flush=True)
    finally:
        write("gate", "How often is a gate wrong?", lines(taken))


class Gate:
    """Both gates; each answer is kept."""

    def __init__(self, client: Client, files: Files) -> None:
        self._client, self._files = client, files
        self._saved = False

    def in_turns(self, code: str, number: int) -> Judged:
        before, changed = (spec(VERSIONS[each]) for each in ("as before", code))
        options: dict[str, JsonValue] = {"pairs": PAIRS, "control": False, "margin": MARGIN, "metric": METRIC}
        asked: Spec = {"specs": [dict(before), dict(changed)], **options}

        def make() -> dict[str, JsonValue]:
            found = self._client.compare_specs(before, changed, None, **options).results[1]
            of = found.ratio
            assert of is not None, "the second isn't the base"
            outcome = OUTCOMES.get(of.verdict, "inconclusive")
            return Judged(outcome, of.value, of.low, of.high, found.runs)._asdict()

        return self._judged(f"{IN_TURNS}, {code}.{number:02}", asked, make)

    def against_baseline(self, code: str, number: int) -> Judged:
        asked = spec(VERSIONS[code], baseline=NAME)

        def make() -> dict[str, JsonValue]:
            if not self._saved:
                job = self._client.run(spec(VERSIONS["as before"])).job
                self._client.save_baseline(NAME, job, metric=METRIC, margin=MARGIN)
                self._saved = True
            result = self._client.run(asked)
            of = result.baseline
            assert of is not None, "the spec names a baseline"
            return Judged(of.outcome, of.ratio, of.low, of.high, len(result.runs))._asdict()

        return self._judged(f"{AGAINST_BASELINE}, {code}.{number:02}", asked, make)

    def _judged(self, name: str, asked: Spec, make: Callable[[], Mapping[str, JsonValue]]) -> Judged:
        kept = self._files.once(name, asked, make)
        return Judged(**{field: kept[field] for field in Judged._fields})


def spec(version: str, **fields: JsonValue) -> Spec:
    params: dict[str, JsonValue] = {"n": N, "version": version}
    return {"workload": "gated_code", "params": params, "device": "cpu", "measure": MEASURE, **fields}


def lines(taken: Taken) -> list[str]:
    text = f"""A custom workload: chains of matrix products, n = {N}. The changed version makes 21 products, and the
        other one 20. The metric is {METRIC}, the margin {MARGIN:.0%}; each process samples for {MAX_S} s.
        {_of_gates({gate for gate, _ in taken})} *Wrong*: unchanged code that fails, or slower code that passes, with
        Wilson's 95 % interval. *Half-width*: the median half-width of the ratio's interval."""
    head = ("gate", "code", "jobs", "pass", "inconclusive", "fail", "wrong", "ratio", "half-width", "runs")
    return [*prose(text), *table(head, [_row(*which, found) for which, found in taken.items()])]


def _of_gates(taken: Collection[str]) -> str:
    """What each gate is, and which wasn't measured."""
    gates = {
        IN_TURNS: f"one job runs both versions in {PAIRS} pairs",
        AGAINST_BASELINE: "a job of one version is compared with one earlier job of the version as before",
    }
    said = [f"*{gate.capitalize()}*: {how}." for gate, how in gates.items() if gate in taken]
    missing = [f"The gate {gate} wasn't measured." for gate in gates if gate not in taken]
    return " ".join([*said, *missing])


def _row(gate: str, code: str, found: Sequence[Judged]) -> list[object]:
    counts = {word: sum(each.outcome == word for each in found) for word in ("pass", "inconclusive", "fail")}
    ratios = [each.ratio for each in found if each.ratio is not None]
    halves = [(each.high / each.low) ** 0.5 - 1 for each in found if each.low and each.high]
    wrong = counts[WRONG[code]]
    return [
        *(gate, code, len(found), *counts.values(), f"**{wrong} of {len(found)}, {share(wrong, len(found))}**"),
        f"{median(ratios):.4f}" if ratios else "–",
        f"±{median(halves):.2%}" if halves else "–",
        f"{median([each.runs for each in found]):g}",
    ]

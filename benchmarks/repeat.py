"""Does `repeat` hold the next result? Jobs of four workloads in turns, spread over hours.

Between two jobs of a workload, others run. Writes repeat.md. Finished jobs are kept in build/ and not run again.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from benchmarks.files import Spec
from benchmarks.jobs import Answer, KeptJobs, made_here
from benchmarks.pairs import share
from benchmarks.report import RESULTS, prose, table, write
from dyno.bench.measure import peers as history
from dyno.bench.measure.series import factor, headline_metric
from dyno.bench.measure.statistics import median
from dyno.bench.registry import bundled
from dyno.formatting import format_quantity
from dyno.models.result import Metric, Peak, Peer, Repeat, Result

STATE = Path("build") / "repeat"
JOBS, OVER_S = 10, 2 * 3600.0  # jobs of each case; seconds from the first to the last job of all
WORKLOADS = ("matmul", "mnist_cnn", "cifar10_cnn", "fashion_mnist_cnn")
DEFAULT = "default"
# Settings by their name on the page. The default has no target.
WAYS: dict[str, dict[str, JsonValue]] = {
    DEFAULT: {},
    "target 2 %": {"processes": {"min": 5, "max": 10}, "target_rel_ci": 0.02},
}
CASES: dict[str, Spec] = {
    f"{name}, {way}": {"workload": name, "params": dict(bundled()[name].bench), "measure": measure, "device": "cpu"}
    for way, measure in WAYS.items()
    for name in WORKLOADS
}
AIM = 0.9

Taken = Mapping[str, Sequence[Result]]  # by case, in the order in which they ran


class Step(NamedTuple):
    """A result, and whether its intervals hold the next result of its case as it was measured."""

    result: Result
    metric: Metric
    repeat: Repeat
    next_value: float

    @property
    def held(self) -> bool:
        return self.repeat.low <= self.next_value <= self.repeat.high

    @property
    def in_own_interval(self) -> bool:
        metric = self.metric
        return metric.low is not None and metric.high is not None and metric.low <= self.next_value <= metric.high


def main(jobs: int = JOBS, over_s: float = OVER_S, cases: Collection[str] = tuple(CASES), folder: Path = STATE) -> None:
    wanted, kept, found = specs(jobs, cases), KeptJobs(folder, made_here), dict[str, Answer]()
    missing = [name for name, spec in wanted.items() if kept.get(name, spec) is None]
    began_s = time.monotonic()
    try:
        for name, answer in kept.answers(wanted):
            found[name] = answer
            if name in missing[:-1]:
                due_s = began_s + over_s * (missing.index(name) + 1) / len(missing)
                time.sleep(max(0.0, due_s - time.monotonic()))
    finally:
        taken: dict[str, list[Result]] = {}
        for name, answer in kept.so_far(wanted, found).items():
            if answer.result is not None:
                taken.setdefault(name.rpartition(".")[0], []).append(answer.result)
        write("repeat", "Does repeat hold the next result?", lines(taken))


def specs(jobs: int, cases: Collection[str] = tuple(CASES)) -> dict[str, Spec]:
    """By "<case>.<number>", in turns."""
    return {f"{case}.{number:02}": CASES[case] for number in range(jobs) for case in cases}


def steps(results: Sequence[Result]) -> list[Step]:
    """Each result with the next one of its case; those without a prediction are left out."""
    found = []
    for result, following in pairwise(predicted(results)):
        metric, after = headline_metric(result), headline_metric(following)
        if metric is None or metric.repeat is None or after is None or after.value is None:
            continue
        found.append(Step(result, metric, metric.repeat, after.value))
    return found


def predicted(results: Sequence[Result]) -> list[Result]:
    """The results, with `repeat` computed anew from those before: each call of `main` has a Dyno of its own."""
    found, peers = list[Result](), list[Peer]()
    for result in results:
        if (metric := headline_metric(result)) is None or not metric.value:
            continue
        own = history.peer(result, metric, metric.value)
        found.append(history.with_prediction(result, own, peers, {metric.name}))
        if history.shows_level(result):
            peers.insert(0, own)  # newest first
    return found


RECORDED = RESULTS / "recorded" / "repeat.json"


def replayed(path: Path = RECORDED) -> dict[str, list[bool | None]]:
    """By case: whether the prediction of each recorded job holds the next value as measured; None if not known yet.

    The file has values and clocks as they were printed, with three digits of the clock. The scatter of the runs follows
    from the intervals that were printed beside them.
    """
    return {case: _replay(case, jobs) for case, jobs in json.loads(path.read_text()).items()}


def _replay(case: str, jobs: Sequence[Mapping[str, Any]]) -> list[bool | None]:
    found, peers = list[bool | None](), list[Peer]()
    for job, following in pairwise(jobs):
        own = Peer(job="", **{name: job[name] for name in ("value", "clock_hz", "runs", "scatter")})
        (metric,) = history.with_prediction(_result(case, own), own, peers, {_METRIC}).metrics
        repeat = metric.repeat
        found.append(None if repeat is None else repeat.low <= following["value"] <= repeat.high)
        if not history.DISTURBED.intersection(job["warnings"]):
            peers.insert(0, own)
    return found


_METRIC = "figure"
_MATMUL_PEAK = 2 * 64 * 4.5e9  # FLOP/s: two cores, 64 FLOP per cycle, at the clock on the page


def _result(case: str, own: Peer) -> Result:
    """A result with this figure: a rate for `matmul`, else a time."""
    is_rate = case.startswith("matmul")
    metric = Metric(
        **{"name": _METRIC, "unit": "FLOP/s" if is_rate else "s", "better": "higher" if is_rate else "lower"},
        **{"value": own.value, "runs": own.runs or 1, "samples": 1, "by_run": [own.value] * (own.runs or 1)},
    )
    fraction = own.value / _MATMUL_PEAK if is_rate else None
    peak = Peak(value=_MATMUL_PEAK if is_rate else None, fraction=fraction, provenance="measured clock")
    known: dict[str, Any] = {"metrics": [metric], "peak": peak, "device": {"kind": "cpu"}}
    return Result.model_construct(**known)


def replay_rows(found: Mapping[str, Sequence[bool | None]]) -> list[list[object]]:
    """A row for each case, one for all cases of `matmul`, and one for all cases."""
    groups = {f"`{case}`": held for case, held in found.items()}
    groups["all of `matmul`"] = [held for case, of in found.items() if case.startswith("matmul") for held in of]
    groups["all"] = [held for of in found.values() for held in of]
    known = {name: [held for held in of if held is not None] for name, of in groups.items()}
    return [[name, len(of), _share(known[name]), len(of) - len(known[name])] for name, of in groups.items()]


def lines(taken: Taken) -> list[str]:
    text = f"""The jobs of all cases run again and again, in turns, spread over hours. *Held*: results whose `repeat`
        holds the next value of the case as it was measured. Aim: {AIM:.0%}. Results without a prediction are left out.
        *Own interval*: results with the next value between `low` and `high`, which describe one stretch of time only.
        *Between jobs*: the standard deviation of the jobs' values, as measured, and adjusted to one clock by the last
        result's elasticity. Intervals of shares are Wilson's, 95 %."""
    head = ("case", "jobs", "clock", "between jobs", "at one clock", "elasticity", "half-width")
    return [
        *prose(text),
        *table((*head, "held", "own interval"), [_row(case, of) for case, of in taken.items()]),
        *_in_all(taken),
        *("## Each result", ""),
        *table(
            ("case", "job", "clock", "value", "repeat", "based on", "next", "held", "warnings"),
            [row for case, of in taken.items() for row in _each(case, of)],
        ),
    ]


def _in_all(taken: Taken) -> list[str]:
    rows = []
    for way in WAYS:
        of_way = [result for case, of in taken.items() if case.endswith(way) for result in of]
        held = [step.held for case, of in taken.items() if case.endswith(way) for step in steps(of)]
        missed = sum(any(raised.code == "TARGET_MISSED" for raised in result.warnings) for result in of_way)
        runs = median([len(result.runs) for result in of_way]) if of_way else 0
        rows.append([way, len(of_way), f"{runs:g}", missed, f"**{_share(held)}**"])
    return table(("all of", "jobs", "median of runs", "TARGET_MISSED", "held"), rows)


def _row(case: str, results: Sequence[Result]) -> list[object]:
    found = steps(results)
    as_measured, at_one_clock = between_jobs(results)
    half_widths = [math.log(step.repeat.high / step.repeat.low) / 2 for step in found if step.repeat.low > 0]
    elasticity = found[-1].repeat.elasticity if found else None
    return [
        *(f"`{case}`", len(results), _clocks(results), _percent(as_measured), f"**{_percent(at_one_clock)}**"),
        "–" if elasticity is None else f"{elasticity:.2f}",
        f"±{median(half_widths):.2%}" if half_widths else "–",
        f"**{_share([step.held for step in found])}**",
        _share([step.in_own_interval for step in found]),
    ]


def between_jobs(results: Sequence[Result]) -> tuple[float | None, float | None]:
    """The standard deviation of the values' logarithms: as measured, and at the clock of the last result."""
    metrics = [metric for result in predicted(results) if (metric := headline_metric(result)) is not None]
    known = [(metric.value, metric.repeat) for metric in metrics if metric.value and metric.repeat]
    if len(known) < 2:
        return None, None
    last = known[-1][1]
    as_measured = [math.log(value) for value, _ in known]
    at_one_clock = [
        math.log(value * factor(repeat.clock_hz, last.clock_hz, last.elasticity)) for value, repeat in known
    ]
    return statistics.stdev(as_measured), statistics.stdev(at_one_clock)


def _each(case: str, results: Sequence[Result]) -> list[list[object]]:
    rows: list[list[object]] = []
    for number, step in enumerate(steps(results)):
        unit, repeat = step.metric.unit, step.repeat
        codes = ", ".join(raised.code for raised in step.result.warnings if raised.severity in "AB")
        rows.append(
            [
                *(f"`{case}`", number, _clocks([step.result]), format_quantity(step.metric.value, unit)),
                f"{format_quantity(repeat.low, unit)} to {format_quantity(repeat.high, unit)}",
                f"{repeat.based_on.runs} runs, {repeat.based_on.jobs} jobs",
                format_quantity(step.next_value, unit),
                *("yes" if step.held else "**no**", codes or "–"),
            ]
        )
    return rows


def _clocks(results: Sequence[Result]) -> str:
    known = [clock_hz for result in results if (metric := headline_metric(result)) if (clock_hz := _clock(metric))]
    if not known:
        return "–"
    low, high = f"{min(known) / 1e9:.2f}", f"{max(known) / 1e9:.2f}"
    return f"{low} GHz" if low == high else f"{low} to {high} GHz"


def _clock(metric: Metric) -> float | None:
    return metric.repeat.clock_hz if metric.repeat else None


def _share(held: Sequence[bool]) -> str:
    return f"{sum(held)} of {len(held)}, {share(sum(held), len(held))}" if held else "–"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"

"""False alarms: how often is a clean run warned of? The same jobs again and again on an idle machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from benchmarks.files import Spec
from benchmarks.kept import Answer, Kept, answers, so_far
from benchmarks.report import prose, table, write
from dyno.measure.statistics import wilson_interval
from dyno.measure.warnings import CODES
from dyno.result import Result

STATE = Path("build") / "alarms"
JOBS = 50  # of each workload
PARAMS: dict[str, dict[str, JsonValue]] = {
    "matmul": {"n": 1024, "repeats": 5},
    "mnist_cnn": {"train_samples": 2048, "batch_size": 256, "epochs": 1},
}
AIM = {"A": 0.0, "B": 0.05}
_OF = {severity: {code for code, (of, _) in CODES.items() if of == severity} for severity in "ABC"}
CLASSES = {"any of A": _OF["A"], "any of B": _OF["B"], "B but NOISY": _OF["B"] - {"NOISY"}, "any of C": _OF["C"]}


def main(jobs: int = JOBS, state: Path = STATE) -> None:
    wanted, kept, found = specs(jobs), Kept(state), dict[str, Answer]()
    try:
        found.update(answers(wanted, kept))
    finally:  # also when it is ended by Ctrl-C
        of_all = so_far(wanted, found, kept)
        by_workload = {
            workload: [answer.result for name, answer in of_all.items() if name.startswith(workload) and answer.result]
            for workload in PARAMS
        }
        write("alarms", "False alarms on clean runs", lines({name: of for name, of in by_workload.items() if of}))


def specs(jobs: int) -> dict[str, Spec]:
    """By "<workload>.<number>", in turns."""
    return {
        f"{workload}.{number:02}": {"workload": workload, "params": params, "device": "cpu"}
        for number in range(jobs)
        for workload, params in PARAMS.items()
    }


def lines(found: Mapping[str, Sequence[Result]]) -> list[str]:
    text = f"""Jobs with the default method, five processes each, of the same work on a machine that does nothing else.
        A warning of class A or B is then a false alarm, unless the machine did disturb: the evidence is in the results.
        NOISY says no more than the interval beside the figure, so class B is counted without it too. Counted are jobs,
        not runs; intervals are Wilson's, 95 %. Aim: class A {AIM["A"]:.0%}, class B at most {AIM["B"]:.0%} of the jobs.
        Class C is true of this work and no alarm."""
    by_class = [[f"`{name}`", len(of), *(_any(of, codes) for codes in CLASSES.values())] for name, of in found.items()]
    by_code = [[f"`{name}`", *row] for name, of in found.items() for row in _by_code(of)]
    verdicts = [f"- `{name}`: {_verdicts(of)}" for name, of in found.items()]
    return [
        *prose(text),
        *table(("workload", "jobs", *CLASSES), by_class),
        *table(("workload", "code", "class", "jobs that raised it"), by_code),
        *verdicts,
    ]


def _any(results: Sequence[Result], codes: Collection[str]) -> str:
    return _share(sum(any(raised.code in codes for raised in result.warnings) for result in results), len(results))


def _by_code(results: Sequence[Result]) -> list[list[str]]:
    """In the order of the table of codes, the gravest first."""
    raised = Counter(warning.code for result in results for warning in result.warnings)
    return [[f"`{code}`", CODES[code][0], _share(raised[code], len(results))] for code in CODES if raised[code]]


def _verdicts(results: Sequence[Result]) -> str:
    counted = Counter(str(result.verdict) for result in results)
    unchecked = sorted({code for result in results for code in result.unchecked})
    said = ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common())
    return f"{said}; not checked: {', '.join(unchecked) or 'nothing'}"


def _share(hits: int, trials: int) -> str:
    interval = wilson_interval(hits, trials)
    return f"{hits} of {trials}, {interval.value:.0%} [{interval.low:.1%} to {interval.high:.1%}]"


if __name__ == "__main__":
    main()

"""False alarms: how often is a clean run warned of? The same jobs again and again on an idle machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from benchmarks.files import Spec
from benchmarks.kept import Answer, Kept, answers, made_here, so_far
from benchmarks.quiet import QUIET, moved
from benchmarks.report import prose, table, write
from dyno.measure.statistics import wilson_interval
from dyno.measure.warning_codes import CODES
from dyno.models.result import Result

STATE = Path("build") / "alarms"
JOBS = 50  # of each case, where it isn't said otherwise
MNIST: dict[str, JsonValue] = {"train_samples": 2048, "batch_size": 256, "epochs": 1}
CASES: dict[str, Spec] = {
    "matmul": {"workload": "matmul", "params": {"n": 1024, "repeats": 5}},
    "mnist_cnn": {"workload": "mnist_cnn", "params": MNIST, "measure": {"target_rel_ci": 0.02}},
    "mnist_cnn to 1 %": {"workload": "mnist_cnn", "params": MNIST},  # a minute each, and always the same answer
}
FEWER = {"mnist_cnn to 1 %": 8}
AIM = {"A": 0.0, "B": 0.05}
_OF = {severity: {code for code, row in CODES.items() if row.severity == severity} for severity in "ABC"}
_TRUE = {"NOISY", "NOISY_NEIGHBOUR"}  # what the interval says too, and what the host's own counters say
CLASSES = {"any of A": _OF["A"], "any of B": _OF["B"], "other of B": _OF["B"] - _TRUE, "any of C": _OF["C"]}


def main(jobs: int = JOBS, state: Path = STATE) -> None:
    wanted, kept, found = specs(jobs), Kept(state), dict[str, Answer]()
    try:
        found.update(answers(wanted, kept, stands=made_here))
    finally:  # also when it is ended by Ctrl-C
        of_all = so_far(wanted, found, kept, made_here)
        by_case = {
            case: [answer.result for name, answer in of_all.items() if name.startswith(f"{case}.") and answer.result]
            for case in CASES
        }
        write("alarms", "False alarms on clean runs", lines({name: of for name, of in by_case.items() if of}))


def specs(jobs: int) -> dict[str, Spec]:
    """By "<case>.<number>", in turns."""
    return {
        f"{case}.{number:02}": {**spec, "device": "cpu"}
        for number in range(jobs)
        for case, spec in CASES.items()
        if number < FEWER.get(case, jobs)
    }


def lines(found: Mapping[str, Sequence[Result]]) -> list[str]:
    text = f"""Jobs of five processes each, again and again the same work on a machine that has nothing else to do but,
        now and then, a command of its owner's. Asked for is ±1 %, the default, of `mnist_cnn` ±2 %: it scatters by more
        than 1 % from second to second here, as the third row shows, and a run that is asked for more than there is has
        no steady state.
        A warning of class A or B is then a false alarm, unless the machine did disturb: the evidence is in the results.
        NOISY says no more than the interval beside the figure, and NOISY_NEIGHBOUR what the kernel counted of others on
        the same cores, so *other of B* leaves out these two. Counted are jobs, not runs; intervals are Wilson's, 95 %.
        *Quiet*: of those alone whose runs' measured clocks lie within {QUIET:.0%} of each other. A host that gives its
        others less or more in the middle of a job is what these warnings are for.
        Aim: class A {AIM["A"]:.0%}, class B at most {AIM["B"]:.0%} of the jobs.
        Class C is true of this work and no alarm."""
    by_class = [row for name, of in found.items() for row in _by_class(name, of)]
    by_code = [[f"`{name}`", *row] for name, of in found.items() for row in _by_code(of)]
    verdicts = [f"- `{name}`: {_verdicts(of)}" for name, of in found.items()]
    return [
        *prose(text),
        *table(("case", "jobs", *CLASSES), by_class),
        *table(("case", "code", "class", "jobs that raised it"), by_code),
        *verdicts,
    ]


def _by_class(name: str, results: Sequence[Result]) -> list[list[object]]:
    """Of all, and of those that the machine left alone."""
    quiet = [result for result in results if moved([run.clock_hz for run in result.runs]) <= QUIET]
    return [
        [title, len(of), *(_any(of, codes) for codes in CLASSES.values())]
        for title, of in ((f"`{name}`", results), (f"`{name}`, quiet", quiet))
        if of
    ]


def _any(results: Sequence[Result], codes: Collection[str]) -> str:
    return _share(sum(any(raised.code in codes for raised in result.warnings) for result in results), len(results))


def _by_code(results: Sequence[Result]) -> list[list[str]]:
    """In the order of the table of codes, the gravest first."""
    raised = Counter(warning.code for result in results for warning in result.warnings)
    return [[f"`{code}`", CODES[code].severity, _share(raised[code], len(results))] for code in CODES if raised[code]]


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

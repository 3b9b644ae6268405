"""The same jobs again and again on an idle machine: how often is a clean run warned of, and do the figures agree?

Then default jobs under conditions that spoil a measurement: does the verdict tell? Writes alarms.md and
repeatability.md.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from benchmarks import conditions
from benchmarks.files import Spec
from benchmarks.jobs import QUIET, Answer, KeptJobs, clock_spread, headline, made_here, run_all
from benchmarks.pairs import holds, share
from benchmarks.report import prose, table, write
from dyno.formatting import format_quantity
from dyno.measure.statistics import Interval, median
from dyno.measure.warning_codes import CODES
from dyno.models.result import Result, Verdict
from dyno.workloads import registry

STATE = Path("build") / "alarms"
JOBS = 50  # of each case, unless FEWER has it
MATMUL: Spec = {"workload": "matmul", "params": {"n": 1024, "repeats": 5}}
MNIST: Spec = {"workload": "mnist_cnn", "params": {"train_samples": 2048, "batch_size": 256, "epochs": 1}}
CASES: dict[str, Spec] = {
    "matmul": MATMUL,
    "mnist_cnn": {**MNIST, "measure": {"target_rel_ci": 0.02}},
    "mnist_cnn without a target": MNIST,
    "matmul, 5 to 30 processes": {**MATMUL, "measure": {"processes": {"min": 5, "max": 30}}},  # aims at 1 %
}
FEWER = {"mnist_cnn without a target": 8, "matmul, 5 to 30 processes": 5}
DISTURBED = 20  # default jobs of each workload under each condition
WORKLOADS = ("matmul", "mnist_cnn", "imdb_lstm", "cifar10_cnn")
STEPS = (0.95, 0.9, 0.8)  # clock after the step, as a share of that before
AIM = {"A": 0.0, "B": 0.05}
TRUSTED_AIM = 0.8
HOLDING_AIM, WIDTH_AIM = 0.8, 0.02
_OF = {severity: {code for code, row in CODES.items() if row.severity == severity} for severity in "ABC"}
# The interval says the first, the host's own counters the second.
_TRUE = {"TARGET_MISSED", "NOISY_NEIGHBOUR"}
CLASSES = {"any of A": _OF["A"], "any of B": _OF["B"], "other of B": _OF["B"] - _TRUE, "any of C": _OF["C"]}

Taken = Mapping[str, Sequence[Answer]]  # by case, in the order in which they ran


def main(
    jobs: int = JOBS, cases: Collection[str] = tuple(CASES), folder: Path = STATE, disturbed: int = DISTURBED
) -> None:
    wanted, kept = specs(jobs, cases) | conditioned_specs(disturbed), KeptJobs(folder, made_here)

    def publish(found: Mapping[str, object]) -> None:
        taken: dict[str, list[Answer]] = {}
        for name, answer in kept.so_far(wanted, {}).items():
            if answer.result is not None:
                taken.setdefault(name.rpartition(".")[0], []).append(answer)
        clean = {case: of for case, of in taken.items() if case in CASES}
        write("alarms", "Does the verdict tell?", [*verdict_lines(taken), *alarm_lines(clean)])
        write("repeatability", "The same spec again and again", repeatability_lines(clean))

    run_all(wanted, kept, publish, _condition)


def _condition(name: str) -> AbstractContextManager[None]:
    """What is beside the job of this name."""
    case = name.rpartition(".")[0]
    return conditions.CONDITIONS[case.rpartition(", ")[2]]() if case not in CASES else nullcontext()


def conditioned_specs(jobs: int) -> dict[str, Spec]:
    """Default jobs by "<workload>, <condition>.<number>", in turns."""
    return {
        f"{workload}, {condition}.{number:02}": {
            "workload": workload,
            "params": dict(registry()[workload].bench),
            "device": "cpu",
        }
        for number in range(jobs)
        for workload in WORKLOADS
        for condition in conditions.CONDITIONS
    }


def verdict_lines(taken: Taken) -> list[str]:
    text = f"""Default jobs of four workloads in turns, each under one condition. *Quiet*: the machine as it is. *Clock
        step*: no clock can be lowered here, so the quiet results are replayed with a clock that falls to a share of
        itself after one of the runs, and figures that follow it as recorded (elasticity
        {conditions.ELASTICITY["matmul"]} for `matmul`, {conditions.ELASTICITY_ELSEWHERE} for the others). *Warned*:
        with a warning of class A or B. Intervals are Wilson's, 95 %. Aim: at least {TRUSTED_AIM:.0%} of the quiet jobs
        `trusted`, none of the others."""
    rows = [
        _verdict_row(workload, condition, [answer.result for answer in of if answer.result is not None])
        for condition in conditions.CONDITIONS
        for workload in WORKLOADS
        if (of := taken.get(f"{workload}, {condition}"))
    ]
    rows += [
        _step_row(workload, factor, [answer.result for answer in of if answer.result is not None])
        for factor in STEPS
        for workload in WORKLOADS
        if (of := taken.get(f"{workload}, quiet"))
    ]
    return [*prose(text), *table(("condition", "workload", "jobs", "`trusted`", "warned", "codes of A and B"), rows)]


def _verdict_row(workload: str, condition: str, results: Sequence[Result]) -> list[object]:
    grave = [{raised.code for raised in result.warnings if raised.severity != "C"} for result in results]
    trusted = sum(result.verdict is Verdict.TRUSTED for result in results)
    counted = Counter(code for codes in grave for code in codes)
    said = ", ".join(f"{code} {count}" for code, count in counted.most_common()) or "–"
    return [condition, f"`{workload}`", len(results), _of(trusted, results), _of(sum(map(bool, grave)), results), said]


def _step_row(workload: str, factor: float, results: Sequence[Result]) -> list[object]:
    """The step is after each run in turn."""
    results = [result for result in results if len(result.runs) > 1]
    steps = [(result, 1 + number % (len(result.runs) - 1)) for number, result in enumerate(results)]
    raised = [conditions.with_clock_step(result, at, factor) is not None for result, at in steps]
    grave = [any(each.severity != "C" for each in result.warnings) for result in results]
    trusted = sum(
        result.verdict is Verdict.TRUSTED and not drifts for result, drifts in zip(results, raised, strict=True)
    )
    warned = sum(drifts or before for drifts, before in zip(raised, grave, strict=True))
    said = f"CLOCK_DRIFT {sum(raised)}"
    return [
        f"clock step to {factor:.0%}, replayed",
        *(f"`{workload}`", len(results), _of(trusted, results), _of(warned, results), said),
    ]


def _of(hits: int, results: Sequence[Result]) -> str:
    return f"{hits} of {len(results)}, {share(hits, len(results))}"


def specs(jobs: int, cases: Collection[str] = tuple(CASES)) -> dict[str, Spec]:
    """By "<case>.<number>", in turns."""
    return {
        f"{case}.{number:02}": {**CASES[case], "device": "cpu"}
        for number in range(jobs)
        for case in cases
        if number < FEWER.get(case, jobs)
    }


def alarm_lines(taken: Taken) -> list[str]:
    found = {case: [answer.result for answer in of if answer.result is not None] for case, of in taken.items()}
    text = f"""Jobs of five processes each, again and again the same work on an otherwise idle machine. `mnist_cnn` has
        a target of ±2 %, but none in the third row. A warning of class A or B is then a false alarm, unless the machine
        did disturb: the evidence is in the results. *Other of B* leaves out TARGET_MISSED, which says no more than the
        interval, and NOISY_NEIGHBOUR, which the kernel counted. Counted are jobs, not runs; intervals are Wilson's,
        95 %. *Quiet*: of those alone whose runs' measured clocks lie within {QUIET:.0%} of each other. Aim: class A
        {AIM["A"]:.0%}, class B at most {AIM["B"]:.0%} of the jobs. Class C is true of this work and no alarm."""
    by_code = [[f"`{name}`", *row] for name, of in found.items() for row in _by_code(of)]
    return [
        *("## False alarms on clean runs", ""),
        *prose(text),
        *table(("case", "jobs", *CLASSES), [row for name, of in found.items() for row in _by_class(name, of)]),
        *table(("case", "code", "class", "jobs that raised it"), by_code),
        *(f"- `{name}`: {_verdicts(of)}" for name, of in found.items()),
    ]


def _by_class(name: str, results: Sequence[Result]) -> list[list[object]]:
    quiet = [result for result in results if clock_spread(run.clock_hz for run in result.runs) <= QUIET]
    return [
        [title, len(of), *(_raised(of, codes) for codes in CLASSES.values())]
        for title, of in ((f"`{name}`", results), (f"`{name}`, quiet", quiet))
        if of
    ]


def _by_code(results: Sequence[Result]) -> list[list[str]]:
    """In the order of the table of codes, the gravest first."""
    raised = {warning.code for result in results for warning in result.warnings}
    return [[f"`{code}`", CODES[code].severity, _raised(results, {code})] for code in CODES if code in raised]


def _raised(results: Sequence[Result], codes: Collection[str]) -> str:
    hits = sum(any(raised.code in codes for raised in result.warnings) for result in results)
    return _of(hits, results)


def _verdicts(results: Sequence[Result]) -> str:
    counted = Counter(str(result.verdict) for result in results)
    unchecked = sorted({code for result in results for code in result.unchecked})
    said = ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common())
    return f"{said}; not checked: {', '.join(unchecked) or 'nothing'}"


def repeatability_lines(taken: Taken) -> list[str]:
    text = f"""The jobs of [alarms.md](alarms.md), whose intervals should agree with each other. *Holding*: intervals
        (95 %, Student's t) that hold the mean of all values of that case; {HOLDING_AIM:.0%} is the aim, with a median
        half-width of {WIDTH_AIM:.0%} at most. *Took*: from submit to result. *Clock*: from the slowest job to the
        fastest, of the means of what Dyno measured after each run. Where it moved by more than {QUIET:.0%}, so did the
        speed, and no interval of one job can know what the next one will find."""
    head = ("case", "jobs", "mean", "clock", "holding", "half-width", "processes", "took")
    return [*prose(text), *table(head, [_agreement(case, of) for case, of in taken.items()])]


def _agreement(case: str, answers: Sequence[Answer]) -> list[object]:
    results = [answer.result for answer in answers if answer.result is not None]
    metrics = [headline(result) for result in results]
    intervals = [Interval(each.value, each.low, each.high) for each in metrics if each.value is not None]
    clocks_hz = [clock_hz for result in results if (clock_hz := _mean_clock_hz(result)) is not None]
    widths = [each.rel_half_width or 0.0 for each in intervals]
    mean = statistics.fmean(each.value for each in intervals)
    return [
        *(f"`{case}`", len(intervals), format_quantity(mean, metrics[0].unit), _clock(clocks_hz)),
        f"**{sum(holds(each, mean) for each in intervals)} of {len(intervals)}**",
        f"**±{median(widths):.2%}** (worst ±{max(widths):.2%})",
        f"{median([each.runs for each in metrics]):g}",
        f"{median([answer.took_s for answer in answers if answer.took_s is not None]):.0f} s",
    ]


def _mean_clock_hz(result: Result) -> float | None:
    clocks_hz = [run.clock_hz for run in result.runs if run.clock_hz is not None]
    return statistics.fmean(clocks_hz) if clocks_hz else None


def _clock(clocks_hz: Sequence[float]) -> str:
    if not clocks_hz:
        return "–"
    by = clock_spread(clocks_hz)
    quiet = ", quiet" if by <= QUIET else ""
    return f"{min(clocks_hz) / 1e9:.2f} to {max(clocks_hz) / 1e9:.2f} GHz ({by:.1%}{quiet})"

"""Jobs, results, comparisons, sweeps and lists for people, in a terminal.

Tables never truncate or split a word, since people copy ids out of them.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import JsonValue
from rich.console import Console
from rich.measure import Measurement, measure_renderables
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dyno import tables
from dyno.bench.measure.warning_codes import CODES
from dyno.bench.measure.warnings import MIN_PROCESSES
from dyno.formatting import describe_schema, format_duration, format_quantity, ratio_in_words
from dyno.models import inventory, webhook
from dyno.models.api_key import ApiKey
from dyno.models.baseline import Baseline
from dyno.models.comparison import Compared, Comparison, Ratio, result_names
from dyno.models.device import PeakFigure
from dyno.models.job import BaselineOutcome, Holder, Job
from dyno.models.job import Progress as JobProgress
from dyno.models.job_schedule import JobSchedule
from dyno.models.processor_names import device_name, model_name, model_names
from dyno.models.result import Artifact, BudgetUse, Metric, Result, ResultWarning, Training, Verdict
from dyno.models.sweep import PARAM, Sweep, SweepSummary

Cells = Sequence[str | None]


def print_table(console: Console, headings: Sequence[str], rows: Iterable[Cells], title: str | None = None) -> None:
    """Print a table as wide as its longest lines. In a pipe or a file, each row is therefore one line.

    A terminal's table wraps between words. If it still doesn't fit, each cell is printed on its own line. Cells
    contain no markup.
    """
    texts = [[Text(cell or "") for cell in row] for row in rows]
    unlimited = console.options.update(width=sys.maxsize)
    table = Table(title=None if title is None else Text(title))
    for heading, *cells in zip(map(Text, headings), *texts, strict=True):
        longest = measure_renderables(console, unlimited, [heading, *cells])
        is_word = longest.minimum == longest.maximum
        table.add_column(heading, min_width=longest.minimum, no_wrap=is_word)
    for row in texts:
        table.add_row(*row)
    natural = Measurement.get(console, unlimited, table)
    if not console.is_terminal:
        table.width = natural.maximum
    elif max(natural.minimum, _width(console, table)) > console.width:
        return _as_lines(console, headings, texts, title)
    console.print(table, crop=False)


def _width(console: Console, table: Table) -> int:
    return max(map(Segment.get_line_length, Segment.split_lines(console.render(table))))


def _as_lines(console: Console, headings: Sequence[str], rows: Iterable[Sequence[Text]], title: str | None) -> None:
    """Print each cell on a line. The terminal wraps long lines itself, so copied text stays whole."""
    if title is not None:
        console.print(Text(title), soft_wrap=True)
    width = max(map(len, headings))
    for row in rows:
        for heading, cell in zip(headings, row, strict=True):
            if cell:
                console.print(Text(f"{heading:<{width}}  {cell}"), soft_wrap=True)
        console.print()


@contextmanager
def live_progress(console: Console) -> Iterator[Callable[[Job], None]]:
    """A callback for `Client.wait`: in a terminal the job's id and a live bar, else one line per status and phase."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bars:
            bar, printed = bars.add_task("", total=1.0), set[str]()

            def follow(job: Job) -> None:
                if job.id not in printed:
                    printed.add(job.id)
                    bars.console.print(job.id, highlight=False)
                _name_once(bars.console, job.queue.held_by, printed)
                bars.update(bar, description=_where(job), completed=_fraction(job))

            yield follow
    else:
        yield _lines(console)


@contextmanager
def live_runs(console: Console) -> Iterator[Callable[[JobProgress], None]]:
    """As `live_progress`, for runs without a job."""
    if not console.is_terminal:
        say = _new_lines(console)
        yield lambda now: say(_run(now, detail=False))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("starting", total=1.0)
        yield lambda now: bars.update(bar, description=_run(now), completed=now.fraction or 0.0)


def _lines(console: Console) -> Callable[[Job], None]:
    say = _new_lines(console)
    return lambda job: say(f"{job.id} {_where(job, detail=False)}")


def _new_lines(console: Console) -> Callable[[str], None]:
    """Print a line unless it is the same as the last one."""
    last: list[str] = [""]

    def say(line: str) -> None:
        if line != last[0]:
            last[0] = line
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    return say


def _where(job: Job, *, detail: bool = True) -> str:
    """`detail`: include what changes too often for a line of its own, such as the remaining time."""
    now, queue = job.progress, job.queue
    if job.status == "queued":
        held_by = f": {queue.held_by}" if queue.held_by and not detail else ""
        begins = f", begins in about {format_duration(queue.eta_s)}" if detail and queue.eta_s is not None else ""
        return f"queued for {queue.name}{held_by}{begins}"
    if now is None or job.done:
        return str(job.status)
    return f"{job.status}: {_run(now, detail=detail)}"


def _run(now: JobProgress, *, detail: bool = True) -> str:
    line = f"run {now.run} of {now.runs}, {now.phase}"
    if not detail:
        return line
    done = f" {now.completed}" + (f"/{now.total}" if now.total else "") + f" {now.unit}" if now.completed else ""
    return line + done + (f", about {format_duration(now.eta_s)} left" if now.eta_s is not None else "")


def _fraction(job: Job) -> float:
    if job.done:
        return 1.0
    return (job.progress.fraction if job.progress else None) or 0.0


_COLOURS = {"trusted": "green", "indicative": "yellow", "untrusted": "red"}


def result(console: Console, answer: Result, more: str | None = None) -> None:
    """Print a result. `more`: the command that prints all of it; then only the headline, the verdict and what to do."""
    if more is None:
        return _whole_result(console, answer)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    say(f"{answer.workload} on {device_name(answer.device)} ({answer.device.get('id')})")
    say(_headline(answer))
    _listing(console, answer)
    if answer.training and answer.training.accuracy is not None:
        say(_accuracy_line(answer.training))
    if answer.baseline:
        _baseline_outcome(console, answer.baseline)
    why = "" if answer.verdict is Verdict.TRUSTED else reasons(answer)
    _verdict(console, answer, f" ({why})" if why else "")
    for warning in [candidate for candidate in answer.warnings if candidate.severity != "C"][:1]:
        say(f"  {warning.message}")
        _what_to_do(console, warning)
    say(f"job: {answer.job}" + (f", with all figures: {more}" if more else ""))


def _listing(console: Console, answer: Result) -> None:
    """Print what a workload found out in words, such as the facts of `device_info`."""
    lines = answer.details.get("listing")
    for line in lines if isinstance(lines, list) else []:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def reasons(answer: Result) -> str:
    """Why the verdict isn't higher."""
    codes = [raised.code for raised in answer.warnings if raised.severity in "AB"]
    return ", ".join(codes + [f"{code} unchecked" for code in answer.unchecked] + _too_few_runs(answer))


def _too_few_runs(answer: Result) -> list[str]:
    return ["fewer than five runs"] if len(answer.runs) < MIN_PROCESSES else []


def _what_to_do(console: Console, warning: ResultWarning) -> None:
    if warning.code in CODES:
        advice = " ".join(CODES[warning.code].do.split())
        console.print(f"  {advice}", markup=False, highlight=False, soft_wrap=True)


def _unchecked(answer: Result) -> str:
    """The codes that weren't checked, with the reasons that the runs gave."""
    reasons = answer.details.get("unchecked_reasons")
    by_code = reasons if isinstance(reasons, dict) else {}
    return ", ".join(f"{code} ({by_code[code]})" if code in by_code else code for code in answer.unchecked)


def _headline(answer: Result) -> str:
    """Such as `throughput 435.2 GFLOP/s (±0.9%), next one 425.5 GFLOP/s to 445.3 GFLOP/s, 84.2% of peak`."""
    metric = answer.headline
    if metric is None:
        return "no metrics"
    half = f" ({share})" if (share := _half_width(metric)) else ""
    parts = [f"{metric.name} {format_quantity(metric.value, metric.unit)}{half}"]
    if metric.repeat:
        low, high = (format_quantity(bound, metric.unit) for bound in (metric.repeat.low, metric.repeat.high))
        parts.append(f"next one {low} to {high}")
    elif metric.repeat_reason:
        parts.append("next one not known yet")
    if answer.peak.fraction is not None:
        parts.append(f"{answer.peak.fraction:.1%} of peak")
    return ", ".join(parts)


def _verdict(console: Console, answer: Result, reasons: str = "") -> None:
    colour = _COLOURS[answer.verdict]
    console.print(f"verdict: [{colour}]{answer.verdict}[/{colour}]{reasons}", highlight=False, soft_wrap=True)


def _whole_result(console: Console, answer: Result) -> None:
    """Metrics with their intervals, peak, phases, training, verdict and its reasons."""
    title = f"{answer.workload} on {device_name(answer.device)} ({answer.device.get('id')})"
    print_table(
        console, ("metric", "value", "95 % interval", "runs", "samples"), map(_metric_cells, answer.metrics), title
    )
    _listing(console, answer)
    console.print(f"job: {answer.job}", highlight=False)
    if (next_result := _repeat_line(answer)) is not None:
        console.print(next_result, markup=False, highlight=False)
    if answer.baseline:
        _baseline_outcome(console, answer.baseline)
    console.print(_peak_line(answer), markup=False, highlight=False)
    console.print(_phases_line(answer), markup=False, highlight=False)
    if answer.measurement.budget:
        console.print(_budget_line(answer.measurement.budget), markup=False, highlight=False)
    if answer.precision:
        console.print(f"precision: {answer.precision.in_words}", markup=False, highlight=False)
    if answer.training:
        _training(console, answer.training)
    _verdict(console, answer, "".join(f" ({why})" for why in _too_few_runs(answer)))
    for warning in answer.warnings:
        console.print(f"  {warning.severity} {warning.code}: {warning.message}", markup=False, highlight=False)
        if warning.severity != "C":
            _what_to_do(console, warning)
    if answer.unchecked:
        console.print(f"  unchecked: {_unchecked(answer)}", style="dim", markup=False, highlight=False)


def _budget_line(budget: BudgetUse) -> str:
    """Such as `budget: 9 runs in 14.6 s of 15 s; 60 s: about ±0.9%`."""
    larger = (f"{use.budget_s:g} s: about ±{use.rel_half_width:.1%}" for use in budget.larger)
    return "; ".join([f"budget: {budget.runs} runs in {budget.spent_s:.3g} s of {budget.budget_s:g} s", *larger])


def _baseline_outcome(console: Console, outcome: BaselineOutcome) -> None:
    """Print the ratio and the outcome; why it is inconclusive; and what else differs."""
    bounds = "" if outcome.low is None or outcome.high is None else f" ({outcome.low:.4g} to {outcome.high:.4g})"
    measured = outcome.ratio_as_measured
    plain = f", {measured:.4g} as measured" if measured is not None and measured != outcome.ratio else ""
    ratio = "" if outcome.ratio is None else f": {outcome.ratio:.4g} times as good{bounds}{plain}"
    reason = f"; {outcome.reason}" if outcome.reason else ""
    console.print(f"baseline {outcome.name}: {outcome.outcome}{ratio}{reason}", markup=False, highlight=False)
    for difference in outcome.differences:
        values = " | ".join(map(_plain, model_names([difference.baseline, difference.job])))
        console.print(f"  differs: {difference.field}: {values}", markup=False, highlight=False)


def baselines(console: Console, rows: Sequence[Baseline]) -> None:
    """Print baselines with the figures that jobs are compared with."""
    print_table(console, ("name", "metric", "figure or limit", "margin", "job", "device"), map(_baseline_cells, rows))


def _baseline_cells(row: Baseline) -> tuple[str, ...]:
    if row.figure is None:
        limit = f"at least {row.at_least:.4g}" if row.at_least is not None else f"at most {row.at_most or 0:.4g}"
        return row.name, row.metric, limit, "–", "–", "–"
    model = row.figure.circumstances.get("/device/model") or row.figure.circumstances.get("/device/id")
    value = format_quantity(row.figure.value, row.unit or "")
    return row.name, row.metric, value, f"{100 * row.margin:g} %", row.job or "–", model_name(str(model))


def comparison(console: Console, answer: Comparison) -> None:
    """Print the ratios to the base in a table and as sentences, what differs, warnings and caveats."""
    of_ratio = (ratio_in_words(answer.unit), f"{100 * answer.confidence:g} % interval", "verdict", "smallest effect")
    headings = ("job", "device", "value", *of_ratio, "result")
    title = f"{answer.workload}: {answer.metric}, {answer.better} is better"
    print_table(console, headings, (_compared_cells(row, answer.unit) for row in answer.results), title)
    for sentence in _speed_ups(answer):
        console.print(sentence, markup=False, highlight=False)
    console.print(f"same work: {'yes' if answer.same_work else 'no'}", highlight=False)
    console.print(f"comparison: {answer.id}" + (f", by {answer.job}" if answer.job else ""), highlight=False)
    if answer.control is not None:
        console.print(f"control, the first against itself: {_ratio(answer.control)}", highlight=False)
    for difference in answer.differences:
        values = " | ".join(map(_plain, model_names(difference.values)))
        console.print(f"differs: {difference.field}: {values}", markup=False, highlight=False)
    for warning in answer.warnings:
        console.print(f"{warning.severity} {warning.code}: {warning.message}", markup=False, highlight=False)
    for note in answer.notes:
        console.print(note, style="dim", markup=False, highlight=False)


def _plain(value: JsonValue) -> str:
    """A value that differs, as JSON. Text has no quotes, and a missing value is "–"."""
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)


def _speed_ups(answer: Comparison) -> Iterator[str]:
    """A sentence for each result but the base, such as "H200: 29 times as fast as EPYC (28.5 to 29.6), FASTER"."""
    names = result_names(answer)
    for name, row in zip(names, answer.results, strict=True):
        if (ratio := row.ratio) is None:
            continue
        value = "–" if ratio.value is None else f"{ratio.value:.4g}"
        more = f"; about {ratio.more_runs} more runs of each would decide" if ratio.more_runs else ""
        said = f"{value} {ratio_in_words(answer.unit)} as {names[answer.base]}"
        yield f"{name}: {said} ({_bounds(ratio) or ratio.reason}){_as_measured(ratio)}, {ratio.verdict}{more}"


def _compared_cells(row: Compared, unit: str) -> tuple[str, ...]:
    columns = (
        row.arm or row.job,
        f"{model_name(row.device_model or row.device)}, {row.framework}",
        format_quantity(row.value, unit),
    )
    ratio = row.ratio
    if ratio is None:
        return *columns, "1", "–", "baseline", "–", row.verdict
    value = "–" if ratio.value is None else f"{ratio.value:.4g}"
    interval = _bounds(ratio) or ratio.reason or "–"
    effect = "–" if ratio.smallest_effect is None else f"{1 + ratio.smallest_effect:.4g} times"
    return *columns, value, interval, ratio.verdict, effect, row.verdict


def _as_measured(ratio: Ratio) -> str:
    """The ratio without the adjustment to one clock, if there is one."""
    plain = ratio.as_measured
    return "" if plain is None or plain == ratio.value else f", {plain:.4g} as measured"


def _bounds(ratio: Ratio) -> str | None:
    return None if ratio.low is None or ratio.high is None else f"{ratio.low:.4g} to {ratio.high:.4g}"


def _ratio(ratio: Ratio) -> str:
    value = "–" if ratio.value is None else f"{ratio.value:.4g}"
    return f"{value} times ({_bounds(ratio) or ratio.reason}), {ratio.verdict}"


def _metric_cells(metric: Metric) -> tuple[str, ...]:
    interval = metric.reason or "–"
    if half := _half_width(metric):
        interval = f"{format_quantity(metric.low, metric.unit)} to {format_quantity(metric.high, metric.unit)} ({half})"
    return metric.name, format_quantity(metric.value, metric.unit), interval, str(metric.runs), str(metric.samples)


def _half_width(metric: Metric) -> str | None:
    """The upper half of the interval, as the lower one may be truncated at zero: `±0.9%`."""
    if metric.low is None or metric.high is None or not metric.value:
        return None
    return f"±{(metric.high - metric.value) / abs(metric.value):.1%}"


def _repeat_line(answer: Result) -> str | None:
    """The prediction of the headline metric; the others are in the JSON."""
    metric = next((candidate for candidate in answer.metrics if candidate.repeat or candidate.repeat_reason), None)
    if metric is None or metric.repeat is None:
        return None if metric is None else f"next {metric.name}: {metric.repeat_reason}"
    repeat = metric.repeat
    low, high = format_quantity(repeat.low, metric.unit), format_quantity(repeat.high, metric.unit)
    jobs = f" and {repeat.based_on.jobs} earlier results" if repeat.based_on.jobs else ""
    return f"next {metric.name} (95 %): {low} to {high}, from {repeat.based_on.runs} runs{jobs}"


def _peak_line(answer: Result) -> str:
    peak = answer.peak
    if peak.fraction is None:
        return f"fraction of peak: unknown ({peak.reason})"
    return f"fraction of peak: {peak.fraction:.1%} of {format_quantity(peak.value, peak.unit)} ({peak.provenance})"


def _phases_line(answer: Result) -> str:
    phases = answer.phases.model_dump()
    durations = [
        f"{name.removesuffix('_s')} {format_quantity(value, 's')}"
        for name, value in phases.items()
        if value is not None
    ]
    return "phases: " + ", ".join(durations)


def _training(console: Console, training: Training) -> None:
    first, steady = training.epochs[:1], training.epochs[1:]
    for epoch in first:
        took = format_quantity(epoch.time_s, "s")
        console.print(f"first epoch {took} (with compilation), loss {epoch.loss:.3f}", highlight=False)
    if steady:
        times = ", ".join(format_quantity(epoch.time_s, "s") for epoch in steady)
        console.print(f"later epochs {times}, last loss {steady[-1].loss:.3f}", highlight=False)
    data = training.data
    if (reached := _to_accuracy(training)) is not None:
        console.print(reached, highlight=False)
    if training.accuracy is not None:
        console.print(_accuracy_line(training), highlight=False)
    for name, value in training.test.items():
        console.print(f"{name} {value:.4g} on the test set", highlight=False)
    for name, value in training.baselines.items():
        console.print(f"{name} {value:.4g} without training", highlight=False)
    console.print(f"data: {data.name}, {data.kind}", highlight=False)


def _accuracy_line(training: Training) -> str:
    interval = ""
    if training.accuracy_low is not None and training.accuracy_high is not None:
        interval = f" ({training.accuracy_low:.1%} to {training.accuracy_high:.1%})"
    samples = training.data.test_samples
    return f"accuracy {training.accuracy:.1%}{interval} on {samples:,} test samples{_wrong(training)}"


def _to_accuracy(training: Training) -> str | None:
    """What the trials needed to reach the target, if there is one."""
    if training.target_accuracy is None:
        return None
    needed = [
        "not reached"
        if trial.epochs_to_accuracy is None
        else f"{format_quantity(trial.time_to_accuracy_s, 's')} in {trial.epochs_to_accuracy} epochs"
        for trial in training.trials
    ]
    return f"to an accuracy of {training.target_accuracy:g}: {', '.join(needed)}"


def _wrong(training: Training) -> str:
    """The number of wrong samples, per trial if there are several."""
    by_trial = [str(trial.wrong) for trial in training.trials if trial.wrong is not None]
    if len(by_trial) > 1:
        return f", mean of {len(training.trials)} trials ({', '.join(by_trial)} wrong)"
    return "" if training.wrong is None else f", {training.wrong} wrong"


def jobs(console: Console, rows: Iterable[Job]) -> None:
    def cells(job: Job) -> Cells:
        where = job.worker.device if job.worker else job.queue.name
        return job.id, job.spec.workload, job.status, job.status_reason, where, _second(job.created_at)

    print_table(console, ("job", "workload", "status", "reason", "device", "created"), map(cells, rows))


@contextmanager
def sweep_progress(console: Console) -> Iterator[Callable[[Sweep, Holder | None], None]]:
    """A callback for each state of a sweep and for the process that holds its device: in a terminal a live bar, else a
    line each time that a job ends. Each holder is named once.
    """
    printed = set[str]()
    if not console.is_terminal:
        yield _sweep_lines(console, printed)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=1.0)

        def follow(now: Sweep, held_by: Holder | None) -> None:
            _name_once(bars.console, held_by, printed)
            total = now.counts["total"]
            bars.update(bar, description=_sweep_state(now), completed=_ended(now) / total)

        yield follow


def _name_once(console: Console, held_by: Holder | None, names: set[str]) -> None:
    if held_by is not None and (text := str(held_by)) not in names:
        names.add(text)
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _sweep_lines(console: Console, names: set[str]) -> Callable[[Sweep, Holder | None], None]:
    ended: list[int] = [-1]

    def say(now: Sweep, held_by: Holder | None) -> None:
        _name_once(console, held_by, names)
        if _ended(now) != ended[0]:
            ended[0] = _ended(now)
            console.print(_sweep_state(now), markup=False, highlight=False, soft_wrap=True)

    return say


def _ended(now: Sweep) -> int:
    return now.counts["total"] - now.counts.get("queued", 0) - now.counts.get("running", 0)


def _sweep_state(now: Sweep) -> str:
    left = f", about {format_duration(now.eta_s)} left" if now.eta_s and now.eta_s >= 1 else ""
    return f"{now.id} {_ended(now)} of {now.counts['total']} jobs done{left}"


def sweep(console: Console, answer: Sweep) -> None:
    """Print a row for each point."""
    title = f"{answer.workload}: {answer.metric}"
    print_table(console, tables.sweep_headings(answer), tables.sweep_cells(answer), title)
    for line in tables.sweep_conclusions(answer):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"sweep: {answer.id}, {answer.status}", highlight=False)


def sweeps(console: Console, rows: Iterable[SweepSummary]) -> None:
    def cells(row: SweepSummary) -> Cells:
        axes = " x ".join(f"{axis.removeprefix(PARAM)} ({len(values)})" for axis, values in row.axes.items())
        done = f"{row.counts.get('succeeded', 0)} of {row.counts['total']}"
        return row.id, row.workload, axes, row.status, done, _second(row.created_at)

    print_table(console, ("sweep", "workload", "axes", "status", "results", "created"), map(cells, rows))


def schedules(console: Console, rows: Iterable[JobSchedule]) -> None:
    def cells(row: JobSchedule) -> Cells:
        upcoming = _in_zone(row.next_firings[0], row.timezone) if row.next_firings else _why_not(row)
        last = row.firings[0] if row.firings else None
        outcome = None if last is None else last.job or last.code
        return row.name, row.cron, row.timezone, row.spec.workload, upcoming, outcome, str(row.missed_count)

    print_table(console, ("name", "cron", "time zone", "workload", "next", "last", "missed"), map(cells, rows))


def _why_not(row: JobSchedule) -> str:
    return f"stopped: {row.stopped.detail}" if row.stopped else "disabled"


def schedule(console: Console, row: JobSchedule) -> None:
    """Print a schedule with its next times, its last firings, and the times that it missed."""
    schedules(console, [row])
    for moment in row.next_firings[1:]:
        console.print(f"then: {_in_zone(moment, row.timezone)}", markup=False, highlight=False)
    if row.firings:
        fired = [
            (_in_zone(firing.due_at, row.timezone), firing.job or firing.code, firing.detail) for firing in row.firings
        ]
        print_table(console, ("fired for", "job or refusal", "reason"), fired)
    if row.missed:
        print_table(
            console, (f"missed, {row.missed_count} in all",), [(_in_zone(at, row.timezone),) for at in row.missed]
        )


def _in_zone(moment: datetime, timezone: str) -> str:
    """The time as the schedule's cron expression means it; in UTC if this host doesn't know the zone."""
    try:
        return moment.astimezone(ZoneInfo(timezone)).isoformat(" ", "seconds")
    except (KeyError, ValueError, OSError):
        return moment.astimezone(UTC).isoformat(" ", "seconds")


def artifacts(console: Console, rows: Iterable[Artifact]) -> None:
    print_table(console, ("file", "bytes", "SHA-256"), ((row.name, f"{row.bytes:,}", row.sha256) for row in rows))


def devices(console: Console, rows: Iterable[inventory.DeviceStatus | inventory.AwayDevice]) -> None:
    def cells(row: inventory.DeviceStatus | inventory.AwayDevice) -> Cells:
        state = f"{row.state}, cordoned" if row.cordoned else row.state
        if isinstance(row, inventory.AwayDevice):
            return row.full_id, None, state, None, None, None
        state += f", held by process {row.held_by.pid or 'unknown'}" if row.held_by else ""
        frameworks = ", ".join(f"{name} {version}" for name, version in row.frameworks.items())
        return row.id, row.called, state, _known_peak(row.peak), frameworks, row.started_with

    print_table(console, ("device", "model", "state", "peak", "frameworks", "started with"), map(cells, rows))


def workers(console: Console, rows: Iterable[inventory.WorkerRecord]) -> None:
    def cells(row: inventory.WorkerRecord) -> Cells:
        return row.id, row.device, row.state, row.job, row.version, _second(row.last_heartbeat)

    print_table(console, ("worker", "device", "state", "job", "version", "last heartbeat"), map(cells, rows))


def workloads(console: Console, rows: Iterable[inventory.WorkloadEntry]) -> None:
    cells = ((row.name, row.description, ", ".join(row.frameworks)) for row in rows)
    print_table(console, ("workload", "description", "frameworks"), cells)


def params(console: Console, name: str, description: str, schema: Mapping[str, Any]) -> None:
    """Print a workload's params as options of `dyno run`. `schema` is the JSON Schema of all params."""

    def cells(param: str, of: Mapping[str, Any]) -> Cells:
        default = json.dumps(of["default"]) if "default" in of else None
        return f"--{param.replace('_', '-')}", default, describe_schema(of, schema), of.get("description")

    console.print(f"{name}: {description}", markup=False, highlight=False, soft_wrap=True)
    properties = schema.get("properties", {}).items()
    print_table(console, ("option", "default", "values", "description"), (cells(*row) for row in properties))


def deliveries(console: Console, rows: Iterable[webhook.Delivery]) -> None:
    def cells(row: webhook.Delivery) -> Cells:
        ended = [attempt.ended for attempt in row.attempts if attempt.ended]
        last = f"{ended[-1].outcome} {ended[-1].status_code or ''}".rstrip() if ended else None
        return row.id, row.job, row.type, row.status, str(row.attempts_made), last, _second(row.next_attempt_at)

    headings = ("delivery", "job", "event", "status", "attempts", "last outcome", "next attempt")
    print_table(console, headings, map(cells, rows))


def keys(console: Console, rows: Iterable[ApiKey]) -> None:
    def cells(key: ApiKey) -> Cells:
        limits = ", ".join(f"{name} {value}" for name, value in key.limits.model_dump(exclude_none=True).items())
        scope = f"{key.scope}, high priority" if key.high_priority else key.scope
        used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
        ended = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else used
        until = f"{key.expires_at:%Y-%m-%d %H:%M}" if key.expires_at else "never"
        return key.id, key.prefix, key.name, scope, limits, f"{key.created_at:%Y-%m-%d}", until, ended

    headings = ("key", "prefix", "name", "scope", "limits", "created", "expires", "last used")
    print_table(console, headings, map(cells, rows))


def _second(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


def _known_peak(peaks: Mapping[str, PeakFigure]) -> str:
    """The float32 peak if known, or else the first known peak. A TPU's data sheet has no float32 figure."""
    peaks_known = [(dtype, figure) for dtype, figure in peaks.items() if figure.value]
    if not peaks_known:
        return format_quantity(None, "FLOP/s")
    dtype, figure = min(peaks_known, key=lambda peak: peak[0] != "float32")
    return f"{format_quantity(figure.value, figure.unit)} {dtype}"

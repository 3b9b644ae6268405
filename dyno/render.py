"""Jobs, results and comparisons for a person, in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from dyno.columns import show
from dyno.comparison import Compared, Comparison, Ratio
from dyno.job import Job
from dyno.quantity import quantity
from dyno.result import Metric, Result, Training


@contextmanager
def following(console: Console) -> Iterator[Callable[[Job], None]]:
    """A callback for `Client.wait`: in a terminal its id and a live bar, else one line per status and phase."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bars:
            bar, named = bars.add_task("", total=1.0), set[str]()

            def follow(job: Job) -> None:
                if job.id not in named:
                    named.add(job.id)
                    bars.console.print(job.id, highlight=False)
                if (held_by := str(job.queue.held_by or "")) not in named | {""}:
                    named.add(held_by)
                    bars.console.print(held_by, markup=False, highlight=False)
                bars.update(bar, description=_where(job), completed=_fraction(job))

            yield follow
    else:
        yield _lines(console)


def _lines(console: Console) -> Callable[[Job], None]:
    last: list[str] = [""]

    def say(job: Job) -> None:
        line = f"{job.id} {_where(job, detail=False)}"
        if line != last[0]:
            last[0] = line
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    return say


def _where(job: Job, *, detail: bool = True) -> str:
    now = job.progress
    if job.status == "queued":
        return f"queued in {job.queue.name}" + (f": {job.queue.held_by}" if job.queue.held_by and not detail else "")
    if now is None or job.done:
        return str(job.status)
    done = f" {now.completed}" + (f"/{now.total}" if now.total else "") + f" {now.unit}"
    return f"{job.status}: run {now.run} of {now.runs}, {now.phase}" + (done if detail and now.completed else "")


def _fraction(job: Job) -> float:
    if job.done:
        return 1.0
    return (job.progress.fraction if job.progress else None) or 0.0


def result(console: Console, answer: Result) -> None:
    """The whole answer: metrics with their intervals, peak, phases, training, verdict and its reasons."""
    title = f"{answer.workload} on {answer.device.get('model')} ({answer.device.get('id')})"
    show(console, ("metric", "value", "95 % interval", "runs", "samples"), map(_metric_cells, answer.metrics), title)
    console.print(f"job: {answer.job}", highlight=False)
    console.print(_peak_line(answer), markup=False, highlight=False)
    console.print(_phases_line(answer), markup=False, highlight=False)
    if answer.training:
        _training(console, answer.training)
    colour = {"trusted": "green", "indicative": "yellow", "untrusted": "red"}[answer.verdict]
    console.print(f"verdict: [{colour}]{answer.verdict}[/{colour}]", highlight=False)
    for warning in answer.warnings:
        console.print(f"  {warning.severity} {warning.code}: {warning.message}", markup=False, highlight=False)
    if answer.unchecked:
        console.print(f"  not checked yet, so never better than indicative: {', '.join(answer.unchecked)}", style="dim")


def comparison(console: Console, answer: Comparison) -> None:
    """Ratios to the first, what else differs, and what to know before believing it."""
    of_ratio = ("times as good", f"{100 * answer.confidence:g} % interval", "verdict", "would have shown")
    headings = ("job", "device", "value", *of_ratio, "result")
    title = f"{answer.workload}: {answer.metric}, {answer.better} is better"
    show(console, headings, (_compared_cells(row, answer.unit) for row in answer.results), title)
    console.print(f"comparison: {answer.id}" + (f", by {answer.job}" if answer.job else ""), highlight=False)
    if answer.control is not None:
        console.print(f"control, the first against itself: {_ratio(answer.control)}", highlight=False)
    for difference in answer.differences:
        values = " | ".join(str(value) for value in difference.values)
        console.print(f"differs: {difference.field}: {values}", markup=False, highlight=False)
    for warning in answer.warnings:
        console.print(f"{warning.severity} {warning.code}: {warning.message}", markup=False, highlight=False)
    for note in answer.notes:
        console.print(note, style="dim", markup=False, highlight=False)


def _compared_cells(row: Compared, unit: str) -> tuple[str, ...]:
    known = row.arm or row.job, f"{row.device_model or row.device}, {row.framework}", quantity(row.value, unit)
    ratio = row.ratio
    if ratio is None:
        return *known, "1", "–", "the first", "–", row.verdict
    value = "–" if ratio.value is None else f"{ratio.value:.4g}"
    interval = _bounds(ratio) or ratio.reason or "–"
    effect = "–" if ratio.smallest_effect is None else f"{1 + ratio.smallest_effect:.4g} times"
    return *known, value, interval, ratio.verdict, effect, row.verdict


def _bounds(ratio: Ratio) -> str | None:
    return None if ratio.low is None or ratio.high is None else f"{ratio.low:.4g} to {ratio.high:.4g}"


def _ratio(ratio: Ratio) -> str:
    value = "–" if ratio.value is None else f"{ratio.value:.4g}"
    return f"{value} times ({_bounds(ratio) or ratio.reason}), {ratio.verdict}"


def _metric_cells(metric: Metric) -> tuple[str, ...]:
    interval = metric.reason or "–"
    if metric.low is not None and metric.high is not None and metric.value:
        half = (metric.high - metric.value) / abs(metric.value)  # the lower half may be cut off at zero
        low, high = quantity(metric.low, metric.unit), quantity(metric.high, metric.unit)
        interval = f"{low} to {high} (±{half:.1%})"
    return metric.name, quantity(metric.value, metric.unit), interval, str(metric.runs), str(metric.samples)


def _peak_line(answer: Result) -> str:
    peak = answer.peak
    if peak.fraction is None:
        return f"fraction of peak: not known ({peak.reason})"
    return f"fraction of peak: {peak.fraction:.1%} of {quantity(peak.value, peak.unit)} ({peak.provenance})"


def _phases_line(answer: Result) -> str:
    phases = answer.phases.model_dump()
    known = [f"{name.removesuffix('_s')} {quantity(value, 's')}" for name, value in phases.items() if value is not None]
    return "phases: " + ", ".join(known)


def _training(console: Console, training: Training) -> None:
    first, steady = training.epochs[:1], training.epochs[1:]
    for epoch in first:
        took = quantity(epoch.time_s, "s")
        console.print(f"first epoch {took} (with compiling), loss {epoch.loss:.3f}", highlight=False)
    if steady:
        times = ", ".join(quantity(epoch.time_s, "s") for epoch in steady)
        console.print(f"further epochs {times}, last loss {steady[-1].loss:.3f}", highlight=False)
    data = training.data
    if training.accuracy is not None:
        interval = ""
        if training.accuracy_low is not None and training.accuracy_high is not None:
            interval = f" ({training.accuracy_low:.1%} to {training.accuracy_high:.1%})"
        console.print(
            f"accuracy {training.accuracy:.1%}{interval} on {data.test_samples:,} test samples{_wrong(training)}",
            highlight=False,
        )
    for name, value in training.test.items():
        console.print(f"{name} {value:.4g} on the test set", highlight=False)
    for name, value in training.baselines.items():
        console.print(f"{name} {value:.4g}, without any training", highlight=False)
    console.print(f"data: {data.name}, {data.kind}", highlight=False)


def _wrong(training: Training) -> str:
    """After an accuracy: how many were wrong, in each trial where there are several."""
    by_trial = [str(trial.wrong) for trial in training.trials if trial.wrong is not None]
    if by_trial:
        return f", mean of {len(training.trials)} trials ({', '.join(by_trial)} wrong)"
    return "" if training.wrong is None else f", {training.wrong} wrong"

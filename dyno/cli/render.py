"""Results, comparisons and sweeps for people, in a terminal."""

import json
from collections.abc import Iterator
from functools import partial

from pydantic import JsonValue
from rich.console import Console

from dyno import tables
from dyno.bench.measure.warning_codes import CODES
from dyno.bench.measure.warnings import MIN_PROCESSES
from dyno.cli.listings import print_table
from dyno.formatting import format_quantity, ratio_in_words
from dyno.models.comparison import Compared, Comparison, Ratio, result_names
from dyno.models.job import BaselineOutcome
from dyno.models.processor_names import device_name, model_name, model_names
from dyno.models.result import BudgetUse, Metric, Result, ResultWarning, Training, Verdict
from dyno.models.sweep import Sweep

_COLOURS = {"trusted": "green", "indicative": "yellow", "untrusted": "red"}


def result(console: Console, answer: Result, more: str | None = None) -> None:
    """Print a whole result, or, if `more` names a command for that, only its headline, verdict and what to do."""
    if more is None:
        return _whole_result(console, answer)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    say(_title(answer))
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


def _title(answer: Result) -> str:
    return f"{answer.workload} on {device_name(answer.device)} ({answer.device.get('id')})"


def _listing(console: Console, answer: Result) -> None:
    """Print the findings of a workload in words, such as the facts of `device_info`."""
    lines = answer.details.get("listing")
    for line in lines if isinstance(lines, list) else []:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def reasons(answer: Result) -> str:
    """The reasons why the verdict isn't higher."""
    codes = [raised.code for raised in answer.warnings if raised.severity in "AB"]
    return ", ".join(codes + [f"{code} unchecked" for code in answer.unchecked] + _too_few_runs(answer))


def _too_few_runs(answer: Result) -> list[str]:
    return ["fewer than five runs"] if len(answer.runs) < MIN_PROCESSES else []


def _what_to_do(console: Console, warning: ResultWarning) -> None:
    if warning.code in CODES:
        advice = " ".join(CODES[warning.code].do.split())
        console.print(f"  {advice}", markup=False, highlight=False, soft_wrap=True)


def _unchecked(answer: Result) -> str:
    """The codes of warnings that weren't checked, with the reasons that the runs gave."""
    reasons = answer.details.get("unchecked_reasons")
    by_code = reasons if isinstance(reasons, dict) else {}
    return ", ".join(f"{code} ({by_code[code]})" if code in by_code else code for code in answer.unchecked)


def _headline(answer: Result) -> str:
    """A line such as `throughput 435.2 GFLOP/s (±0.9%), next one 425.5 GFLOP/s to 445.3 GFLOP/s, 84.2% of peak`."""
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
    """Print metrics with their intervals, peak, phases, training, and the verdict with its reasons."""
    headings = ("metric", "value", "95 % interval", "runs", "samples")
    print_table(console, headings, map(_metric_cells, answer.metrics), _title(answer))
    _listing(console, answer)
    _say(console, f"job: {answer.job}")
    if (next_result := _repeat_line(answer)) is not None:
        _say(console, next_result)
    if answer.baseline:
        _baseline_outcome(console, answer.baseline)
    _say(console, _peak_line(answer))
    if limit := _roof_line(answer):
        _say(console, limit)
    _say(console, _phases_line(answer))
    if answer.measurement.budget:
        _say(console, _budget_line(answer.measurement.budget))
    if answer.precision:
        _say(console, f"precision: {answer.precision.in_words}")
    if answer.training:
        _training(console, answer.training)
    _verdict(console, answer, "".join(f" ({why})" for why in _too_few_runs(answer)))
    for warning in answer.warnings:
        _say(console, f"  {warning.severity} {warning.code}: {warning.message}")
        if warning.severity != "C":
            _what_to_do(console, warning)
    if answer.unchecked:
        _say(console, f"  unchecked: {_unchecked(answer)}", "dim")


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _budget_line(budget: BudgetUse) -> str:
    """A line such as `budget: 9 runs in 14.6 s of 15 s; 60 s: about ±0.9%`."""
    larger = (f"{use.budget_s:g} s: about ±{use.rel_half_width:.1%}" for use in budget.larger)
    return "; ".join([f"budget: {budget.runs} runs in {budget.spent_s:.3g} s of {budget.budget_s:g} s", *larger])


def _baseline_outcome(console: Console, outcome: BaselineOutcome) -> None:
    """Print the ratio and the outcome, the reason for an inconclusive outcome, and other differences."""
    bounds = "" if outcome.low is None or outcome.high is None else f" ({outcome.low:.4g} to {outcome.high:.4g})"
    measured = outcome.ratio_as_measured
    plain = f", {measured:.4g} as measured" if measured is not None and measured != outcome.ratio else ""
    ratio = "" if outcome.ratio is None else f": {outcome.ratio:.4g} times as good{bounds}{plain}"
    reason = f"; {outcome.reason}" if outcome.reason else ""
    _say(console, f"baseline {outcome.name}: {outcome.outcome}{ratio}{reason}")
    for difference in outcome.differences:
        values = " | ".join(map(_plain, model_names([difference.baseline, difference.job])))
        _say(console, f"  differs: {difference.field}: {values}")


def comparison(console: Console, answer: Comparison) -> None:
    """Print the ratios to the base in a table and as sentences, what differs, warnings and caveats."""
    of_ratio = (ratio_in_words(answer.unit), f"{100 * answer.confidence:g} % interval", "verdict", "smallest effect")
    headings = ("job", "device", "value", *of_ratio, "result")
    title = f"{answer.workload}: {answer.metric}, {answer.better} is better"
    print_table(console, headings, (_compared_cells(row, answer.unit) for row in answer.results), title)
    for sentence in _speed_ups(answer):
        _say(console, sentence)
    _say(console, f"same work: {'yes' if answer.same_work else 'no'}")
    _say(console, f"comparison: {answer.id}" + (f", by {answer.job}" if answer.job else ""))
    if answer.control is not None:
        _say(console, f"control, the first against itself: {_ratio(answer.control)}")
    for difference in answer.differences:
        values = " | ".join(map(_plain, model_names(difference.values)))
        _say(console, f"differs: {difference.field}: {values}")
    for warning in answer.warnings:
        _say(console, f"{warning.severity} {warning.code}: {warning.message}")
    for note in answer.notes:
        _say(console, note, "dim")


def _plain(value: JsonValue) -> str:
    """A value that differs, as JSON, but with strings unquoted, and with "–" for a missing value."""
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)


def _speed_ups(answer: Comparison) -> Iterator[str]:
    """A sentence for each result except the base: "H200: 29 times as fast as EPYC (28.5 to 29.6), FASTER"."""
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
        return *columns, "1", "–", "base", "–", row.verdict
    value = "–" if ratio.value is None else f"{ratio.value:.4g}"
    interval = _bounds(ratio) or ratio.reason or "–"
    effect = "–" if ratio.smallest_effect is None else f"{1 + ratio.smallest_effect:.4g} times"
    return *columns, value, interval, ratio.verdict, effect, row.verdict


def _as_measured(ratio: Ratio) -> str:
    """The ratio before its adjustment to one clock; empty without an adjustment."""
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
    """The upper half of the interval, such as `±0.9%`, because the lower half may be truncated at zero."""
    if metric.low is None or metric.high is None or not metric.value:
        return None
    return f"±{(metric.high - metric.value) / abs(metric.value):.1%}"


def _repeat_line(answer: Result) -> str | None:
    """The prediction for the headline metric; the JSON has the predictions for other metrics."""
    metric = next((candidate for candidate in answer.metrics if candidate.repeat or candidate.repeat_reason), None)
    if metric is None or metric.repeat is None:
        return None if metric is None else f"next {metric.name}: {metric.repeat_reason}"
    repeat = metric.repeat
    low, high = format_quantity(repeat.low, metric.unit), format_quantity(repeat.high, metric.unit)
    jobs = f" and {repeat.based_on.jobs} earlier results" if repeat.based_on.jobs else ""
    return f"next {metric.name} (95 %): {low} to {high}, from {repeat.based_on.runs} runs{jobs}"


def _roof_line(answer: Result) -> str | None:
    """The roof over the first case, such as `roof: memory, 71.3% of 24.1 GB/s, at 0.17 FLOP/byte`."""
    roof = answer.roofs[0] if answer.roofs else None
    if roof is None or roof.fraction is None or roof.intensity is None:
        return None
    limit = f"{roof.fraction:.1%} of {format_quantity(roof.value, roof.unit or '')}"
    limit += " (the data was in caches)" if roof.fraction > 1 else ""
    return f"roof: {roof.binds}, {limit}, at {roof.intensity:.3g} FLOP/byte"


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
        _say(console, f"first epoch {took} (with compilation), loss {epoch.loss:.3f}")
    if steady:
        times = ", ".join(format_quantity(epoch.time_s, "s") for epoch in steady)
        _say(console, f"later epochs {times}, last loss {steady[-1].loss:.3f}")
    data = training.data
    if (reached := _to_accuracy(training)) is not None:
        _say(console, reached)
    if training.accuracy is not None:
        _say(console, _accuracy_line(training))
    for name, value in training.test.items():
        _say(console, f"{name} {value:.4g} on the test set")
    for name, value in training.baselines.items():
        _say(console, f"{name} {value:.4g} without training")
    _say(console, f"data: {data.name}, {data.kind}")


def _accuracy_line(training: Training) -> str:
    interval = ""
    if training.accuracy_low is not None and training.accuracy_high is not None:
        interval = f" ({training.accuracy_low:.1%} to {training.accuracy_high:.1%})"
    samples = training.data.test_samples
    return f"accuracy {training.accuracy:.1%}{interval} on {samples:,} test samples{_wrong(training)}"


def _to_accuracy(training: Training) -> str | None:
    """The epochs and the time in which the trials reached the target accuracy, if the spec has a target."""
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
    """The number of wrong samples, for each trial if there are several trials."""
    by_trial = [str(trial.wrong) for trial in training.trials if trial.wrong is not None]
    if len(by_trial) > 1:
        return f", mean of {len(training.trials)} trials ({', '.join(by_trial)} wrong)"
    return "" if training.wrong is None else f", {training.wrong} wrong"


def sweep(console: Console, answer: Sweep) -> None:
    """Print a row for each point."""
    title = f"{answer.workload}: {answer.metric}"
    print_table(console, tables.sweep_headings(answer), tables.sweep_cells(answer), title)
    for line in tables.sweep_conclusions(answer):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    _say(console, f"sweep: {answer.id}, {answer.status}")

"""Commands about the results of many jobs: their history, advice from them, and their files."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dyno import tables
from dyno.cli import app as cli
from dyno.cli.listings import print_table
from dyno.cli.spec_options import (
    Framework,
    Params,
    Workload,
    parse_params,
    parse_workload_options,
)
from dyno.client import Client, Refused, ServerUnreachable
from dyno.errors import DynoError
from dyno.formatting import format_quantity
from dyno.models.advice import Advice, AdviceFigure, AdviceRanking, AdviceRow, Crossover
from dyno.models.history import Alarm, History, HistoryChange, HistoryPoint, ResultSeries
from dyno.models.result import RunSamples
from dyno.models.result_export import ImportReport
from dyno.models.sweep import in_words

_WORKLOAD = "Only this workload."
_DEVICE = "Only this device kind or id."
_LABEL = "Only jobs with this label: name or name=value."
_TIME = "A time as in 2026-01-31T12:00:00Z."
_FORMAT = "By default the ending of the file's name. Only jsonl can be imported."
_FROM = "Names the Dyno that ran the jobs; by default its URL when it exported them."
_BY = {"per_s": "per second", "per_joule": "per joule", "per_currency": "per unit of currency"}
SPARKS = "▁▂▃▄▅▆▇█"
_SPARKLINE = 24  # points


@cli.command()
def history(
    client: Client,
    show: cli.Show,
    workload: Annotated[str | None, typer.Option(help=_WORKLOAD)] = None,
    metric: Annotated[str | None, typer.Option(help="This metric; by default the headline metric.")] = None,
    device: Annotated[str | None, typer.Option(help=_DEVICE)] = None,
    label: Annotated[str | None, typer.Option(help=_LABEL)] = None,
    acknowledge: Annotated[str | None, typer.Option(help="Acknowledge the alarm with this id.")] = None,
) -> None:
    """Show results of the same spec over time, and where they changed."""
    answer = client.history(workload=workload, metric=metric, device=device, label=label)
    if acknowledge is not None:
        alarm = client.acknowledge(_named(answer, acknowledge))
        show(alarm, f"{alarm.id} is acknowledged")
    else:
        show(answer, lambda console, answer: _show_history(console, answer, metric))


def _named(answer: History, alarm_id: str) -> Alarm:
    for alarm in answer.alarms:
        if alarm.id == alarm_id:
            return alarm
    raise DynoError(f"no alarm {alarm_id} in this history; `dyno history` with the same options lists its alarms")


def _show_history(console: Console, answer: History, metric: str | None) -> None:
    if not answer.series:
        further = " among the newest jobs; narrow them with --workload or --label name=value" if answer.has_more else ""
        of_metric = f" with the metric {metric}; results without it: {answer.results_read}" if metric else ""
        cli.print_line(console, f"no results{of_metric if answer.results_read else ''}{further}")
        return
    print_table(
        console,
        ("spec", "device", "metric", "points", "over time", "last", "last change", "class"),
        [_series_cells(series, _varying(series, answer.series)) for series in answer.series],
    )
    for series in answer.series:
        for line in _notes(series):
            cli.print_line(console, line)
    if answer.alarms:
        print_table(
            console,
            ("alarm", "since", "change", "state", "job"),
            [
                (alarm.id, f"{alarm.time:%Y-%m-%d %H:%M}", _change(alarm), alarm.state, alarm.job)
                for alarm in answer.alarms
            ],
        )
    if answer.has_more:
        text = f"These are the newest {answer.results_read} results; narrow them with --workload, --device or --label."
        cli.print_line(console, text)


def _varying(series: ResultSeries, every: Sequence[ResultSeries]) -> str:
    """The params of `series` that differ from other series of its workload, such as `n 128, repeats 10`."""
    params_of_all = [other.params for other in every if other.workload == series.workload]
    differ = [
        name for name, value in series.params.items() if any(params.get(name) != value for params in params_of_all)
    ]
    return in_words({name: series.params[name] for name in differ})


def _series_cells(series: ResultSeries, params: str) -> Sequence[str | None]:
    last = series.points[-1]
    change = series.changes[-1] if series.changes else None
    return (
        " ".join(filter(None, (series.workload, params, series.spec_id))),
        series.device,
        series.metric,
        str(len(series.points)),
        sparkline([_value(point) for point in series.points if point.counted][-_SPARKLINE:]),
        f"{format_quantity(last.value, series.unit)} {last.verdict}",
        f"{change.time:%Y-%m-%d} {_change(change)}" if change else None,
        series.of_class.outcome if series.of_class and series.of_class.reason is None else None,
    )


def _value(point: HistoryPoint) -> float:
    return point.value if point.adjusted_value is None else point.adjusted_value


def _change(change: HistoryChange) -> str:
    return f"{change.ratio:.3f} times as good ({change.low:.3f} to {change.high:.3f})"


def _notes(series: ResultSeries) -> Iterator[str]:
    for context in series.contexts[1:]:
        differs = "; ".join(
            f"{difference.field.removeprefix('/environment/')} {difference.values[0]} → {difference.values[1]}"
            for difference in context.differences
        )
        ratio = f": {context.ratio:.3f} times as good" if context.ratio is not None else ""
        yield f"{series.spec_id} {context.since:%Y-%m-%d} new environment{ratio} ({differs or 'unknown'})"
    band = series.of_class
    if band is not None and band.outcome in ("slow", "fast") and band.low is not None and band.high is not None:
        low, high = (format_quantity(value, series.unit) for value in (band.low, band.high))
        yield f"{series.device} is {band.outcome} for its class: {band.devices} equal devices lie in {low} to {high}"


def sparkline(values: Sequence[float]) -> str:
    """One character per value; the lowest value has the lowest character, the highest value the highest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    step = (high - low) / (len(SPARKS) - 1) or 1.0
    return "".join(SPARKS[round((value - low) / step)] for value in values)


@cli.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def advise(
    context: typer.Context,
    client: Client,
    show: cli.Show,
    workload: Workload,
    param: Params = None,
    framework: Framework = "tensorflow",
    metric: Annotated[str | None, typer.Option(help="A rate, such as throughput; the workload's first.")] = None,
) -> None:
    """Rank the live devices by their earlier results of a workload. This runs no job.

    The workload's own params are options too, as for `dyno run`: --batch-size 32.
    """
    given = parse_params(param)
    if context.args:
        given |= parse_workload_options(workload, client.workload(workload).params, context.args)
    show(client.advice(workload, given, framework=framework, metric=metric), _show_advice)


def _show_advice(console: Console, advice: Advice) -> None:
    if advice.rows:
        headings = ("device", *_BY.values(), "before the first sample", "job", "age", "verdict")
        print_table(console, headings, [_advice_cells(row) for row in advice.rows])
    for line in _advice_lines(advice):
        cli.print_line(console, line)


def _advice_cells(row: AdviceRow) -> tuple[str, ...]:
    figures = (row.per_s, row.per_joule, row.per_currency, row.fixed_s)
    return row.device, *map(_figure, figures), row.job, f"{row.age_s / 86400:.1f} days", row.verdict


def _figure(figure: AdviceFigure | None) -> str:
    if figure is None:
        return "–"
    value = format_quantity(figure.value, figure.unit)
    if figure.low is None or figure.high is None:
        return value
    return f"{value} ({format_quantity(figure.low, figure.unit)} to {format_quantity(figure.high, figure.unit)})"


def _advice_lines(advice: Advice) -> Iterator[str]:
    for ranking in advice.rankings:
        yield _best(ranking)
    for crossover in advice.crossovers:
        yield _crossover(crossover)
    for missing in advice.not_ranked:
        yield f"{missing.device}: {missing.reason}" + (f"; run: {missing.run}" if missing.run else "")
    if advice.has_more:
        yield f"Only the newest {advice.results_read} results of {advice.workload} were looked at."


def _best(ranking: AdviceRanking) -> str:
    first, alone = ranking.best[0], ranking.by_value_alone
    said = f"Most {_BY[ranking.by]}: {first}"
    if len(ranking.devices) == 1:
        return f"{said}, the only device with a figure"
    if len(ranking.best) > 1:
        said = f"{said}, which can't be told apart from {', '.join(ranking.best[1:])}"
    elif (ratio := ranking.devices[1].ratio) and ratio.value is not None:
        interval = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.3g} to {ratio.high:.3g})"
        said = f"{said}; {ranking.devices[1].device} does {ratio.value:.3g}{interval} times as much"
    return f"{said}; by its value alone, with no interval: {', '.join(alone)}" if alone else said


def _crossover(crossover: Crossover) -> str:
    if crossover.high == 0:
        return f"{crossover.faster} is done before {crossover.slower} with any amount of data: {crossover.reason}"
    if crossover.amount is None:
        return (
            f"From which amount on {crossover.faster} is done before {crossover.slower} isn't known: {crossover.reason}"
        )
    bounds = (
        "" if crossover.low is None or crossover.high is None else f" ({crossover.low:,.0f} to {crossover.high:,.0f})"
    )
    start = f"From {crossover.amount:,.0f}{bounds} {crossover.unit} on"
    return f"{start}, {crossover.faster} is done before {crossover.slower}"


class ExportFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


@cli.command()
def export(
    client: Client,
    show: cli.Show,
    out: Annotated[Path, typer.Option(dir_okay=False, writable=True, callback=cli.expand_home, help="File to write.")],
    format: Annotated[ExportFormat | None, typer.Option(help=_FORMAT)] = None,
    samples_of: Annotated[str | None, typer.Option(help="Export the samples of this job instead of results.")] = None,
    workload: Annotated[str | None, typer.Option(help=_WORKLOAD)] = None,
    device: Annotated[str | None, typer.Option(help=_DEVICE)] = None,
    metric: Annotated[str | None, typer.Option(help="Only this metric; jsonl has whole results.")] = None,
    label: Annotated[str | None, typer.Option(help=_LABEL)] = None,
    created_after: Annotated[str | None, typer.Option(help=_TIME)] = None,
    created_before: Annotated[str | None, typer.Option(help=_TIME)] = None,
    imported: Annotated[bool | None, typer.Option(help="Only imported results, or only the others.")] = None,
) -> None:
    """Save results, or the samples of a job, as a file. Without filters, all results are saved."""
    chosen = format or _format_of(out)
    filters: dict[str, Any] = {"workload": workload, "device": device, "label": label, "imported": imported}
    filters |= {"created_after": created_after, "created_before": created_before}
    if samples_of is not None:
        count, what = _save_samples(client.samples(samples_of), out, chosen), "samples"
    elif chosen is ExportFormat.JSONL:
        count, what = _save_lines(client.exported_lines(**filters), out), "results"
    else:
        rows = _rows(client, metric=metric, **filters)
        count, what = tables.save_table(rows, tables.RESULT_COLUMNS, out, chosen), "rows"
    show({"file": str(out), "count": count}, f"{out}: {count} {what}")


def _format_of(out: Path) -> ExportFormat:
    try:
        return ExportFormat(out.suffix.removeprefix("."))
    except ValueError as error:
        raise typer.BadParameter(f"set --format: {out.name} doesn't end with .csv, .jsonl or .parquet") from error


def _rows(client: Client, **filters: Any) -> Iterator[tables.Row]:
    for page in client.result_pages(**filters):
        for row in page:
            yield row.model_dump(mode="json")


def _save_samples(runs: list[RunSamples], out: Path, format: ExportFormat) -> int:
    if format is ExportFormat.JSONL:
        _save_lines((run.model_dump_json() for run in runs), out)
        return sum(len(run.warmup) + len(run.samples) for run in runs)
    rows = (row for run in runs for row in tables.sample_rows(run))
    return tables.save_table(rows, tables.SAMPLE_COLUMNS, out, format)


def _save_lines(lines: Iterable[str], out: Path) -> int:
    """Save the lines, and return their number. An existing file is replaced only once all lines are written."""
    new, count = out.with_name(f".{out.name}.new"), 0
    try:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            for count, line in enumerate(lines, 1):  # noqa: B007
                file.write(f"{line}\n")
        new.replace(out)
    finally:
        new.unlink(missing_ok=True)
    return count


@cli.command(name="import")
def import_results(
    client: Client,
    show: cli.Show,
    file: Annotated[Path, typer.Argument(callback=cli.expand_home, help="A file of `dyno export`.")],
    source: Annotated[str | None, typer.Option("--from", help=_FROM)] = None,
) -> None:
    """Import results that another Dyno exported as JSON lines. Repeating it changes nothing.

    The service imports 100 lines at a time, all or none. If it refuses a line, the lines imported before stay.
    """
    reports = list[ImportReport]()
    with file.open(encoding="utf-8", newline="\n") as lines:
        try:
            for report in client.import_lines(lines, source=source):
                reports.append(report)
        except (Refused, ServerUnreachable, UnicodeDecodeError) as error:
            cli.print_line(cli.error_console, f"stopped after: {_said(reports)}")
            if isinstance(error, UnicodeDecodeError):  # a compressed file, or Parquet
                raise DynoError(f"{file} isn't a file of `dyno export --format jsonl`: {error}") from error
            raise
    counts = {"imported": _new(reports), "already": sum(report.already for report in reports)}
    show(counts, _said(reports))


def _new(reports: list[ImportReport]) -> int:
    return sum(report.imported for report in reports)


def _said(reports: list[ImportReport]) -> str:
    return f"{_new(reports)} results imported, {sum(report.already for report in reports)} were here before"

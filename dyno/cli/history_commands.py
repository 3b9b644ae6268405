"""`dyno history`: results over time, their changes, and alarms to acknowledge."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from dyno.cli import app as cli
from dyno.cli.render import print_table
from dyno.client import DEFAULT_URL, Client
from dyno.errors import DynoError
from dyno.formatting import format_quantity
from dyno.models.history import Alarm, History, HistoryChange, HistoryPoint, ResultSeries
from dyno.models.sweep import in_words

SPARKS = "▁▂▃▄▅▆▇█"
_SPARKLINE = 24  # points


@cli.app.command()
@cli.exit_codes
def history(
    workload: Annotated[str | None, typer.Option(help="Only this workload.")] = None,
    metric: Annotated[str | None, typer.Option(help="This metric; by default the headline metric.")] = None,
    device: Annotated[str | None, typer.Option(help="Only this device kind or id.")] = None,
    label: Annotated[str | None, typer.Option(help="Only jobs with this label: name or name=value.")] = None,
    acknowledge: Annotated[str | None, typer.Option(help="Acknowledge the alarm with this id.")] = None,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Show results of the same spec over time, and where they changed."""
    with Client(url) as client:
        answer = client.history(workload=workload, metric=metric, device=device, label=label)
        if acknowledge is not None:
            alarm = client.acknowledge(_named(answer, acknowledge))
            cli.print_result(alarm, as_json, f"{alarm.id} is acknowledged")
            return
    cli.print_result(answer, as_json, lambda _, answer: _show(answer, metric))


def _named(answer: History, alarm_id: str) -> Alarm:
    for alarm in answer.alarms:
        if alarm.id == alarm_id:
            return alarm
    raise DynoError(f"no alarm {alarm_id} in this history; `dyno history` with the same options lists its alarms")


def _show(answer: History, metric: str | None) -> None:
    if not answer.series:
        further = " among the newest jobs; narrow them with --workload or --label name=value" if answer.has_more else ""
        of_metric = f" with the metric {metric}; results without it: {answer.results_read}" if metric else ""
        cli.print_line(cli.console, f"no results{of_metric if answer.results_read else ''}{further}")
        return
    print_table(
        cli.console,
        ("spec", "device", "metric", "points", "over time", "last", "last change", "class"),
        [_row(series, _varying(series, answer.series)) for series in answer.series],
    )
    for series in answer.series:
        for line in _notes(series):
            cli.print_line(cli.console, line)
    if answer.alarms:
        print_table(
            cli.console,
            ("alarm", "since", "change", "state", "job"),
            [
                (alarm.id, f"{alarm.time:%Y-%m-%d %H:%M}", _change(alarm), alarm.state, alarm.job)
                for alarm in answer.alarms
            ],
        )
    if answer.has_more:
        text = f"These are the newest {answer.results_read} results; narrow them with --workload, --device or --label."
        cli.print_line(cli.console, text)


def _varying(series: ResultSeries, every: Sequence[ResultSeries]) -> str:
    """The params that differ between the series of this workload, such as `n 128, repeats 10`."""
    params_of_all = [other.params for other in every if other.workload == series.workload]
    differ = [
        name for name, value in series.params.items() if any(params.get(name) != value for params in params_of_all)
    ]
    return in_words({name: series.params[name] for name in differ})


def _row(series: ResultSeries, params: str) -> Sequence[str | None]:
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
    """One character a value, from the lowest to the highest of them."""
    if not values:
        return ""
    low, high = min(values), max(values)
    step = (high - low) / (len(SPARKS) - 1) or 1.0
    return "".join(SPARKS[round((value - low) / step)] for value in values)

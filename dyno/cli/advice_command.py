"""`dyno advise`: which device to choose for a workload."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from dyno.cli import app as cli
from dyno.cli.job_commands import Workload as WorkloadArgument
from dyno.cli.job_commands import parse_params, parse_workload_options
from dyno.cli.render import print_table
from dyno.client import DEFAULT_URL, Client
from dyno.formatting import format_quantity
from dyno.models.advice import Advice, AdviceFigure, AdviceRanking, AdviceRow, Crossover

_BY = {"per_s": "per second", "per_joule": "per joule", "per_currency": "per unit of currency"}


@cli.app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@cli.exit_codes
def advise(
    context: typer.Context,
    workload: WorkloadArgument,
    param: Annotated[list[str] | None, typer.Option(help="name=value; the value is JSON or text.")] = None,
    framework: Annotated[str, typer.Option(help="tensorflow, jax or torch.")] = "tensorflow",
    metric: Annotated[str | None, typer.Option(help="A rate, such as throughput; the workload's first.")] = None,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Rank the devices that are up for a workload, by the results of it. It runs nothing.

    The workload's own params are options too, as for `dyno run`: --batch-size 32.
    """
    with Client(url) as client:
        given = parse_params(param)
        if context.args:
            given |= parse_workload_options(workload, client.workload(workload).params, context.args)
        advice = client.advice(workload, given, framework=framework, metric=metric)
    cli.print_result(advice, as_json, _show)


def _show(console: Console, advice: Advice) -> None:
    if advice.rows:
        headings = ("device", *_BY.values(), "before the first sample", "job", "age", "verdict")
        print_table(console, headings, [_cells(row) for row in advice.rows])
    for line in _lines(advice):
        cli.print_line(console, line)


def _cells(row: AdviceRow) -> tuple[str, ...]:
    figures = (row.per_s, row.per_joule, row.per_currency, row.fixed_s)
    return row.device, *map(_figure, figures), row.job, f"{row.age_s / 86400:.1f} days", row.verdict


def _figure(figure: AdviceFigure | None) -> str:
    if figure is None:
        return "–"
    value = format_quantity(figure.value, figure.unit)
    if figure.low is None or figure.high is None:
        return value
    return f"{value} ({format_quantity(figure.low, figure.unit)} to {format_quantity(figure.high, figure.unit)})"


def _lines(advice: Advice) -> Iterator[str]:
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

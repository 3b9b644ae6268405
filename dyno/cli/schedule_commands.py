"""Commands about schedules: save, list, show and delete them."""

from functools import partial
from typing import Annotated

import typer
from pydantic import JsonValue

from dyno.cli import app as cli
from dyno.cli import job_commands, render
from dyno.client import DEFAULT_URL, Client

_CRON = 'Five fields in quotes: minute, hour, day of month, month, day of week; "0 3 * * *" is daily at 3:00.'
_BASELINE = "Name from `dyno baseline list` to hold each result against."

schedule = typer.Typer(no_args_is_help=True, help="Jobs that Dyno submits at given times.")
cli.app.add_typer(schedule, name="schedule")
ScheduleArgument = Annotated[str, typer.Argument(help="Name of the schedule.")]


@schedule.command(
    cls=job_commands.WorkloadCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
@cli.exit_codes
def save(
    context: typer.Context,
    name: ScheduleArgument,
    cron: Annotated[str, typer.Argument(help=_CRON)],
    workload: job_commands.Workload,
    time_zone: Annotated[str, typer.Option(help="Time zone of the times, such as Europe/Zurich.")] = "UTC",
    disabled: Annotated[bool, typer.Option("--disabled", help="Save the schedule without firing it.")] = False,
    param: job_commands.Params = None,
    device: job_commands.Device = "any",
    framework: job_commands.Framework = "tensorflow",
    replicas: job_commands.Replicas = 1,
    budget: job_commands.Budget = None,
    processes: job_commands.RunCount = None,
    seed: job_commands.Seed = 0,
    measure: job_commands.Measures = None,
    label: job_commands.Labels = None,
    queue_if_absent: job_commands.QueueIfAbsent = False,
    baseline: Annotated[str | None, typer.Option(help=_BASELINE)] = None,
    baseline_allow: job_commands.BaselineAllow = None,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Save a job to submit at given times, with the options of `dyno run`. Replaces an earlier schedule of the name.

    dyno schedule save nightly "0 3 * * *" mnist_cnn --time-zone Europe/Zurich --device gpu --batch-size 256
    """
    plain: dict[str, JsonValue] = {"framework": framework, "replicas": replicas, "seed": seed}
    plain["queue_if_absent"] = queue_if_absent
    with Client(url) as client:
        how = job_commands.measure_of(budget, processes, measure)
        params = partial(job_commands.service_schema, client)
        spec = job_commands.job_spec(workload, context.args, param, device, how, label, params, baseline, **plain)
        spec |= {"baseline_allow": list(baseline_allow)} if baseline_allow else {}
        row = client.save_schedule(name, cron, spec, timezone=time_zone, enabled=not disabled)
    cli.print_result(row, as_json, lambda console, row: render.schedules(console, [row]))


@schedule.command()
@cli.exit_codes
def show(name: ScheduleArgument, url: cli.Url = DEFAULT_URL, as_json: cli.AsJson = False) -> None:
    """Print a schedule's next times, its last firings, and the times that it missed."""
    with Client(url) as client:
        cli.print_result(client.schedule(name), as_json, render.schedule)


@schedule.command()
@cli.exit_codes
def delete(name: ScheduleArgument, url: cli.Url = DEFAULT_URL, as_json: cli.AsJson = False) -> None:
    """Delete a schedule. Its jobs stay."""
    with Client(url) as client:
        client.delete_schedule(name)
    cli.print_result({"name": name, "deleted": True}, as_json, f"{name}: deleted")


@cli.app.command()
@cli.exit_codes
def schedules(url: cli.Url = DEFAULT_URL, as_json: cli.AsJson = False) -> None:
    """List your key's schedules."""
    with Client(url) as client:
        cli.print_result(client.schedules(), as_json, render.schedules)

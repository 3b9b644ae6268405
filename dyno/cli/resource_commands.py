"""Commands about objects other than jobs: baselines, schedules, webhooks, workloads, devices and workers."""

from functools import partial
from typing import Annotated

import typer

from dyno.cli import app as cli
from dyno.cli import listings
from dyno.cli.spec_options import (
    OF_WORKLOAD,
    BaselineAllow,
    JobOptions,
    Workload,
    complete_job_ids,
    complete_workloads,
    service_schema,
)
from dyno.client import Client
from dyno.formatting import format_duration
from dyno.models.baseline import BASELINE_MARGIN
from dyno.models.inventory import AwayDevice, DeviceStatus
from dyno.models.webhook import DeliveryStatus

baseline_group = typer.Typer(no_args_is_help=True, help="Named figures and limits that jobs are held against.")
webhook_group = typer.Typer(no_args_is_help=True, help="Deliveries of webhooks.")
schedule_group = typer.Typer(no_args_is_help=True, help="Jobs that Dyno submits at given times.")

BaselineName = Annotated[str, typer.Argument(help="Name of the baseline.")]
ScheduleName = Annotated[str, typer.Argument(help="Name of the schedule.")]
DeviceName = Annotated[str, typer.Argument(help="Device id from `dyno devices`, with @host if several hosts have it.")]
_LIMIT = "Limit instead of a job, for --metric."
_CRON = 'Five fields in quotes: minute, hour, day of month, month, day of week; "0 3 * * *" is daily at 3:00.'
_BASELINE = "Name from `dyno baseline list` to hold each result against."


@cli.command(baseline_group, "save")
def save_baseline(
    client: Client,
    show: cli.Show,
    name: BaselineName,
    job_id: Annotated[
        str | None, typer.Argument(help="Job that succeeded; none for a limit.", autocompletion=complete_job_ids)
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Metric; the workload's first by default.")] = None,
    margin: Annotated[
        float, typer.Option(callback=cli.finite, help="Slowdown that passes: 0.05 is 5 %.")
    ] = BASELINE_MARGIN,
    at_least: Annotated[float | None, typer.Option(callback=cli.finite, help=_LIMIT)] = None,
    at_most: Annotated[float | None, typer.Option(callback=cli.finite, help=_LIMIT)] = None,
) -> None:
    """Save a copy of a job's figure, or a limit, for `dyno run --baseline NAME`. Replaces a baseline of this name."""
    limits = [at_least, at_most]
    if job_id is None and (metric is None or limits.count(None) != 1):
        raise typer.BadParameter("name a job, or --metric with one of --at-least and --at-most")
    if job_id is not None and limits.count(None) != 2:
        raise typer.BadParameter("name a job, or a limit, not both")
    if job_id is not None:
        row = client.save_baseline(name, job_id, metric=metric, margin=margin)
    else:
        row = client.save_limit(name, metric or "", at_least=at_least, at_most=at_most)
    show(row, listings.baselines.one)


@cli.command(baseline_group, "list")
def list_baselines(client: Client, show: cli.Show) -> None:
    """List your key's baselines."""
    show(client.baselines(), listings.baselines)


@cli.command(baseline_group, "delete")
def delete_baseline(client: Client, show: cli.Show, name: BaselineName) -> None:
    """Delete a baseline. Jobs that name it are still compared with it."""
    client.delete_baseline(name)
    show({"name": name, "deleted": True}, f"{name}: deleted")


@cli.command(schedule_group, "save", **OF_WORKLOAD)
def save_schedule(
    context: typer.Context,
    client: Client,
    show: cli.Show,
    name: ScheduleName,
    cron: Annotated[str, typer.Argument(help=_CRON)],
    workload: Workload,
    *,
    time_zone: Annotated[str, typer.Option(help="Time zone of the times, such as Europe/Zurich.")] = "UTC",
    disabled: Annotated[bool, typer.Option("--disabled", help="Save the schedule without firing it.")] = False,
    job: JobOptions,
    baseline: Annotated[str | None, typer.Option(help=_BASELINE)] = None,
    baseline_allow: BaselineAllow = None,
) -> None:
    """Save a job to submit at given times, with the options of `dyno run`. Replaces a schedule of the same name.

    dyno schedule save nightly "0 3 * * *" mnist_cnn --time-zone Europe/Zurich --device gpu --batch-size 256
    """
    spec = job.spec(workload, context.args, partial(service_schema, client), baseline)
    spec |= {"baseline_allow": list(baseline_allow)} if baseline_allow else {}
    row = client.save_schedule(name, cron, spec, timezone=time_zone, enabled=not disabled)
    show(row, listings.schedules.one)


@cli.command(schedule_group, "show")
def show_schedule(client: Client, show: cli.Show, name: ScheduleName) -> None:
    """Print a schedule's next times, its last firings, and the times at which it didn't fire."""
    show(client.schedule(name), listings.schedule)


@cli.command(schedule_group, "delete")
def delete_schedule(client: Client, show: cli.Show, name: ScheduleName) -> None:
    """Delete a schedule. Its jobs stay."""
    client.delete_schedule(name)
    show({"name": name, "deleted": True}, f"{name}: deleted")


@cli.command()
def schedules(client: Client, show: cli.Show) -> None:
    """List your key's schedules."""
    show(client.schedules(), listings.schedules)


@cli.command(webhook_group)
def deliveries(
    client: Client,
    show: cli.Show,
    status: Annotated[DeliveryStatus | None, typer.Option(help="Only deliveries with this status.")] = None,
    job: Annotated[str | None, typer.Option(help="Only the delivery of this job.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of deliveries.")] = 50,
) -> None:
    """List the newest deliveries that match all filters."""
    show(client.deliveries(status=status, job=job, limit=limit), listings.deliveries)


@cli.command(webhook_group)
def redeliver(
    client: Client,
    show: cli.Show,
    delivery_id: Annotated[str, typer.Argument(help="Id from `dyno webhooks deliveries`: msg_…")],
) -> None:
    """Send a delivery again at once, whatever its status."""
    show(client.redeliver(delivery_id), listings.deliveries.one)


@cli.command()
def devices(client: Client, show: cli.Show) -> None:
    """List the devices of live workers, and cordoned devices without a live worker."""
    rows: list[DeviceStatus | AwayDevice] = [*client.devices(), *client.cordoned_away()]
    show(rows, listings.devices)


@cli.command()
def workers(client: Client, show: cli.Show) -> None:
    """List the live workers and their jobs."""
    show(client.workers(), listings.workers)


@cli.command()
def workloads(
    client: Client,
    show: cli.Show,
    name: Annotated[
        str | None, typer.Argument(help="Show one workload, with its params.", autocompletion=complete_workloads)
    ] = None,
) -> None:
    """List workloads, or the params of one, which are options of `dyno run`."""
    if name is None:
        show(client.workloads(), listings.workloads)
        return
    show(client.workload(name), lambda console, row: listings.params(console, row.name, row.description, row.params))
    if not show.as_json and (estimate := client.validate({"workload": name}).estimate):
        took = format_duration(estimate.time_s)
        cli.print_line(cli.console, f"takes about {took} on {estimate.device} by default")


@cli.command()
def cordon(client: Client, show: cli.Show, device: DeviceName) -> None:
    """Cordon a device: it finishes its current job and takes no new ones until you uncordon it."""
    answer = client.cordon(device)
    show(answer, f"{answer.device} takes no more jobs")


@cli.command()
def uncordon(client: Client, show: cli.Show, device: DeviceName) -> None:
    """Let a cordoned device take jobs again."""
    answer = client.uncordon(device)
    show(answer, f"{answer.device} takes jobs again")


cli.app.add_typer(baseline_group, name="baseline")
cli.app.add_typer(webhook_group, name="webhooks")
cli.app.add_typer(schedule_group, name="schedule")

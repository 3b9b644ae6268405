"""Commands that submit, follow, cancel and list sweeps.

The jobs of a sweep may take hours, so Ctrl-C doesn't cancel them. It ends the command, which prints how to continue.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import JsonValue

from dyno.cli import app as cli
from dyno.cli import listings, render
from dyno.cli.job_commands import submit_once
from dyno.cli.progress_bars import sweep_progress
from dyno.cli.spec_options import (
    OF_WORKLOAD,
    Budget,
    RunCount,
    complete_workloads,
    measure_of,
    parse_pairs,
    parse_value,
    parse_workload_options,
)
from dyno.client import Client, ServerUnreachable
from dyno.errors import DynoError
from dyno.models.job import DEVICE_BUSY, Holder, Status
from dyno.models.sweep import AUTO, BATCH_SIZE, PARAM, Sweep, presets

_AXES = ("framework", "device", "precision", "replicas")
_SEARCH = (BATCH_SIZE, [AUTO])
_BETWEEN_DEVICES = re.compile(r",(?=[a-z])")  # "gpu:0,1" is one device
_OF_A_SWEEP = ("--workload", "--metric", "--plot", "--cancel", "--url", "--as-json")  # allowed with a sweep's id
_SWEEP = re.compile(r"swp_[0-9A-Z]{26}")
_PRESETS = "A named sweep: " + ", ".join(presets()) + "."
_SEVERAL = "several values separated by commas."
_BASE = "axis=value of the points to compare with, such as device=cpu:0-0 or batch-size=256; may be repeated."
_PLOT = "File to save a plot to, .svg or .png."


def parse_values(text: str, schema: dict[str, Any] | None = None) -> list[JsonValue]:
    """Parse words such as `256,512,1024`. Text that is JSON as a whole, such as `[256, 512]`, is one value."""
    if isinstance(whole := parse_value(text, schema), str):
        return [parse_value(part, schema) for part in text.split(",")]
    return [whole]


def parse_devices(text: str) -> list[JsonValue]:
    """Parse words such as `cpu:0-0,cpu:1-1`, or the JSON of one selector."""
    return parse_values(text) if text.startswith("{") else list(_BETWEEN_DEVICES.split(text))


def parse_base(pairs: list[str] | None) -> dict[str, JsonValue]:
    """Parse words such as `batch-size=256`. Raises BadParameter."""
    base: dict[str, JsonValue] = {}
    for name, text in parse_pairs(pairs).items():
        axis = name if name in _AXES or name.startswith(PARAM) else PARAM + name.replace("-", "_")
        base[axis] = text if axis == "device" and not text.startswith("{") else parse_value(text)
    return base


@cli.command(**OF_WORKLOAD)
def sweep(
    context: typer.Context,
    client: Client,
    show: cli.Show,
    workload: Annotated[
        str | None,
        typer.Argument(
            help="Name from `dyno workloads`, or the id of a sweep to follow.", autocompletion=complete_workloads
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help=_PRESETS)] = None,
    param: Annotated[list[str] | None, typer.Option(help=f"name=value, or {_SEVERAL}")] = None,
    device: Annotated[str | None, typer.Option(help=f'"cpu", "gpu", "tpu", "any" or an id, or {_SEVERAL}')] = None,
    framework: Annotated[str | None, typer.Option(help=f"tensorflow, jax or torch, or {_SEVERAL}")] = None,
    precision: Annotated[str | None, typer.Option(help=f"The workload's dtype or precision, or {_SEVERAL}")] = None,
    replicas: Annotated[str | None, typer.Option(help=f"Copies of the model, or {_SEVERAL}")] = None,
    base: Annotated[list[str] | None, typer.Option(help=_BASE)] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric to show and compare; by default the sweep's, or else the workload's first."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Jobs of each point, in turns with the other points.")] = None,
    stop_hopeless: Annotated[
        bool,
        typer.Option("--stop-hopeless", help="Cancel further rounds of points less than half as good as the best."),
    ] = False,
    budget: Budget = None,
    processes: RunCount = None,
    seed: Annotated[int | None, typer.Option(help="Seed of data and weights.")] = None,
    measure: Annotated[list[str] | None, typer.Option(help="name=value, as for `dyno run`.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="name=value, to find the jobs by; may be repeated.")] = None,
    queue_if_absent: Annotated[
        bool, typer.Option("--queue-if-absent", help="Queue jobs even if no live worker has such a device.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, callback=cli.picture_to_write, help=_PLOT)] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the sweep that is named by its id.")] = False,
) -> None:
    """Submit a job for each combination of values, wait for them, print a table. Ctrl-C leaves the jobs running.

    Params of the workload are options too: `dyno sweep mnist_cnn --batch-size 256,512,1024 --device cpu`. `--batch-size
    auto` finds the largest batch that fits and the fastest batch.
    """
    words = list(context.args)
    if workload and workload.startswith("-"):  # with a preset, the first word is an option of its workload
        words.insert(0, workload)
        workload = None
    is_id = workload is not None and _SWEEP.fullmatch(workload) is not None
    if is_id and (others := [option for option in cli.given_options(context) if option not in _OF_A_SWEEP]):
        raise typer.BadParameter(f"{' '.join(others)}: {workload} has its points already; name a workload instead")
    if workload is not None and is_id:
        sweep_id = workload
    elif cancel:
        raise typer.BadParameter("--cancel needs the id of a sweep: swp_…")
    else:
        chosen = {"framework": framework, "precision": precision, "replicas": replicas}
        axes = {name: parse_values(text) for name, text in chosen.items() if text is not None}
        axes |= {} if device is None else {"device": parse_devices(device)}
        axes |= _param_axes(client, workload, preset, param, words)
        single = {"workload": workload, "seed": seed, "queue_if_absent": queue_if_absent or None}
        spec = _spec(single, measure_of(budget, processes, measure), label)
        more: dict[str, JsonValue] = {
            "preset": preset,
            "metric": metric,
            "base": parse_base(base) or None,
            "rounds": rounds,
            "stop_hopeless": stop_hopeless or None,
        }
        submit = partial(client.begin_sweep, _request(spec, axes, more))
        sweep_id = submit_once(client, submit, lambda begun: begun.id, _how_to_go_on, "sweep").id
    answer = client.cancel_sweep(sweep_id) if cancel else _follow(client, sweep_id, metric, show)
    if plot is not None:
        cli.save(plot, client.sweep_plot(sweep_id, plot.suffix.removeprefix("."), metric=metric))
    show(answer, render.sweep)
    if not cancel and answer.status != "succeeded":
        raise DynoError(f"{answer.id}: {_missing(answer)}")


def _missing(answer: Sweep) -> str:
    """A sentence about the results that an incomplete sweep lacks."""
    lacking = [point for point in answer.points if point.status != Status.SUCCEEDED and not point.stopped]
    without = sum(point.metrics is None for point in lacking)
    kinds = {"no result": without, "no result in some rounds": len(lacking) - without}
    sentences = [f"{count} of {len(answer.points)} points have {what}" for what, count in kinds.items() if count]
    return ", and ".join(sentences) or "no point has a result"


def _param_axes(
    client: Client, workload: str | None, preset: str | None, pairs: list[str] | None, words: list[str]
) -> dict[str, list[JsonValue]]:
    """The values of each param, by the name of the axis. Raises BadParameter."""
    axes = {PARAM + name: parse_values(text) for name, text in parse_pairs(pairs).items()}
    if words:
        known_preset = presets().get(preset or "")
        name = workload or (known_preset and known_preset.spec["workload"])
        if not isinstance(name, str):
            raise typer.BadParameter(f"name the workload first, then {words[0]} and other options")
        options = parse_workload_options(name, client.workload(name).params, words, parse_values)
        axes |= {PARAM + option: values for option, values in options.items() if isinstance(values, list)}
    return axes


def _spec(single: Mapping[str, JsonValue], measure: dict[str, JsonValue], labels: list[str] | None) -> dict[str, Any]:
    """The fields of the spec that are given and don't vary."""
    given = {**single, "measure": measure or None, "labels": {**parse_pairs(labels)} or None}
    return {name: value for name, value in given.items() if value is not None}


def _request(
    spec: dict[str, Any], axes: Mapping[str, list[JsonValue]], more: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """The body of POST /v1/sweeps. An axis with one value becomes part of the spec, unless there is no other axis."""
    several = {axis: values for axis, values in axes.items() if len(values) > 1 or (axis, values) == _SEARCH}
    grid = several or ({} if more["preset"] else dict(axes))
    params: dict[str, JsonValue] = {}
    for axis, values in axes.items():
        if axis in grid:
            continue
        if axis == "precision":  # the service knows the workload's param for the precision
            grid[axis] = values
        elif axis.startswith(PARAM):
            params[axis.removeprefix(PARAM)] = values[0]
        else:
            spec[axis] = values[0]
    if not grid and not more["preset"]:
        raise typer.BadParameter(
            "say what to vary: name a preset, or a workload, and give several values to its params, --device, "
            "--framework, --precision or --replicas"
        )
    if params:
        spec["params"] = params
    given: dict[str, JsonValue] = {"spec": spec, "grid": {**grid} or None, **more}
    return {name: value for name, value in given.items() if value is not None}


def _follow(client: Client, sweep_id: str, metric: str | None, show: cli.Show) -> Sweep:
    try:
        with sweep_progress(show.progress) as follow:
            return client.wait_for_sweep(sweep_id, lambda now: follow(now, _held_by(client, now)), metric=metric)
    except KeyboardInterrupt:
        cli.print_line(cli.error_console, _how_to_go_on(client, sweep_id))
        raise
    except ServerUnreachable as error:
        raise ServerUnreachable(f"{error.detail}\n{sweep_id} goes on; follow it: dyno sweep {sweep_id}") from error


def _held_by(client: Client, now: Sweep) -> Holder | None:
    """Find the first point that waits for a busy device. Returns the process of another Dyno that uses this device."""
    waiting = [point for point in now.points if point.status == Status.QUEUED and point.status_reason == DEVICE_BUSY]
    return client.job(waiting[0].job).queue.held_by if waiting else None


def _how_to_go_on(client: Client, sweep_id: str) -> str:
    return f"{sweep_id} goes on.\nfollow it: dyno sweep {sweep_id}\ncancel it: dyno sweep {sweep_id} --cancel"


@cli.command()
def sweeps(
    client: Client,
    show: cli.Show,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of sweeps.")] = 20,
) -> None:
    """List the newest sweeps."""
    show(client.sweeps(limit=limit), listings.sweeps)

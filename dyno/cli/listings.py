"""Lists for people, in a terminal: jobs, sweeps, schedules, devices and other objects of the service.

Tables never truncate or split a word, since people copy ids from them.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.measure import Measurement, measure_renderables
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dyno.formatting import describe_schema, format_quantity
from dyno.models import inventory, webhook
from dyno.models.api_key import ApiKey
from dyno.models.baseline import Baseline
from dyno.models.device import PeakFigure
from dyno.models.job import Job
from dyno.models.job_schedule import JobSchedule
from dyno.models.processor_names import model_name
from dyno.models.result import Artifact
from dyno.models.sweep import PARAM, SweepSummary

Cells = Sequence[str | None]
T = TypeVar("T")


def print_table(console: Console, headings: Sequence[str], rows: Iterable[Cells], title: str | None = None) -> None:
    """Print a table. In a pipe or a file, the table is as wide as its content, so that each row is one line.

    In a terminal, text wraps between words. If the table still doesn't fit, each cell is printed on its own line.
    Cells contain no markup.
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


class Listing(Generic[T]):
    """Prints a table with a row for each item."""

    def __init__(self, headings: Sequence[str], cells: Callable[[T], Cells]) -> None:
        self._headings, self._cells = headings, cells

    def __call__(self, console: Console, items: Iterable[T]) -> None:
        print_table(console, self._headings, map(self._cells, items))

    def one(self, console: Console, item: T) -> None:
        self(console, [item])


def listing(*headings: str) -> Callable[[Callable[[T], Cells]], Listing[T]]:
    """A decorator that turns a function into a Listing. The function returns the cells of an item."""
    return lambda cells: Listing(headings, cells)


@listing("job", "workload", "status", "reason", "device", "created")
def jobs(job: Job) -> Cells:
    where = job.worker.device if job.worker else job.queue.name
    return job.id, job.spec.workload, job.status, job.status_reason, where, _second(job.created_at)


@listing("sweep", "workload", "axes", "status", "results", "created")
def sweeps(sweep: SweepSummary) -> Cells:
    axes = " x ".join(f"{axis.removeprefix(PARAM)} ({len(values)})" for axis, values in sweep.axes.items())
    done = f"{sweep.counts.get('succeeded', 0)} of {sweep.counts['total']}"
    return sweep.id, sweep.workload, axes, sweep.status, done, _second(sweep.created_at)


@listing("name", "metric", "figure or limit", "margin", "job", "device")
def baselines(row: Baseline) -> Cells:
    if row.figure is None:
        limit = f"at least {row.at_least:.4g}" if row.at_least is not None else f"at most {row.at_most or 0:.4g}"
        return row.name, row.metric, limit, "–", "–", "–"
    model = row.figure.circumstances.get("/device/model") or row.figure.circumstances.get("/device/id")
    value = format_quantity(row.figure.value, row.unit or "")
    return row.name, row.metric, value, f"{100 * row.margin:g} %", row.job or "–", model_name(str(model))


@listing("name", "cron", "time zone", "workload", "next", "last", "missed")
def schedules(row: JobSchedule) -> Cells:
    upcoming = _in_zone(row.next_firings[0], row.timezone) if row.next_firings else _why_not(row)
    last = row.firings[0] if row.firings else None
    outcome = None if last is None else last.job or last.code
    return row.name, row.cron, row.timezone, row.spec.workload, upcoming, outcome, str(row.missed_count)


def _why_not(row: JobSchedule) -> str:
    return f"stopped: {row.stopped.detail}" if row.stopped else "disabled"


def schedule(console: Console, row: JobSchedule) -> None:
    """Print a schedule with its next times, its last firings, and the times that it missed."""
    schedules.one(console, row)
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
    """The time in the time zone of the schedule, or in UTC if this host doesn't know that zone."""
    try:
        return moment.astimezone(ZoneInfo(timezone)).isoformat(" ", "seconds")
    except (KeyError, ValueError, OSError):
        return moment.astimezone(UTC).isoformat(" ", "seconds")


@listing("file", "bytes", "SHA-256")
def artifacts(row: Artifact) -> Cells:
    return row.name, f"{row.bytes:,}", row.sha256


@listing("device", "model", "state", "peak", "frameworks", "started with")
def devices(row: inventory.DeviceStatus | inventory.AwayDevice) -> Cells:
    state = f"{row.state}, cordoned" if row.cordoned else row.state
    if isinstance(row, inventory.AwayDevice):
        return row.full_id, None, state, None, None, None
    state += f", held by process {row.held_by.pid or 'unknown'}" if row.held_by else ""
    frameworks = ", ".join(f"{name} {version}" for name, version in row.frameworks.items())
    return row.id, row.called, state, _known_peak(row.peak), frameworks, row.started_with


def _known_peak(peaks: Mapping[str, PeakFigure]) -> str:
    """The float32 peak if known, or else the first known peak. A TPU's data sheet has no float32 figure."""
    peaks_known = [(dtype, figure) for dtype, figure in peaks.items() if figure.value]
    if not peaks_known:
        return format_quantity(None, "FLOP/s")
    dtype, figure = min(peaks_known, key=lambda peak: peak[0] != "float32")
    return f"{format_quantity(figure.value, figure.unit)} {dtype}"


@listing("worker", "device", "state", "job", "version", "last heartbeat")
def workers(row: inventory.WorkerRecord) -> Cells:
    return row.id, row.device, row.state, row.job, row.version, _second(row.last_heartbeat)


@listing("workload", "description", "frameworks")
def workloads(row: inventory.WorkloadEntry) -> Cells:
    return row.name, row.description, ", ".join(row.frameworks)


def params(console: Console, name: str, description: str, schema: Mapping[str, Any]) -> None:
    """Print a workload's params as options of `dyno run`. `schema` is the JSON Schema of all params."""

    def cells(param: str, of: Mapping[str, Any]) -> Cells:
        default = json.dumps(of["default"]) if "default" in of else None
        return f"--{param.replace('_', '-')}", default, describe_schema(of, schema), of.get("description")

    console.print(f"{name}: {description}", markup=False, highlight=False, soft_wrap=True)
    properties = schema.get("properties", {}).items()
    print_table(console, ("option", "default", "values", "description"), (cells(*row) for row in properties))


@listing("delivery", "job", "event", "status", "attempts", "last outcome", "next attempt")
def deliveries(row: webhook.Delivery) -> Cells:
    ended = [attempt.ended for attempt in row.attempts if attempt.ended]
    last = f"{ended[-1].outcome} {ended[-1].status_code or ''}".rstrip() if ended else None
    return row.id, row.job, row.type, row.status, str(row.attempts_made), last, _second(row.next_attempt_at)


@listing("key", "prefix", "name", "scope", "limits", "created", "expires", "last used")
def keys(key: ApiKey) -> Cells:
    limits = ", ".join(f"{name} {value}" for name, value in key.limits.model_dump(exclude_none=True).items())
    scope = f"{key.scope}, high priority" if key.high_priority else key.scope
    used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
    ended = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else used
    until = f"{key.expires_at:%Y-%m-%d %H:%M}" if key.expires_at else "never"
    return key.id, key.prefix, key.name, scope, limits, f"{key.created_at:%Y-%m-%d}", until, ended


def _second(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")

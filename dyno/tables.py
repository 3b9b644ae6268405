"""Lists for a person, in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dyno.access import ApiKey
from dyno.catalogue import WorkloadEntry
from dyno.delivery import Delivery
from dyno.devices.device import PeakFigure
from dyno.doctor import Check
from dyno.fleet import AwayDevice, DeviceStatus, WorkerRecord
from dyno.job import Job
from dyno.quantity import quantity
from dyno.result import Artifact

Cells = Sequence[str | None]


def jobs(console: Console, rows: Iterable[Job]) -> None:
    def cells(job: Job) -> Cells:
        where = job.worker.device if job.worker else job.queue.name
        return job.id, job.spec.workload, job.status, job.status_reason, where, _second(job.created_at)

    _show(console, ("job", "workload", "status", "reason", "device", "created"), map(cells, rows))


def artifacts(console: Console, rows: Iterable[Artifact]) -> None:
    _show(console, ("file", "bytes", "SHA-256"), ((row.name, f"{row.bytes:,}", row.sha256) for row in rows))


def devices(console: Console, rows: Iterable[DeviceStatus | AwayDevice]) -> None:
    def cells(row: DeviceStatus | AwayDevice) -> Cells:
        state = f"{row.state}, cordoned" if row.cordoned else row.state
        if isinstance(row, AwayDevice):
            return row.full_id, None, state, None, None, None
        frameworks = ", ".join(f"{name} {version}" for name, version in row.frameworks.items())
        return row.id, row.model, state, _known_peak(row.peak), frameworks, row.started_with

    _show(console, ("device", "model", "state", "peak", "frameworks", "started with"), map(cells, rows))


def workers(console: Console, rows: Iterable[WorkerRecord]) -> None:
    def cells(row: WorkerRecord) -> Cells:
        return row.id, row.device, row.state, row.job, row.version, _second(row.last_heartbeat)

    _show(console, ("worker", "device", "state", "job", "version", "last heard of"), map(cells, rows))


def workloads(console: Console, rows: Iterable[WorkloadEntry]) -> None:
    cells = ((row.name, row.description, ", ".join(row.frameworks)) for row in rows)
    _show(console, ("workload", "what runs", "frameworks"), cells)


def params(console: Console, workload: WorkloadEntry) -> None:
    """As options of `dyno run`."""

    def cells(name: str, schema: Mapping[str, Any]) -> Cells:
        default = json.dumps(schema["default"]) if "default" in schema else None
        return f"--{name.replace('_', '-')}", default, _type(schema), schema.get("description")

    console.print(f"{workload.name}: {workload.description}", markup=False, highlight=False)
    known = workload.params.get("properties", {}).items()
    _show(console, ("option", "default", "type", "what it is"), (cells(*each) for each in known))


def deliveries(console: Console, rows: Iterable[Delivery]) -> None:
    def cells(row: Delivery) -> Cells:
        ended = [each.ended for each in row.attempts if each.ended]
        last = f"{ended[-1].outcome} {ended[-1].status_code or ''}".rstrip() if ended else None
        return row.id, row.job, row.type, row.status, str(row.attempts_made), last, _second(row.next_attempt_at)

    _show(console, ("delivery", "job", "what", "status", "attempts", "last outcome", "next"), map(cells, rows))


def checks(console: Console, rows: Iterable[Check]) -> None:
    cells = ((row.name, "well" if row.is_well else "amiss", row.found, row.to_do) for row in rows)
    _show(console, ("part", "state", "found", "to do"), cells)


def keys(console: Console, rows: Iterable[ApiKey]) -> None:
    table = Table()
    for heading in ("key", "begins", "name", "scope", "limits", "made", "last used"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "key")
    for key in rows:
        limits = ", ".join(f"{name} {value}" for name, value in key.limits.model_dump(exclude_none=True).items())
        used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
        ended = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else used
        table.add_row(key.id, key.prefix, key.name, key.scope, limits, f"{key.created_at:%Y-%m-%d}", ended)
    console.print(table)


def _show(console: Console, headings: Sequence[str], rows: Iterable[Cells]) -> None:
    """What is in the cells is nobody's markup."""
    table = Table()
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell or "") for cell in row))
    console.print(table)


def _second(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


def _type(schema: Mapping[str, Any]) -> str:
    """Of a param, as far as its JSON Schema says it in a word."""
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    options = [_type(each) for each in schema.get("anyOf", ())]
    return " or ".join(options) or str(schema.get("type", schema.get("$ref", "").rpartition("/")[2]))


def _known_peak(peaks: Mapping[str, PeakFigure]) -> str:
    """The first that is known, float32 before all others: a TPU's data sheet has none of it."""
    known = [(dtype, figure) for dtype, figure in peaks.items() if figure.value]
    if not known:
        return quantity(None, "FLOP/s")
    dtype, figure = min(known, key=lambda each: each[0] != "float32")
    return f"{quantity(figure.value, figure.unit)} {dtype}"

"""Lists for a person, in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Console

from dyno.access import ApiKey
from dyno.catalogue import WorkloadEntry
from dyno.columns import Cells, show
from dyno.delivery import Delivery
from dyno.devices.device import PeakFigure
from dyno.fleet import AwayDevice, DeviceStatus, WorkerRecord
from dyno.job import Job
from dyno.quantity import quantity
from dyno.result import Artifact
from dyno.values import values


def jobs(console: Console, rows: Iterable[Job]) -> None:
    def cells(job: Job) -> Cells:
        where = job.worker.device if job.worker else job.queue.name
        return job.id, job.spec.workload, job.status, job.status_reason, where, _second(job.created_at)

    show(console, ("job", "workload", "status", "reason", "device", "created"), map(cells, rows))


def artifacts(console: Console, rows: Iterable[Artifact]) -> None:
    show(console, ("file", "bytes", "SHA-256"), ((row.name, f"{row.bytes:,}", row.sha256) for row in rows))


def devices(console: Console, rows: Iterable[DeviceStatus | AwayDevice]) -> None:
    def cells(row: DeviceStatus | AwayDevice) -> Cells:
        state = f"{row.state}, cordoned" if row.cordoned else row.state
        if isinstance(row, AwayDevice):
            return row.full_id, None, state, None, None, None
        state += f", held by process {row.held_by.pid or 'unknown'}" if row.held_by else ""
        frameworks = ", ".join(f"{name} {version}" for name, version in row.frameworks.items())
        return row.id, row.model, state, _known_peak(row.peak), frameworks, row.started_with

    show(console, ("device", "model", "state", "peak", "frameworks", "started with"), map(cells, rows))


def workers(console: Console, rows: Iterable[WorkerRecord]) -> None:
    def cells(row: WorkerRecord) -> Cells:
        return row.id, row.device, row.state, row.job, row.version, _second(row.last_heartbeat)

    show(console, ("worker", "device", "state", "job", "version", "last heard of"), map(cells, rows))


def workloads(console: Console, rows: Iterable[WorkloadEntry]) -> None:
    cells = ((row.name, row.description, ", ".join(row.frameworks)) for row in rows)
    show(console, ("workload", "what runs", "frameworks"), cells)


def params(console: Console, name: str, description: str, schema: Mapping[str, Any]) -> None:
    """Of a workload, as options of `dyno run`; `schema` is the JSON Schema of all of them."""

    def cells(param: str, of: Mapping[str, Any]) -> Cells:
        default = json.dumps(of["default"]) if "default" in of else None
        return f"--{param.replace('_', '-')}", default, values(of, schema), of.get("description")

    console.print(f"{name}: {description}", markup=False, highlight=False, soft_wrap=True)
    known = schema.get("properties", {}).items()
    show(console, ("option", "default", "values", "what it is"), (cells(*each) for each in known))


def deliveries(console: Console, rows: Iterable[Delivery]) -> None:
    def cells(row: Delivery) -> Cells:
        ended = [each.ended for each in row.attempts if each.ended]
        last = f"{ended[-1].outcome} {ended[-1].status_code or ''}".rstrip() if ended else None
        return row.id, row.job, row.type, row.status, str(row.attempts_made), last, _second(row.next_attempt_at)

    show(console, ("delivery", "job", "what", "status", "attempts", "last outcome", "next"), map(cells, rows))


def keys(console: Console, rows: Iterable[ApiKey]) -> None:
    def cells(key: ApiKey) -> Cells:
        limits = ", ".join(f"{name} {value}" for name, value in key.limits.model_dump(exclude_none=True).items())
        used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
        ended = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else used
        return key.id, key.prefix, key.name, key.scope, limits, f"{key.created_at:%Y-%m-%d}", ended

    show(console, ("key", "begins", "name", "scope", "limits", "made", "last used"), map(cells, rows))


def _second(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


def _known_peak(peaks: Mapping[str, PeakFigure]) -> str:
    """The first that is known, float32 before all others: a TPU's data sheet has none of it."""
    known = [(dtype, figure) for dtype, figure in peaks.items() if figure.value]
    if not known:
        return quantity(None, "FLOP/s")
    dtype, figure = min(known, key=lambda each: each[0] != "float32")
    return f"{quantity(figure.value, figure.unit)} {dtype}"

"""From a stored record to the Job that callers see. Fields that a newer version wrote are kept out, not refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from dyno.errors import RecordUnreadable
from dyno.job import DONE, Job, QueuePlace, Status, Urls
from dyno.spec import Spec

log = logging.getLogger(__name__)

_JSON_FIELDS = ("failure", "progress", "worker", "warnings")
_TIMES = ("created_at", "queued_at", "started_at", "finished_at", "cancel_requested_at")


def to_job(record: Mapping[str, str], position: int | None) -> Job:
    """The Job of a record's fields; `position` is its place in the queue. The attempt's token never gets out.

    Raises RecordUnreadable where a field is missing, damaged or has a value this version doesn't know.
    """
    try:
        return _read(record, position)
    except (ValueError, KeyError, TypeError) as error:  # ValueError: also of JSON, of Status and of the models
        log.warning("the record of %s can't be read: %s: %s", record.get("id"), type(error).__name__, error)
        raise RecordUnreadable(
            f"the record of {record.get('id', 'a job')} is damaged, or was written by another version of Dyno"
        ) from error


def _read(record: Mapping[str, str], position: int | None) -> Job:
    job_id, status = record["id"], Status(record["status"])
    fields: dict[str, Any] = {name: json.loads(record[name]) for name in _JSON_FIELDS if name in record}
    fields |= {name: moment(record[name]) for name in _TIMES if name in record}
    fields |= {name: record[name] for name in ("owner", "rerun_of", "schema", "status_reason") if name in record}
    return Job(
        id=job_id,
        status=status,
        done=status in DONE,
        attempt=int(record["attempt"]),
        version=int(record["version"]),
        spec=read_spec(record["spec"]),
        queue=QueuePlace(name=record["queue"], position=position),
        urls=_urls(job_id),
        **fields,
    )


def read_spec(text: str) -> Spec:
    """A stored spec, without fields that this version doesn't know. Raises ValueError or TypeError where it is none."""
    return Spec.model_validate(_known(Spec, json.loads(text)))


def moment(seconds: str) -> datetime:
    """Seconds since 1970 by Redis' clock, as text, to a time in UTC."""
    return datetime.fromtimestamp(float(seconds), UTC)


def _known(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name not in values:
            continue
        value, kind = values[name], field.annotation
        nested = isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, BaseModel)
        known[name] = _known(kind, value) if nested else value  # type: ignore[arg-type]
    return known


def _urls(job_id: str) -> Urls:
    root = f"/v1/jobs/{job_id}"
    return Urls(self=root, result=f"{root}/result", cancel=f"{root}/cancel")

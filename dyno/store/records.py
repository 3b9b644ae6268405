"""From what is stored to what callers see. Fields that a newer version wrote are kept out, not refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from dyno.errors import RecordUnreadable
from dyno.models.job import DONE, Holder, Job, QueuePlace, Status, Urls
from dyno.models.spec import InterleavedSpec, Spec, Webhook, spec_without_unknown_fields

log = logging.getLogger(__name__)
T = TypeVar("T")

_JSON_FIELDS = ("failure", "progress", "worker", "warnings")
_TIMES = ("created_at", "queued_at", "started_at", "finished_at", "cancel_requested_at")


class Standing(NamedTuple):
    """How a job waits, see `dyno.models.job.QueuePlace`; without arguments: it doesn't."""

    position: int | None = None
    passed_over: bool = False
    eta_s: float | None = None


def to_job(record: Mapping[str, str], queue_state: Standing) -> Job:
    """The Job of a record's fields; `queue_state` is how it waits. The attempt's token never gets out.

    Raises RecordUnreadable where a field is missing, damaged or has a value this version doesn't know.
    """
    try:
        return _read(record, queue_state)
    except (ValueError, KeyError, TypeError) as error:  # ValueError: also of JSON, of Status and of the models
        raise _unreadable(f"the record of {record.get('id', 'a job')}", error) from error


def stored(read: Callable[[str], T], text: str, what: str) -> T:
    """What `read`, a model's `model_validate_json` say, makes of stored JSON. Raises RecordUnreadable for `what`."""
    try:
        return read(text)
    except ValidationError as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> RecordUnreadable:
    log.warning("%s can't be read: %s: %s", what, type(error).__name__, error)
    return RecordUnreadable(f"{what} is damaged, or was written by another version of Dyno")


def _read(record: Mapping[str, str], queue_state: Standing) -> Job:
    job_id, status = record["id"], Status(record["status"])
    fields: dict[str, Any] = {name: json.loads(record[name]) for name in _JSON_FIELDS if name in record}
    if status in DONE and "progress" in fields:
        fields["progress"] |= {"fraction": 1.0, "eta_s": 0.0} if status is Status.SUCCEEDED else {"eta_s": None}
    fields |= {name: moment(record[name]) for name in _TIMES if name in record}
    fields |= {name: record[name] for name in ("owner", "rerun_of", "schema", "status_reason") if name in record}
    return Job(
        id=job_id,
        status=status,
        done=status in DONE,
        attempt=int(record["attempt"]),
        version=int(record["version"]),
        spec=_with_webhook(read_spec(record["spec"]), record.get("webhook")),
        queue=QueuePlace(name=record["queue"], held_by=_held_by(record, status), **queue_state._asdict()),
        urls=_urls(job_id),
        **fields,
    )


def _held_by(record: Mapping[str, str], status: Status) -> Holder | None:
    if status is not Status.QUEUED or "held_by" not in record:
        return None
    return Holder.model_validate_json(record["held_by"])


def read_spec(text: str) -> Spec:
    """A stored spec, without fields that this version doesn't know. Raises ValueError or TypeError where it is none."""
    values = spec_without_unknown_fields(json.loads(text))
    kind = InterleavedSpec if "against" in values else Spec
    return kind.model_validate(values)


def _with_webhook(spec: Spec, url: str | None) -> Spec:
    """Its URL isn't stored in the spec, which workers read. It was looked at when it was submitted: where this version
    takes less, the job is there all the same."""
    return spec if url is None else spec.model_copy(update={"webhook": Webhook.model_construct(url=url)})


def moment(seconds: str) -> datetime:
    """Seconds since 1970 by Redis' clock, as text, to a time in UTC."""
    return datetime.fromtimestamp(float(seconds), UTC)


def _urls(job_id: str) -> Urls:
    root = f"/v1/jobs/{job_id}"
    return Urls(self=root, result=f"{root}/result", cancel=f"{root}/cancel", events=f"{root}/events")

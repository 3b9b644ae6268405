"""The records of jobs: as models, and as JSON that is joined from stored JSON without building a model.

`to_job` reads the records of all versions and ignores unknown fields that a newer version wrote. If this version stored
the record, `StoredJob.document` copies its JSON of spec and warnings unchanged, so a poll takes 10 µs, not 250 µs.
The document equals the model's JSON, apart from the order of fields.
"""

import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json

from dyno.errors import RecordUnreadable
from dyno.models.job import (
    DONE,
    SCHEMA,
    BaselineOutcome,
    Failure,
    Holder,
    Imported,
    Job,
    Progress,
    QueuePlace,
    SpecWarning,
    Status,
    Urls,
    WorkerRef,
)
from dyno.models.spec import InterleavedSpec, Measure, Spec, Webhook, spec_without_unknown_fields

log = logging.getLogger(__name__)
S = TypeVar("S")
T = TypeVar("T")

_JSON_FIELDS = ("failure", "worker", "warnings")
_TIMES = ("created_at", "queued_at", "started_at", "finished_at", "cancel_requested_at")


class QueueState(NamedTuple):
    """The queue state of a job, see `dyno.models.job.QueuePlace`. The default is for jobs that don't wait."""

    position: int | None = None
    passed_over: bool = False
    eta_s: float | None = None


def to_job(record: Mapping[str, str], queue_state: QueueState) -> Job:
    """Make a Job from a record's fields. The attempt's token is left out: it is secret.

    Raises RecordUnreadable if a field is missing, damaged or has a value that this version doesn't know.
    """
    try:
        return _read(record, queue_state)
    except (ValueError, KeyError, TypeError) as error:  # JSON, Status and the models raise ValueError too
        raise _unreadable(f"the record of {record.get('id', 'a job')}", error) from error


def parse_stored(read: Callable[[S], T], stored: S, what: str) -> T:
    """Parse a stored value with `read`, such as a model's `model_validate_json`.

    Raises RecordUnreadable, naming `what`.
    """
    try:
        return read(stored)
    except ValueError as error:  # ValidationError and UnicodeDecodeError are ValueErrors, too
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> RecordUnreadable:
    log.warning("%s can't be read: %s: %s", what, type(error).__name__, error)
    return RecordUnreadable(f"{what} is damaged, or was written by another version of Dyno")


def _read(record: Mapping[str, str], queue_state: QueueState) -> Job:
    job_id, status = record["id"], Status(record["status"])
    spec = _with_webhook(read_spec(record["spec"]), record.get("webhook"))
    fields: dict[str, Any] = {name: json.loads(record[name]) for name in _JSON_FIELDS if name in record}
    progress = progress_shown(record.get("progress"), status, spec.most_runs)
    if progress is not None and status is Status.RUNNING:
        progress = progress.model_copy(update={"eta_s": eta_now_s(record)})
    fields["progress"] = progress
    if "judged" in record:
        fields["baseline"] = json.loads(record["judged"])
    if "imported" in record:
        fields["imported"] = json.loads(record["imported"])
    fields |= {name: to_datetime(record[name]) for name in _TIMES if name in record}
    fields |= {name: record[name] for name in ("owner", "rerun_of", "schema", "status_reason") if name in record}
    return Job(
        id=job_id,
        status=status,
        done=status in DONE,
        attempt=int(record["attempt"]),
        version=int(record["version"]),
        spec=spec,
        queue=QueuePlace(name=record["queue"], held_by=_held_by(record, status), **queue_state._asdict()),
        urls=_urls(job_id),
        **fields,
    )


def progress_shown(stored: str | None, status: Status, runs: int) -> Progress | None:
    """The progress of a record. A done job has no work left, however it ended.

    If a job succeeded before its first heartbeat, its record has no progress; all `runs` are then reported as done.
    """
    if stored is not None:
        progress = Progress.model_validate_json(stored)
    elif status is Status.SUCCEEDED:
        progress = Progress(phase="done", run=runs, runs=runs)
    else:
        return None
    return progress.model_copy(update={"fraction": 1.0, "eta_s": 0.0}) if status in DONE else progress


_REPORTED_EVERY_S = 3.0  # reports are hardly ever older; a greater age means that two hosts' clocks differ
_LEAST_ETA_S = 0.1


def eta_now_s(record: Mapping[str, str]) -> float | None:
    """The remaining time of a running job, from its progress report and the report's age; None if unknown."""
    reported: dict[str, float | None] = json.loads(record.get("progress", "{}"))
    eta_s, elapsed_s = reported.get("eta_s"), reported.get("elapsed_s")
    if eta_s is None or elapsed_s is None or "started_at" not in record:
        return eta_s
    age_s = time.time() - float(record["started_at"]) - elapsed_s
    return max(eta_s - min(max(0.0, age_s), _REPORTED_EVERY_S), min(eta_s, _LEAST_ETA_S))


def _held_by(record: Mapping[str, str], status: Status) -> Holder | None:
    if status is not Status.QUEUED or "held_by" not in record:
        return None
    return Holder.model_validate_json(record["held_by"])


def read_spec(text: str) -> Spec:
    """Parse a stored spec and ignore unknown fields. Raises ValueError or TypeError for an invalid one."""
    values = spec_without_unknown_fields(json.loads(text))
    kind = InterleavedSpec if "against" in values else Spec
    return kind.model_validate(values)


def _with_webhook(spec: Spec, url: str | None) -> Spec:
    """Add the webhook's URL. It isn't stored in the spec, because workers read the spec. It isn't validated again: the
    job must stay readable if this version has stricter rules than the version that accepted it."""
    return spec if url is None else spec.model_copy(update={"webhook": Webhook.model_construct(url=url)})


def to_datetime(seconds: str) -> datetime:
    """Convert seconds since 1970 by Redis' clock, as text, to a time in UTC."""
    return datetime.fromtimestamp(float(seconds), UTC)


def _urls(job_id: str) -> Urls:
    root = f"/v1/jobs/{job_id}"
    return Urls(self=root, result=f"{root}/result", cancel=f"{root}/cancel", events=f"{root}/events")


# Changes with the schema of the JSON that `Jobs.submit` stores. Records have it in their field `shape`.
SHAPE: Final = hashlib.sha256(
    json.dumps([TypeAdapter(kind).json_schema(mode="serialization") for kind in (Spec, SpecWarning)]).encode()
).hexdigest()[:8]
_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` would make an encoder at each call


@dataclass
class StoredJob:
    """A job's record, as HGETALL returns it, with its place in the queue. `new`: the job was queued just now."""

    record: Mapping[str, str]
    queue: QueueState
    new: bool = False
    around_place: tuple[str, str] | None = None  # the parts of `document` before and after the place in the queue

    @property
    def id(self) -> str:
        return self.record["id"]

    @property
    def version(self) -> int:
        return int(self.record["version"])

    @property
    def done(self) -> bool:
        return self.record["status"] in DONE  # members are their values

    def job(self) -> Job:
        """Raises RecordUnreadable."""
        return to_job(self.record, self.queue)

    @cached_property
    def document(self) -> str:
        """The job as JSON. Raises RecordUnreadable."""
        if _is_as_shown(self.record):
            with contextlib.suppress(KeyError, ValueError):  # `to_job` reports the damage
                if self.around_place:
                    head, tail = self.around_place
                elif self.new:
                    head, tail = _around_place(self.record)
                else:
                    head, tail = _recent_around_place(tuple(self.record.items()))
                text = head + _place(self.queue) + tail
                return text.replace(_ETA_NOW, _number(eta_now_s(self.record))) if _ETA_NOW in tail else text
        return self.job().model_dump_json(by_alias=True)


_SCHEMA = str(SCHEMA)
_ETA_NOW = (
    "\0"  # stands for the ETA in the cached parts, because the ETA changes with each read. JSON has no such character
)


def _place(queue: QueueState) -> str:
    passed_over = "true" if queue.passed_over else "false"
    return f'"position":{_number(queue.position)},"passed_over":{passed_over},"eta_s":{_number(queue.eta_s)}'


class ListedRecord(NamedTuple):
    """A record's fields, and the parts of its document around the queue place; None if a model must read it."""

    fields: Mapping[str, str]
    around_place: tuple[str, str] | None


@lru_cache(maxsize=1024)
def listed_record(text: str) -> ListedRecord:
    """Parse a record as list.lua returns it: fields and values, joined by NUL. A damaged record gives no `fields`."""
    parts = text.split("\0")
    if len(parts) % 2:
        return ListedRecord({}, None)
    fields = dict(zip(parts[::2], parts[1::2], strict=True))
    with contextlib.suppress(KeyError, ValueError):
        if _is_as_shown(fields):
            return ListedRecord(fields, _around_place(fields))
    return ListedRecord(fields, None)


def _is_as_shown(record: Mapping[str, str]) -> bool:
    """Whether the record's JSON can be returned unchanged, because this version stored it."""
    return record.get("shape") == SHAPE and record.get("schema") == _SCHEMA


@lru_cache(maxsize=1024)  # a record is read far more often than it changes
def _recent_around_place(fields: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    return _around_place(dict(fields))


def _around_place(record: Mapping[str, str]) -> tuple[str, str]:
    """The parts of a record's document before and after the place in the queue."""
    get, job_id, status = record.get, record["id"], Status(record["status"])
    spec, warnings = record["spec"], get("warnings", "[]")
    runs = Measure.model_validate(from_json(spec)["measure"]).runs.max
    from_json(warnings)  # damaged text would make the whole page unreadable
    done = "true" if status in DONE else "false"
    webhook = f'{{"url":{_encode(url)}}}' if (url := get("webhook")) else "null"
    held_by = _shown(Holder, get("held_by")) if status is Status.QUEUED else "null"
    url = f"/v1/jobs/{job_id}"
    return (
        f'{{"id":"{job_id}","status":"{status}","status_reason":{_text(get("status_reason"))},'
        f'"done":{done},"attempt":{int(record["attempt"])},'
        f'"spec":{spec[:-1]},"webhook":{webhook}}},"warnings":{warnings},'
        f'"queue":{{"name":{_text(record["queue"])},"held_by":{held_by},',
        f'}},"progress":{_progress(get("progress"), status, runs)},"worker":{_shown(WorkerRef, get("worker"))},'
        f'"created_at":{_time(record["created_at"])},"queued_at":{_time(record["queued_at"])},'
        f'"started_at":{_time(get("started_at"))},"finished_at":{_time(get("finished_at"))},'
        f'"cancel_requested_at":{_time(get("cancel_requested_at"))},"failure":{_shown(Failure, get("failure"))},'
        f'"baseline":{_shown(BaselineOutcome, get("judged"))},'
        f'"rerun_of":{_text(get("rerun_of"))},"imported":{_shown(Imported, get("imported"))},'
        f'"urls":{{"self":"{url}","result":"{url}/result",'
        f'"cancel":"{url}/cancel","events":"{url}/events"}},"owner":{_text(get("owner"))},'
        f'"schema":{_SCHEMA},"version":{int(record["version"])}}}',
    )


def _number(value: float | None) -> str:
    return "null" if value is None else repr(value)


def _text(value: str | None) -> str:
    return "null" if value is None else _encode(value)


@lru_cache(maxsize=1024)
def _time(seconds: str | None) -> str:
    return "null" if seconds is None else f'"{to_datetime(seconds).isoformat().removesuffix("+00:00")}Z"'


def _shown(kind: type[BaseModel], stored: str | None) -> str:
    """The stored document as this version writes it. A worker of another version may have stored it."""
    return "null" if stored is None else kind.model_validate_json(stored).model_dump_json()


def _progress(stored: str | None, status: Status, runs: int) -> str:
    progress = progress_shown(stored, status, runs)
    if progress is None:
        return "null"
    text = progress.model_dump_json()
    if status is not Status.RUNNING or progress.eta_s is None:
        return text
    return re.sub('"eta_s":[^,}]+', f'"eta_s":{_ETA_NOW}', text)

"""The JSON documents of jobs, joined from stored JSON without building a model.

`to_job` reads any version's record. The spec and the warnings that this very version stored are shown as they are, so
a poll costs 10 µs instead of 250. The document equals the model's, apart from the order of fields.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json, to_json, to_jsonable_python

from dyno.models.job import (
    DONE,
    SCHEMA,
    BaselineOutcome,
    Failure,
    Holder,
    Imported,
    Job,
    SpecWarning,
    Status,
    WorkerRef,
)
from dyno.models.result import Result
from dyno.models.spec import Measure, Spec
from dyno.store import compression
from dyno.store.records import QueueState, eta_now_s, parse_stored, progress_shown, to_datetime, to_job

# Changes when a field of what `Jobs.submit` stores as JSON changes. Records have it in their field `shape`.
SHAPE: Final = hashlib.sha256(
    json.dumps([TypeAdapter(kind).json_schema(mode="serialization") for kind in (Spec, SpecWarning)]).encode()
).hexdigest()[:8]
RESULT_SHAPE: Final = hashlib.sha256(json.dumps(Result.model_json_schema(mode="serialization")).encode()).hexdigest()[
    :8
]
_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder at each call
_COMPRESSED = compression.header(RESULT_SHAPE)


@dataclass
class StoredJob:
    """A job's record, as HGETALL returns it, with its place in the queue. `new`: it was queued just now."""

    record: Mapping[str, str]
    queue: QueueState
    new: bool = False
    around_place: tuple[str, str] | None = None  # the document before and after its place in the queue, if known

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
    "\0"  # in the document around its place, which is kept: it changes with each read. JSON has no such character
)


def _place(queue: QueueState) -> str:
    passed_over = "true" if queue.passed_over else "false"
    return f'"position":{_number(queue.position)},"passed_over":{passed_over},"eta_s":{_number(queue.eta_s)}'


class ListedRecord(NamedTuple):
    """The fields of a record, and its document around its place in the queue; None if models have to read it."""

    fields: Mapping[str, str]
    around_place: tuple[str, str] | None


@lru_cache(maxsize=1024)
def listed_record(text: str) -> ListedRecord:
    """Parse a record as list.lua returns it: fields and values, joined by NUL. A damaged one has no fields."""
    parts = text.split("\0")
    if len(parts) % 2:
        return ListedRecord({}, None)
    fields = dict(zip(parts[::2], parts[1::2], strict=True))
    with contextlib.suppress(KeyError, ValueError):
        if _is_as_shown(fields):
            return ListedRecord(fields, _around_place(fields))
    return ListedRecord(fields, None)


def _is_as_shown(record: Mapping[str, str]) -> bool:
    """Whether this version stored the record's texts as it shows them."""
    return record.get("shape") == SHAPE and record.get("schema") == _SCHEMA


@lru_cache(maxsize=1024)  # a record is read far more often than it changes
def _recent_around_place(fields: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    return _around_place(dict(fields))


def _around_place(record: Mapping[str, str]) -> tuple[str, str]:
    """The document of a record before and after its place in the queue."""
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


_DIGITS = 6  # significant ones: runs scatter by a thousandth and more
_SHARE_DIGITS = 4  # the kernel counts most of these times in hundredths of a second
_TIME_DECIMALS = 4  # of a second, in Unix times


def shortened(value: Any, name: str = "") -> Any:
    """A JSON value with its floats rounded: readings have up to 17 digits, which take half of a result's memory.

    Params, and descriptions of the device and its software, stay as they are. `name`: the field that has the value.
    """
    if isinstance(value, float):
        if name.endswith("_at_s"):
            return round(value, _TIME_DECIMALS)
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        if name in ("params", "device", "environment"):
            return value
        if name == "core_shares":
            return {key: share and float(f"{share:.{_SHARE_DIGITS}g}") for key, share in value.items()}
        return {key: shortened(part, key) for key, part in value.items()}
    return [shortened(part, name) for part in value] if isinstance(value, list) else value


def encode_result(result: Result) -> bytes:
    """The result as it is stored: its JSON with rounded figures, compressed, and named RESULT_SHAPE."""
    document = shortened(result.model_dump(mode="json", by_alias=True))
    return compression.compress(to_json(document, inf_nan_mode="null"), RESULT_SHAPE)


def encode_outcome(outcome: BaselineOutcome) -> str:
    """The outcome as a job's record has it: with the figures of the result."""
    return to_json(shortened(outcome.model_dump(mode="json"))).decode()


def encode_samples(samples: Sequence[Any]) -> bytes:
    """Models or JSON values, as they are stored."""
    return compression.compress(to_json(shortened(to_jsonable_python(samples)), inf_nan_mode="null"))


@dataclass
class StoredResult:
    """A job's result, as GET returns it."""

    job_id: str
    stored: bytes

    @property
    def gzip(self) -> bytes | None:
        """The document as a gzip file; None if another version stored it."""
        if self.stored.startswith(_COMPRESSED):
            with contextlib.suppress(ValueError):  # `document` reports the damage
                return compression.as_gzip(self.stored)
        return None

    @property
    def document(self) -> str:
        """The result as JSON. Raises RecordUnreadable."""
        if self.stored.startswith(_COMPRESSED):
            return parse_stored(str, self.stored, self._what)
        return self.result().model_dump_json(by_alias=True)

    def result(self) -> Result:
        """Raises RecordUnreadable."""
        return parse_stored(Result.model_validate_json, self.stored, self._what)

    @property
    def _what(self) -> str:
        return f"the result of {self.job_id}"


def _number(value: float | None) -> str:
    return "null" if value is None else repr(value)


def _text(value: str | None) -> str:
    return "null" if value is None else _encode(value)


@lru_cache(maxsize=1024)
def _time(seconds: str | None) -> str:
    return "null" if seconds is None else f'"{to_datetime(seconds).isoformat().removesuffix("+00:00")}Z"'


def _shown(kind: type[BaseModel], stored: str | None) -> str:
    """Workers wrote it, perhaps of another version, so it is read and written again."""
    return "null" if stored is None else kind.model_validate_json(stored).model_dump_json()


def _progress(stored: str | None, status: Status, runs: int) -> str:
    progress = progress_shown(stored, status, runs)
    if progress is None:
        return "null"
    text = progress.model_dump_json()
    if status is not Status.RUNNING or progress.eta_s is None:
        return text
    return re.sub('"eta_s":[^,}]+', f'"eta_s":{_ETA_NOW}', text)

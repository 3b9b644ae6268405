"""Readers of stored records, specs and result summaries, one at a time or in pages, newest first.

Unknown fields that a newer version wrote are ignored. A page costs a bounded number of reads: if few records match, it
is short and has a cursor for the next page. A cursor encodes a time in ms and an id, the order of every index.
Parsing a result summary takes a tenth of the time of parsing the whole result.
"""

import asyncio
import base64
import contextlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

import redis.asyncio

from dyno.errors import FieldError, InvalidSpec, RecordUnreadable
from dyno.models.job import DONE, Holder, Job, Progress, QueuePlace, Status, Urls
from dyno.models.result import ResultSummary
from dyno.models.spec import InterleavedSpec, Spec, Webhook, spec_without_unknown_fields
from dyno.settings import Settings
from dyno.store.compression import decompress, execute_raw
from dyno.store.redis import JOB_ID, SWEEP_ID, Keys, store_errors

log = logging.getLogger(__name__)
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


def parse_stored(read: Callable[[str], T], stored: str | bytes, what: str) -> T:
    """Parse stored JSON with `read`, such as a model's `model_validate_json`. Bytes may be compressed.

    Raises RecordUnreadable, naming `what`.
    """
    try:
        return read(decompress(stored) if isinstance(stored, bytes) else stored)
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

    A job that succeeded before its first heartbeat has stored none; it made its `runs`.
    """
    if stored is not None:
        progress = Progress.model_validate_json(stored)
    elif status is Status.SUCCEEDED:
        progress = Progress(phase="done", run=runs, runs=runs)
    else:
        return None
    return progress.model_copy(update={"fraction": 1.0, "eta_s": 0.0}) if status in DONE else progress


_REPORTED_EVERY_S = 3.0  # a report is hardly older: more is a difference between two hosts' clocks
_LEAST_ETA_S = 0.1


def eta_now_s(record: Mapping[str, str]) -> float | None:
    """The remaining time that the progress of a running job reports, less the time since; null if unknown."""
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
    """Add the webhook's URL, which isn't stored in the spec, because workers read it. The URL isn't validated again:
    if this version's rules are stricter than at submit, the job must stay readable."""
    return spec if url is None else spec.model_copy(update={"webhook": Webhook.model_construct(url=url)})


def to_datetime(seconds: str) -> datetime:
    """Convert seconds since 1970 by Redis' clock, as text, to a time in UTC."""
    return datetime.fromtimestamp(float(seconds), UTC)


def _urls(job_id: str) -> Urls:
    root = f"/v1/jobs/{job_id}"
    return Urls(self=root, result=f"{root}/result", cancel=f"{root}/cancel", events=f"{root}/events")


_POSITION = re.compile(rf"(\d{{1,15}}):({JOB_ID.pattern}|{SWEEP_ID.pattern})", re.ASCII)

IndexPosition = tuple[int, str]  # the order of an index: a time in ms by Redis' clock, and the id of a job or a sweep


async def read_positions(
    client: redis.asyncio.Redis,
    index: str,
    after: IndexPosition | None,
    count: int,
    newer_than: datetime | None = None,
    older_than: datetime | None = None,
) -> list[IndexPosition]:
    """The next `count` positions behind `after`; fewer only at the end. Within a millisecond, ids descend."""
    newest: Any = "+inf" if older_than is None else _millis(older_than)
    oldest: Any = "-inf" if newer_than is None else _millis(newer_than)
    if after is not None:
        newest = after[0] if newest == "+inf" else min(newest, after[0])
    positions: list[IndexPosition] = []
    offset = 0
    while len(positions) < count:
        entries: Sequence[Any] = await client.zrange(
            index, newest, oldest, desc=True, byscore=True, offset=offset, num=count, withscores=True
        )
        rows = [(int(score), job_id) for job_id, score in entries]
        positions += [row for row in rows if after is None or row < after]
        if len(rows) < count:
            break
        offset += count
    return positions[:count]


def _millis(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def encode_cursor(position: IndexPosition) -> str:
    return base64.urlsafe_b64encode(f"{position[0]}:{position[1]}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> IndexPosition:
    """The position that a cursor encodes. Raises InvalidSpec, pointing at /cursor."""
    with contextlib.suppress(ValueError):  # binascii and Unicode errors are ValueErrors
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        if (parts := _POSITION.fullmatch(text)) is not None:
            return int(parts[1]), parts[2]
    wrong = FieldError("/cursor", "invalid-cursor", "invalid cursor: use the next_cursor of an earlier page")
    raise InvalidSpec([wrong])


_STEP = 50  # minimum number of records per read, about 10 ms of the event loop
_MOST_STEPS = 10

ReadMatching = Callable[
    [Sequence[IndexPosition]], Awaitable[Sequence[T | None]]
]  # None for a record that doesn't match or is gone


@dataclass(frozen=True)
class RecordPage(Generic[T]):
    data: list[T]
    next_cursor: str | None
    has_more: bool


@dataclass(frozen=True)
class JobIndex:
    """The key of a ZSET of jobs by time, and the range of times to read; both limits are exclusive."""

    key: str
    after: datetime | None
    before: datetime | None


async def read_page(
    client: redis.asyncio.Redis, index: JobIndex, fitting: ReadMatching[T], cursor: str | None, limit: int
) -> RecordPage[T]:
    """At most `limit` records after the cursor. Raises InvalidSpec for an invalid cursor."""
    position = None if cursor is None else decode_cursor(cursor)
    step = limit + 1
    rows: list[tuple[IndexPosition, T]] = []
    for _ in range(_MOST_STEPS):
        behind = await read_positions(client, index.key, position, step, index.after, index.before)
        records = await fitting(behind)
        rows += [(at, record) for at, record in zip(behind, records, strict=True) if record is not None]
        if len(rows) > limit:
            return _page(rows[:limit], rows[limit - 1][0])
        if len(behind) < step:
            return _page(rows, None)
        position, step = behind[-1], max(_STEP, step)
    return _page(rows, position)


def _page(rows: Sequence[tuple[IndexPosition, T]], goes_on_at: IndexPosition | None) -> RecordPage[T]:
    cursor = None if goes_on_at is None else encode_cursor(goes_on_at)
    return RecordPage([record for _, record in rows], cursor, has_more=cursor is not None)


_RESULTS_AT_ONCE = 25  # results per read: some have a hundred runs


async def read_result_summaries(
    client: redis.asyncio.Redis, settings: Settings, job_ids: Sequence[str]
) -> list[ResultSummary | None]:
    """The summaries of the jobs' results; None for a missing or unreadable result. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    summaries: list[ResultSummary | None] = []
    for start in range(0, len(job_ids), _RESULTS_AT_ONCE):
        with store_errors():
            names = [keys.result(job_id) for job_id in job_ids[start : start + _RESULTS_AT_ONCE]]
            values: list[Any] = await execute_raw(client, "MGET", *names)
        summaries += await asyncio.to_thread(_parse_summaries, values)
    return summaries


def _parse_summaries(values: Sequence[bytes | None]) -> list[ResultSummary | None]:
    return [parse_result_summary(value) for value in values]


def parse_result_summary(stored: bytes | None) -> ResultSummary | None:
    """The summary of a stored result; None for a missing or unreadable result."""
    if stored is None:
        return None
    try:
        return ResultSummary.model_validate_json(decompress(stored))
    except ValueError as error:
        log.warning("skipping a result that can't be read: %s", error)
        return None

"""Reading what is stored: records, specs and result summaries, one at a time or in pages, newest first.

Fields that a newer version wrote are left out, not refused. A page costs a bounded number of reads: where few records
match, it is short, and its cursor goes on. A cursor stands for a time in ms and a job id, which order every index. A
result summary is parsed in a tenth of the time that the whole result takes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

import redis.asyncio
from pydantic import ValidationError

from dyno.errors import FieldError, InvalidSpec, RecordUnreadable
from dyno.models.job import DONE, Holder, Job, QueuePlace, Status, Stored, Urls
from dyno.models.result import Metric, Verdict
from dyno.models.spec import InterleavedSpec, Spec, Webhook, spec_without_unknown_fields
from dyno.settings import Settings
from dyno.store.redis import JOB_ID, Keys, store_errors

log = logging.getLogger(__name__)
T = TypeVar("T")

_JSON_FIELDS = ("failure", "progress", "worker", "warnings")
_TIMES = ("created_at", "queued_at", "started_at", "finished_at", "cancel_requested_at")


class QueueState(NamedTuple):
    """How a job waits, see `dyno.models.job.QueuePlace`; without arguments: it doesn't."""

    position: int | None = None
    passed_over: bool = False
    eta_s: float | None = None


def to_job(record: Mapping[str, str], queue_state: QueueState) -> Job:
    """The Job of a record's fields; `queue_state` is how it waits. The attempt's token never gets out.

    Raises RecordUnreadable where a field is missing, damaged or has a value this version doesn't know.
    """
    try:
        return _read(record, queue_state)
    except (ValueError, KeyError, TypeError) as error:  # ValueError: also of JSON, of Status and of the models
        raise _unreadable(f"the record of {record.get('id', 'a job')}", error) from error


def parse_stored(read: Callable[[str], T], text: str, what: str) -> T:
    """What `read`, a model's `model_validate_json` say, makes of stored JSON. Raises RecordUnreadable for `what`."""
    try:
        return read(text)
    except ValidationError as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> RecordUnreadable:
    log.warning("%s can't be read: %s: %s", what, type(error).__name__, error)
    return RecordUnreadable(f"{what} is damaged, or was written by another version of Dyno")


def _read(record: Mapping[str, str], queue_state: QueueState) -> Job:
    job_id, status = record["id"], Status(record["status"])
    fields: dict[str, Any] = {name: json.loads(record[name]) for name in _JSON_FIELDS if name in record}
    if status in DONE and "progress" in fields:
        fields["progress"] |= {"fraction": 1.0, "eta_s": 0.0} if status is Status.SUCCEEDED else {"eta_s": None}
    fields |= {name: to_datetime(record[name]) for name in _TIMES if name in record}
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


def to_datetime(seconds: str) -> datetime:
    """Seconds since 1970 by Redis' clock, as text, to a time in UTC."""
    return datetime.fromtimestamp(float(seconds), UTC)


def _urls(job_id: str) -> Urls:
    root = f"/v1/jobs/{job_id}"
    return Urls(self=root, result=f"{root}/result", cancel=f"{root}/cancel", events=f"{root}/events")


_POSITION = re.compile(rf"(\d{{1,15}}):({JOB_ID.pattern})", re.ASCII)

IndexPosition = tuple[int, str]  # a time in ms by Redis' clock, and the job's id: what an index is ordered by


async def read_positions(
    client: redis.asyncio.Redis,
    index: str,
    after: IndexPosition | None,
    count: int,
    newer_than: datetime | None = None,
    older_than: datetime | None = None,
) -> list[IndexPosition]:
    """The next `count` places behind `after`, fewer only at the end; within a millisecond by descending id."""
    newest: Any = "+inf" if older_than is None else _millis(older_than)
    oldest: Any = "-inf" if newer_than is None else _millis(newer_than)
    if after is not None:
        newest = after[0] if newest == "+inf" else min(newest, after[0])
    found: list[IndexPosition] = []
    offset = 0
    while len(found) < count:
        entries: Sequence[Any] = await client.zrange(
            index, newest, oldest, desc=True, byscore=True, offset=offset, num=count, withscores=True
        )
        rows = [(int(score), job_id) for job_id, score in entries]
        found += [row for row in rows if after is None or row < after]
        if len(rows) < count:
            break
        offset += count
    return found[:count]


def _millis(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def encode_cursor(place: IndexPosition) -> str:
    return base64.urlsafe_b64encode(f"{place[0]}:{place[1]}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> IndexPosition:
    """The place that a cursor stands for. Raises InvalidSpec, pointing at /cursor."""
    with contextlib.suppress(ValueError):  # binascii's and Unicode's errors are ValueErrors
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        if (parts := _POSITION.fullmatch(text)) is not None:
            return int(parts[1]), parts[2]
    wrong = FieldError("/cursor", "invalid-cursor", "this cursor is not one that this list has returned")
    raise InvalidSpec([wrong])


_STEP = 50  # records read at a time, or one more than the page has: about 10 ms of the event loop
_MOST_STEPS = 10

ReadMatching = Callable[
    [Sequence[IndexPosition]], Awaitable[Sequence[T | None]]
]  # null for what is not wanted, or not there


@dataclass(frozen=True)
class RecordPage(Generic[T]):
    data: list[T]
    next_cursor: str | None
    has_more: bool


@dataclass(frozen=True)
class JobIndex:
    """The key of a ZSET of jobs by time, and between which times, both exclusive, records are wanted."""

    key: str
    after: datetime | None
    before: datetime | None


async def read_page(
    client: redis.asyncio.Redis, index: JobIndex, fitting: ReadMatching[T], cursor: str | None, limit: int
) -> RecordPage[T]:
    """At most `limit` records that come after the cursor's. Raises InvalidSpec for a cursor of another make."""
    place = None if cursor is None else decode_cursor(cursor)
    step = max(_STEP, limit + 1)
    found: list[tuple[IndexPosition, T]] = []
    for _ in range(_MOST_STEPS):
        behind = await read_positions(client, index.key, place, step, index.after, index.before)
        records = await fitting(behind)
        found += [(at, record) for at, record in zip(behind, records, strict=True) if record is not None]
        if len(found) > limit:
            return _page(found[:limit], found[limit - 1][0])
        if len(behind) < step:
            return _page(found, None)
        place = behind[-1]
    return _page(found, place)


def _page(found: Sequence[tuple[IndexPosition, T]], goes_on_at: IndexPosition | None) -> RecordPage[T]:
    cursor = None if goes_on_at is None else encode_cursor(goes_on_at)
    return RecordPage([record for _, record in found], cursor, has_more=cursor is not None)


_RESULTS_AT_ONCE = 25  # results: some have a hundred runs


class ResultSummary(Stored):
    """Some fields of `dyno.models.result.Result`."""

    verdict: Verdict
    metrics: list[Metric]
    hardware_id: str | None = None
    device: dict[str, Any] = {}
    arms: list[ResultSummary] = []


async def read_result_summaries(
    client: redis.asyncio.Redis, settings: Settings, job_ids: Sequence[str]
) -> list[ResultSummary | None]:
    """Null where there is no result, or one that can't be read here. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    found: list[ResultSummary | None] = []
    for start in range(0, len(job_ids), _RESULTS_AT_ONCE):
        with store_errors():
            texts: list[Any] = await client.mget(
                [keys.result(job_id) for job_id in job_ids[start : start + _RESULTS_AT_ONCE]]
            )
        found += [parse_result_summary(text) for text in texts]
    return found


def parse_result_summary(text: str | None) -> ResultSummary | None:
    """Of a stored result; null where there is none, or it can't be read here."""
    if text is None:
        return None
    try:
        return ResultSummary.model_validate_json(text)
    except ValidationError as error:
        log.warning("the figures of a result can't be read: %s", error)
        return None

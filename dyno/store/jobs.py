"""The API's operations on jobs: submit, get, cancel, delete, list; results, samples, logs and comparisons.

Logs are the last 256 KiB of the runners' output, in the pieces that heartbeats delivered. A comparison is kept until
the first of its jobs expires or is deleted.
"""

import asyncio
import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis.asyncio
from pydantic import ValidationError
from pydantic_core import to_json

from dyno import errors
from dyno.models.api_key import EVERYBODY, Limits, Viewer
from dyno.models.baseline import Baseline
from dyno.models.comparison import Comparison
from dyno.models.job import DONE, SCHEMA, Job, SpecWarning, Status, new_job_id
from dyno.models.result import PartialMetrics, Result, RunSamples
from dyno.models.spec import InterleavedSpec, Priority, Spec
from dyno.settings import Settings
from dyno.store import api_keys, artifacts, eta, placement
from dyno.store.list_pages import IndexPosition, RecordPage, decode_cursor, encode_cursor
from dyno.store.pipelining import CachedScript, PipeliningRedis
from dyno.store.records import SHAPE, StoredJob, eta_now_s, listed_record, parse_stored
from dyno.store.redis import JOB_ID, SCRIPT_SOURCES, Keys, Script, index_errors, pipelined, store_errors
from dyno.store.stored_results import StoredResult, decode_samples


@dataclass(frozen=True)
class JobQuery:
    """Filters of a list, combined with AND; None matches any job.

    device: the kind or id that the job requested, or of the device that took the job. An id may omit the host.
    label: "name" or "name=value". Times are exclusive. owner: the id of an API key.
    """

    status: Status | None = None
    workload: str | None = None
    device: str | None = None
    framework: str | None = None
    label: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    owner: str | None = None
    imported: bool | None = None

    def filters(self) -> list[str]:
        """Names and values of the filters, for list.lua."""
        times = {"after": self.created_after, "before": self.created_before}
        texts = {name: f"{time.timestamp():.6f}" for name, time in times.items() if time is not None}
        for name in ("status", "workload", "owner", "device", "framework", "label"):
            if (value := getattr(self, name)) is not None:
                texts[name] = value
        if self.imported is not None:
            texts["imported"] = "true" if self.imported else "false"
        return [part for pair in texts.items() for part in pair]


_Reply = list[Any]
Fetched = asyncio.Future[Any]  # the reply to a command that was sent

_MOST_LOOKED_AT = 800  # maximum index entries of one step, about 1 ms of Redis; a record counts as eight entries
_MOST_TAKEN = 100  # jobs of one step
_MOST_STEPS = 10
_SMALL = 50  # a page of up to 50 jobs doesn't wait for other pages, because it takes little time
_MADE_AT_ONCE = 50  # documents made before other tasks of the event loop run, less than 1 ms


class JobListing:
    """Reads pages of jobs, and removes the index entries of expired records that it finds.

    A step is one call of list.lua, which reads a limited number of index entries. A page takes further steps only if it
    isn't full after the first one; if it isn't full after the last step, it is short and has a cursor. Pages with
    filters and large pages run one step at a time, so that other requests wait for one step at most.
    """

    def __init__(self, client: PipeliningRedis, keys: Keys, foresee: eta.GetForecast, script: CachedScript) -> None:
        self._client, self._keys, self._foresee, self._script = client, keys, foresee, script
        self._turn = asyncio.Lock()

    def send(self, query: JobQuery, limit: int) -> Fetched:
        """Send the first step of the first page."""
        return self._script.send([], self._args(query.filters(), limit, None))

    async def page(
        self, query: JobQuery, limit: int, cursor: str | None = None, sent: Fetched | None = None
    ) -> RecordPage[StoredJob]:
        """At most `limit` jobs after the cursor. `sent`: the future from `send`, if there is no cursor.

        Raises InvalidSpec for an invalid cursor.
        """
        position = None if cursor is None else decode_cursor(cursor)
        jobs: list[StoredJob] = []
        taken = 0
        filters = query.filters()
        is_small = limit <= _SMALL and query == JobQuery(owner=query.owner)
        turn = contextlib.nullcontext() if is_small else self._turn
        for _ in range(_MOST_STEPS):
            args = self._args(filters, limit - taken, position)
            async with turn:
                rows, running, outcome, *last, index, gone = await self._script([], args, sent)
            sent = None
            if gone:
                await self._client.zrem(index, *gone)
            taken += len(rows)
            jobs += await self._shown(rows, running)
            if outcome == "end":
                return RecordPage(jobs, None, has_more=False)
            position = (int(last[0]), str(last[1]))
            if taken == limit:
                break
        return RecordPage(jobs, position and encode_cursor(position), has_more=True)

    def _args(self, filters: Sequence[str], most: int, position: IndexPosition | None) -> list[Any]:
        return [self._keys.namespace, min(most, _MOST_TAKEN), _MOST_LOOKED_AT, *(position or ("", "")), *filters]

    async def _shown(self, rows: Sequence[Sequence[Any]], running: Collection[str]) -> list[StoredJob]:
        """The readable jobs: an unreadable record mustn't hide all others."""
        records = []
        for made, (text, *_) in enumerate(rows, start=1):
            records.append(listed_record(text))
            if made % _MADE_AT_ONCE == 0:
                await asyncio.sleep(0)
        places = [eta.Place(*[*rest, None, None, None][:3]) for _, *rest in rows]
        states = await eta.queue_states([record.fields for record in records], places, running, self._foresee)
        jobs = []
        for record, state in zip(records, states, strict=True):
            stored = StoredJob(record.fields, state, around_place=record.around_place)
            with contextlib.suppress(errors.RecordUnreadable):  # logged already
                if stored.document:
                    jobs.append(stored)
        return jobs


def parse_read(reply: Sequence[Any]) -> tuple[list[dict[str, str]], list[eta.Place], Collection[str]]:
    """The reply of read.lua: the records ({} if missing), the places of waiting jobs, and the running jobs."""
    jobs, running = reply
    records = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat, *_ in jobs]
    places = [eta.Place(*[*rest, None, None, None][:3]) for _, *rest in jobs]
    return records, places, running


IDEMPOTENCY_S = 24 * 3600
_PRIORITY_CLASSES: dict[Priority, int] = {"high": 0, "normal": 1, "low": 2}
_SCRIPTS = (Script.SUBMIT, Script.READ, Script.LIST, Script.CANCEL, Script.DELETE)
_NOT_FOR_WORKERS: Any = {"webhook": True, "against": {"webhook"}}  # the URL may be secret; it has a field of its own


@dataclass(frozen=True)
class Submitted:
    """`wake`: an idle worker may have to be woken for the job. `replayed`: an earlier request made the job."""

    stored: StoredJob
    wake: bool
    replayed: bool

    @property
    def job(self) -> Job:
        return self.stored.job()


@dataclass(frozen=True)
class Canceled:
    """`changed`: False if the cancel had been requested before."""

    job: Job
    changed: bool


class Jobs:
    """Every method raises StoreUnavailable while Redis is unreachable, full or read-only.

    `viewer`: the owner of new jobs; jobs that the viewer may not see raise UnknownJob. `foresee`: returns the forecast
    of when waiting jobs are likely to be claimed.
    """

    def __init__(self, client: PipeliningRedis, settings: Settings, foresee: eta.GetForecast = eta.no_forecast) -> None:
        self._client, self._foresee = client, foresee
        self._keys = Keys(settings.namespace)
        self.max_queued = settings.max_queued
        self.max_queued_per_key = max(1, int(settings.max_queued * settings.key_queue_share))
        self._scripts = {script: client.cached_script(SCRIPT_SOURCES[script]) for script in _SCRIPTS}
        self._listing = JobListing(client, self._keys, foresee, self._scripts[Script.LIST])
        self.viewer = EVERYBODY
        self._of_viewers = {EVERYBODY: self}

    def seen_by(self, viewer: Viewer) -> "Jobs":
        """A copy of this object for another `viewer`. There is one copy for each viewer."""
        if viewer not in self._of_viewers:
            self._of_viewers[viewer] = seen = copy(self)
            seen.viewer = viewer
        return self._of_viewers[viewer]

    async def earlier(self, idempotency_key: str, body_sha256: str) -> Submitted | None:
        """The job that a request with the same key and body made in the last 24 hours; None if there is no such job.

        A retry that admission refuses gets this job. Otherwise a client that lost the first response could get
        `no-device-fits` for a job that is queued.
        """
        with store_errors():
            record: Any = await self._client.hgetall(self._keys.idempotency(self.viewer.owner, idempotency_key))
        if record.get("body_sha256") != body_sha256:
            return None
        try:
            return Submitted(await self.read(record["job"]), wake=False, replayed=True)
        except errors.UnknownJob:  # expired in between
            return None

    async def submit(
        self,
        spec: Spec,
        *,
        warnings: Sequence[SpecWarning] = (),
        fits: Mapping[str, bool] | None = None,
        idempotency_key: str | None = None,
        body_sha256: str | None = None,
        rerun_of: str | None = None,
        traceparent: str | None = None,
        baseline: Baseline | None = None,
        uncharged: bool = False,
    ) -> Submitted:
        """Queue a job for the viewer, check limits and store the idempotency key (24 h, per owner), in one atomic step.

        `fits`: whether the job fits, by device profile; for other profiles the worker decides during its claim.
        `traceparent`: the trace that its attempts continue. `baseline`: the spec's baseline, which the job keeps.
        `uncharged`: the service itself submits the job, so the limits of the viewer's key don't apply.
        Raises IdempotencyKeyReused (same key, other body), JobExpired (same key, the job is gone), QueueFull and
        LimitReached.
        """
        job_id, owner = new_job_id(), self.viewer.owner
        keys = [self._keys.job(job_id)]
        if idempotency_key is not None:
            keys.append(self._keys.idempotency(owner, idempotency_key))
        kept = None if baseline is None else baseline.model_dump_json(by_alias=True)
        more = {
            "rerun_of": rerun_of,
            "traceparent": traceparent,
            "baseline": kept,
            "uncharged": "1" if uncharged else None,
        }
        record = self.new_record(spec, warnings, fits or {}, **more)
        queue = placement.queue_for(spec.device, spec.framework)
        args = self.submit_args(job_id, spec, queue, record, body_sha256)
        reply = await self._run(Script.SUBMIT, keys, args)
        check_accepted(reply, self.max_queued)
        outcome, flat, position, wake, running = reply
        given = {} if outcome == "replayed" else {"id": job_id, "workload": spec.workload, "queue": queue} | record
        written = given | dict(zip(flat[::2], flat[1::2], strict=True))
        queue_state = await eta.new_queue_state(written, position, running, self._foresee)
        return Submitted(StoredJob(written, queue_state, new=True), wake=bool(wake), replayed=outcome == "replayed")

    def new_record(
        self, spec: Spec, warnings: Sequence[SpecWarning], fits: Mapping[str, bool], **more: str | None
    ) -> dict[str, str]:
        """The fields of the viewer's new job that submit.lua doesn't add, and the fields of `more` that aren't None."""
        given = {"owner": self.viewer.owner, **more}
        return _new_record(spec, warnings, fits) | {name: text for name, text in given.items() if text is not None}

    def submit_args(
        self, job_id: str, spec: Spec, queue: str, record: Mapping[str, str], body_sha256: str | None = None
    ) -> list[Any]:
        """The arguments of submit.lua after the namespace."""
        args: list[Any] = [job_id, spec.workload, queue, _PRIORITY_CLASSES[spec.priority], self.max_queued]
        args += [body_sha256 or "", IDEMPOTENCY_S * 1000, self.max_queued_per_key]
        return args + [part for field in record.items() for part in field]

    async def get(self, job_id: str) -> Job:
        """The current state of the job. Raises UnknownJob, RecordUnreadable."""
        return (await self.read(job_id)).job()

    def fetch(self, job_id: str) -> Fetched:
        """Send the command that `read` waits for, in one round trip with the commands that follow."""
        self._known(job_id)
        return self._scripts[Script.READ].send([], [self._keys.namespace, job_id])

    async def read(self, job_id: str, fetched: Fetched | None = None) -> StoredJob:
        """Like `get`, but without building a model. `fetched`: the future from `fetch`. Raises UnknownJob."""
        reply = await self._run(Script.READ, [], [job_id], fetched or self.fetch(job_id))
        records, places, running = parse_read(reply)
        if "status" not in records[0] or not self.viewer.sees(records[0].get("owner")):
            raise _unknown_job(job_id)
        [state] = await eta.queue_states(records, places, running, self._foresee)
        return StoredJob(records[0], state)

    async def read_all(self, job_ids: Sequence[str]) -> list[StoredJob | None]:
        """Read several jobs, without checking that the viewer may see them. None for a job without a record."""
        jobs: list[StoredJob | None] = []
        for at in range(0, len(job_ids), _SMALL):
            records, places, running = parse_read(await self._run(Script.READ, [], job_ids[at : at + _SMALL]))
            states = await eta.queue_states(records, places, running, self._foresee)
            stored = zip(records, states, strict=True)
            jobs += [StoredJob(record, state) if "status" in record else None for record, state in stored]
        return jobs

    async def ends_s(self, stored: Sequence[StoredJob]) -> float | None:
        """Seconds until all of these jobs are likely to be done; None if unknown."""
        running = [job for job in stored if job.record["status"] == Status.RUNNING]
        queued = [job for job in stored if job.record["status"] == Status.QUEUED]
        forecast = await self._foresee([job.id for job in running]) if queued else eta.Forecast()
        ends = [eta_now_s(job.record) for job in running] + [forecast.ends_s.get(job.id) for job in queued]
        known_ends = [end_s for end_s in ends if end_s is not None]
        return max(known_ends, default=0.0) if len(known_ends) == len(ends) else None

    async def cancel(self, job_id: str) -> Canceled:
        """Cancel a waiting job at once, or ask the worker of a running job to stop it.

        Raises UnknownJob, JobFinished.
        """
        await self._check_seen(job_id)
        reply = await self._run(Script.CANCEL, [self._known(job_id)], [job_id])
        if reply[0] == "unknown":
            raise _unknown_job(job_id)
        if reply[0] == "finished":
            raise errors.JobFinished(f"{job_id} can't be canceled: it is done, with the status {reply[1]}")
        return Canceled(await self.get(job_id), changed=reply[0] != "already")

    async def delete(self, job_id: str) -> str | None:
        """Delete a done job from the store; the caller deletes its files. Returns its owner.

        Raises UnknownJob, JobLive.
        """
        await self._check_seen(job_id)
        keys = [self._known(job_id), self._keys.artifacts]
        reply = await self._run(Script.DELETE, keys, [job_id, round(artifacts.SETTLED_S * 1000)])
        if reply[0] == "unknown":
            raise _unknown_job(job_id)
        if reply[0] == "live":
            raise errors.JobLive(f"{job_id} is {reply[1]}; cancel it first, or wait until it ends")
        return reply[1] or None

    async def result(self, job_id: str) -> Result:
        """The job's result. Raises UnknownJob, RecordUnreadable. If there is no result: ResultNotReady, or NoResult if
        the job is done. Both errors carry the job's status.
        """
        return (await self.stored_result(job_id)).result()

    def fetch_result(self, job_id: str) -> tuple[Fetched, Fetched]:
        """Send the commands that `stored_result` waits for; see `fetch`."""
        return self._fetch_owned(self._keys.result(job_id), job_id)

    async def stored_result(self, job_id: str, fetched: tuple[Fetched, Fetched] | None = None) -> StoredResult:
        """Like `result`, but without building a model. `fetched`: the futures from `fetch_result`."""
        return StoredResult(job_id, await self._answer(fetched or self.fetch_result(job_id), job_id))

    async def samples(self, job_id: str) -> Sequence[RunSamples]:
        """The raw samples that the job's result is computed from. Raises the errors of `result`."""
        return decode_samples(await self._answer(self._fetch_owned(self._keys.samples(job_id), job_id), job_id), job_id)

    def _fetch_owned(self, key: str, job_id: str) -> tuple[Fetched, Fetched]:
        return self._client.send("HGET", self._known(job_id), "owner"), self._client.send("GET", key, raw=True)

    async def _answer(self, fetched: tuple[Fetched, Fetched], job_id: str) -> bytes:
        """The value that the job stored under the fetched key when it succeeded."""
        with store_errors():
            owner, stored = [await future for future in fetched]
        if not self.viewer.sees(owner):
            raise _unknown_job(job_id)
        if stored is None:
            raise _without_result(await self.get(job_id))
        return bytes(stored)

    async def list(self, **filters: Any) -> RecordPage[Job]:
        """Like `browse`, but with models of the jobs."""
        page = await self.browse(**filters)
        jobs: list[Job] = []
        for stored in page.data:
            with contextlib.suppress(errors.RecordUnreadable):  # logged already
                jobs.append(stored.job())
        return RecordPage(jobs, page.next_cursor, page.has_more)

    async def browse(
        self,
        *,
        status: Status | None = None,
        workload: str | None = None,
        device: str | None = None,
        framework: str | None = None,
        label: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        imported: bool | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> RecordPage[StoredJob]:
        """One page of jobs, newest first. Raises InvalidSpec for an invalid cursor."""
        times = (created_after, created_before)
        query = JobQuery(status, workload, device, framework, label, *times, self._owner, imported)
        async with index_errors(self._client, self._keys):
            return await self._listing.page(query, limit, cursor)

    def fetch_first(self, limit: int) -> Fetched:
        """Send the command that `browse_first` waits for; see `fetch`."""
        return self._listing.send(JobQuery(owner=self._owner), limit)

    async def browse_first(self, limit: int, fetched: Fetched | None = None) -> RecordPage[StoredJob]:
        """The first page of all jobs that the viewer may see. `fetched`: the future from `fetch_first`."""
        async with index_errors(self._client, self._keys):
            return await self._listing.page(JobQuery(owner=self._owner), limit, sent=fetched)

    @property
    def _owner(self) -> str | None:
        return None if self.viewer.sees_all else self.viewer.owner

    async def visible(self, job_ids: Collection[str]) -> set[str]:
        """The ids of jobs that the viewer may see. A viewer that sees all jobs gets all ids, even of missing jobs."""
        if self.viewer.sees_all or not job_ids:
            return set(job_ids)
        owners = await pipelined(self._client, [("hget", self._keys.job(job_id), "owner") for job_id in job_ids])
        return {job_id for job_id, owner in zip(job_ids, owners, strict=True) if self.viewer.sees(owner)}

    async def _check_seen(self, job_id: str) -> None:
        self._known(job_id)
        if not await self.visible([job_id]):
            raise _unknown_job(job_id)

    def _known(self, job_id: str) -> str:
        """The record's key. Raises UnknownJob for a malformed id, so that no id can name another kind of key."""
        if JOB_ID.fullmatch(job_id) is None:
            raise _unknown_job(job_id)
        return self._keys.job(job_id)

    async def _run(
        self, script: Script, keys: Sequence[str], args: Sequence[Any], sent: Fetched | None = None
    ) -> _Reply:
        with store_errors():
            reply: _Reply = await self._scripts[script](keys, [self._keys.namespace, *args], sent)
        return reply


def _new_record(spec: Spec, warnings: Sequence[SpecWarning], fits: Mapping[str, bool]) -> dict[str, str]:
    record = {
        "schema": str(SCHEMA),
        "spec": spec.model_dump_json(exclude=_NOT_FOR_WORKERS),
        "expires_in_s": str(spec.expires_in_s),
        "warnings": to_json(list(warnings)).decode(),
        "fits": placement.encode_fits(fits),
        "needs": placement.needs(spec),
    }
    if spec.webhook is not None:
        record["webhook"] = spec.webhook.url
    if not isinstance(spec, InterleavedSpec):
        record["shape"] = SHAPE
    return record


def check_accepted(reply: Sequence[Any], max_queued: int) -> None:
    """Raises the error for a refusal by submit.lua."""
    if reply[0] == "key_reused":
        raise errors.IdempotencyKeyReused("this idempotency key was used with another body in the last 24 hours")
    if reply[0] == "gone":
        raise errors.JobExpired(f"this idempotency key made {reply[1]}, which has expired; use a new key for a new job")
    if reply[0] == "full":
        raise api_keys.queue_full(max_queued, reply[1])
    if reply[0] in Limits.model_fields:
        raise api_keys.limit_reached(*reply)


def _without_result(job: Job) -> errors.ResultNotReady:
    if not job.done:
        return errors.ResultNotReady(f"{job.id} is {job.status} and has no result yet", job.status)
    if job.status is Status.CANCELED:
        return errors.NoResult(f"{job.id} was canceled and has no result", job.status)
    why = f": {job.failure.reason}: {job.failure.message}" if job.failure else ""
    return errors.NoResult(f"{job.id} {job.status} and has no result{why}", job.status)


def _unknown_job(job_id: str) -> errors.UnknownJob:
    return errors.UnknownJob(f"there is no job {job_id}")


_PIECES_AT_ONCE = 1000  # a runner that prints a character every 2 s leaves thousands of pieces in an hour or two
_LEFT_OUT = "[earlier output was dropped]\n"


@dataclass(frozen=True)
class LogPart:
    """`following`: the number of the next piece. `done`: the job is done, so no piece follows."""

    text: str
    following: int
    done: bool


async def read_log(
    client: redis.asyncio.Redis, settings: Settings, job_id: str, start: int = 0, viewer: Viewer = EVERYBODY
) -> LogPart:
    """The stored pieces from number `start` on. Raises UnknownJob, StoreUnavailable."""
    keys = Keys(settings.namespace)
    with store_errors():
        # Read the status first: if the job is done, the read below finds all pieces.
        commands = [("hmget", keys.job(job_id), "status", "owner"), ("hmget", keys.log(job_id), "first", "next")]
        (status, owner), (first, following) = await pipelined(client, commands)
        if status is None or not viewer.sees(owner):
            raise _unknown_job(job_id)
        numbers = range(max(start, int(first or 0)), int(following or 0))
        texts: list[Any] = []
        for at in range(0, len(numbers), _PIECES_AT_ONCE):
            texts += await client.hmget(keys.log(job_id), *map(str, numbers[at : at + _PIECES_AT_ONCE]))
    pieces = [text for text in texts if text is not None]  # None: dropped since
    missing = len(pieces) < int(following or 0) - start
    return LogPart((_LEFT_OUT if missing else "") + "".join(pieces), int(following or 0), status in DONE)


async def read_partial_metrics(
    client: redis.asyncio.Redis, settings: Settings, job_id: str
) -> Sequence[PartialMetrics]:
    """The figures after each completed run of the current attempt, in no order. Raises StoreUnavailable.

    Unreadable figures, written by another version, are left out.
    """
    with store_errors():
        texts: Any = await client.hvals(Keys(settings.namespace).partial(job_id))
    figures = list[PartialMetrics]()
    for text in texts:
        with contextlib.suppress(ValidationError):
            figures.append(PartialMetrics.model_validate_json(text))
    return figures


COMPARISON_ID = re.compile(r"cmp_[0-9A-HJKMNP-TV-Z]{26}")  # as made by dyno.models.comparison.new_comparison_id
_GONE = -2  # PTTL's reply for a missing key


class Comparisons:
    """The viewer's comparisons. Every method raises StoreUnavailable while Redis is unreachable, full or read-only."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, viewer: Viewer = EVERYBODY) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._viewer = viewer

    async def keep(self, comparison: Comparison) -> None:
        """Store a comparison under its `owner`. Raises UnknownJob if one of its jobs has just expired.

        It is written once and never changed, so no script is needed.
        """
        jobs = [result.job for result in comparison.results]
        lives_ms = await pipelined(self._client, [("pttl", self._keys.job(job_id)) for job_id in jobs])
        if _GONE in lives_ms:
            raise errors.UnknownJob(f"the job {jobs[lives_ms.index(_GONE)]} has expired or was deleted")
        text = comparison.model_dump_json(by_alias=True)
        with store_errors():
            await self._client.set(self._keys.comparison(comparison.id), text, px=_life_ms(lives_ms))

    async def get(self, comparison_id: str) -> Comparison:
        """Raises UnknownComparison, RecordUnreadable."""
        text: Any = None
        if COMPARISON_ID.fullmatch(comparison_id):
            with store_errors():
                text = await self._client.get(self._keys.comparison(comparison_id))
        if text is None:
            raise _unknown_comparison(comparison_id)
        comparison = parse_stored(Comparison.model_validate_json, text, f"the comparison {comparison_id}")
        if not self._viewer.sees(comparison.owner):
            raise _unknown_comparison(comparison_id)
        records = {self._keys.job(result.job) for result in comparison.results}
        with store_errors():
            existing = await self._client.exists(*records)
        if existing < len(records):
            raise errors.UnknownComparison(f"{comparison_id} is gone, because one of its jobs was deleted")
        return comparison


def _unknown_comparison(comparison_id: str) -> errors.UnknownComparison:
    return errors.UnknownComparison(f'there is no comparison "{comparison_id[:64]}"')


def _life_ms(lives_ms: Sequence[int]) -> int | None:
    """The shortest remaining life of the jobs, from PTTL of each; None if no job expires.

    PTTL returns 0 in a job's last millisecond. SET doesn't accept 0 as an expiry, so the minimum is 1.
    """
    ends_ms = [ms for ms in lives_ms if ms >= 0]
    return max(1, min(ends_ms)) if ends_ms else None

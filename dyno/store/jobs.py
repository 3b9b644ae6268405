"""What callers do with jobs: submit, look, cancel, list, read the result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import redis.asyncio
from pydantic import TypeAdapter
from pydantic_core import to_json

from dyno.errors import IdempotencyKeyReused, JobExpired, JobFinished, JobLive, NoResult, ResultNotReady, UnknownJob
from dyno.models.api_key import EVERYBODY, Limits, Viewer
from dyno.models.job import SCHEMA, Job, SpecWarning, Status, new_job_id
from dyno.models.result import Result, RunSamples
from dyno.models.spec import Priority, Spec
from dyno.settings import Settings
from dyno.store.artifacts import SETTLED_S
from dyno.store.connect import store_errors
from dyno.store.fitting import packed
from dyno.store.keys import JOB_ID, Keys
from dyno.store.limits import full, refused
from dyno.store.listing import Listing, Wanted
from dyno.store.pages import Page
from dyno.store.queues import queue_for
from dyno.store.records import Standing, stored, to_job
from dyno.store.scripts import SOURCES, Script
from dyno.store.standing import Foresee, foresee_nothing, standing_of, standings

IDEMPOTENCY_S = 24 * 3600
_CLASSES: dict[Priority, int] = {"high": 0, "normal": 1, "low": 2}
_OURS = (Script.SUBMIT, Script.CANCEL, Script.DELETE)
_NOT_FOR_WORKERS: Any = {"webhook": True, "against": {"webhook"}}  # it may tell a secret, and has a field of its own
_Reply = list[Any]
_SAMPLES = TypeAdapter(list[RunSamples])


@dataclass(frozen=True)
class Submitted:
    """`wake`: somebody rests who doesn't know of the job yet. `replayed`: an earlier request made it."""

    job: Job
    wake: bool
    replayed: bool


@dataclass(frozen=True)
class Canceled:
    """`changed`: false where the cancel had been asked for before."""

    job: Job
    changed: bool


class Jobs:
    """Every method raises StoreUnavailable while Redis is away, full or read-only.

    `viewer`: for whom jobs are made, and whose are there at all; those of others are unknown jobs. `foresee`: when
    waiting jobs are likely to be claimed.
    """

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, foresee: Foresee = foresee_nothing) -> None:
        self._client, self._foresee = client, foresee
        self._keys = Keys(settings.namespace)
        self._max_queued = settings.max_queued
        self._scripts = {script: client.register_script(SOURCES[script]) for script in _OURS}
        self._listing = Listing(client, self._keys, foresee)
        self.viewer = EVERYBODY

    def seen_by(self, viewer: Viewer) -> Self:
        """The same jobs, as far as they are there for `viewer`."""
        seen = copy(self)
        seen.viewer = viewer
        return seen

    async def earlier(self, idempotency_key: str, body_sha256: str) -> Job | None:
        """The job that the same key and body made in the last 24 hours. A hint: submit.lua decides.

        It spares a retry the admission: a caller whose first answer was lost would else be told `no-device-fits`
        about a job that is queued.
        """
        with store_errors():
            found: Any = await self._client.hgetall(self._keys.idempotency(self.viewer.owner, idempotency_key))
        if found.get("body_sha256") != body_sha256:
            return None
        try:
            return await self.get(found["job"])
        except UnknownJob:  # expired in between
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
    ) -> Submitted:
        """Queue a job of the viewer's, in one atomic step with its idempotency key (24 h, per owner) and its limits.

        `fits`: whether it fits a device, by profile; workers of other profiles are asked when they come for it.
        `traceparent`: the trace that its attempts will go on with.
        Raises IdempotencyKeyReused (same key, other body), JobExpired (same key, the job is gone), QueueFull and
        LimitReached.
        """
        job_id, owner = new_job_id(), self.viewer.owner
        keys = [self._keys.job(job_id)]
        if idempotency_key is not None:
            keys.append(self._keys.idempotency(owner, idempotency_key))
        record = {
            "schema": str(SCHEMA),
            "spec": spec.model_dump_json(exclude=_NOT_FOR_WORKERS),
            "expires_in_s": str(spec.expires_in_s),
            "warnings": to_json(list(warnings)).decode(),
            "fits": packed(fits or {}),
        }
        webhook = None if spec.webhook is None else spec.webhook.url
        more = {"owner": owner, "rerun_of": rerun_of, "traceparent": traceparent, "webhook": webhook}
        record |= {name: text for name, text in more.items() if text is not None}
        queue = queue_for(spec.device, spec.framework)
        args: list[Any] = [job_id, spec.workload, queue, _CLASSES[spec.priority], self._max_queued]
        args += [body_sha256 or "", IDEMPOTENCY_S * 1000]
        args += [part for field in record.items() for part in field]
        reply = await self._run(Script.SUBMIT, keys, args)
        if reply[0] == "key_reused":
            raise IdempotencyKeyReused("this idempotency key was used with another body in the last 24 hours")
        if reply[0] == "gone":
            raise JobExpired(f"this idempotency key made {reply[1]}, which has expired; a new job needs a new key")
        if reply[0] == "full":
            raise full(self._max_queued, reply[1])
        if reply[0] in Limits.model_fields:
            raise refused(*reply)
        outcome, flat, position, wake = reply
        written = dict(zip(flat[::2], flat[1::2], strict=True))
        queue_state = await standing_of(self._client, self._keys, written, position, self._foresee)
        return Submitted(to_job(written, queue_state), wake=bool(wake), replayed=outcome == "replayed")

    async def get(self, job_id: str) -> Job:
        """The job as it is now. Raises UnknownJob, RecordUnreadable."""
        with store_errors():
            record: dict[Any, Any] = await self._client.hgetall(self._known(job_id))
            if "status" not in record or not self.viewer.sees(record.get("owner")):
                raise _unknown(job_id)
        found = await standings(self._client, self._keys, [record], self._foresee)
        return to_job(record, found.get(job_id, Standing()))

    async def cancel(self, job_id: str) -> Canceled:
        """Cancel a waiting job at once, a running one by its worker. Raises UnknownJob, JobFinished."""
        await self._check_seen(job_id)
        reply = await self._run(Script.CANCEL, [self._known(job_id)], [job_id])
        if reply[0] == "unknown":
            raise _unknown(job_id)
        if reply[0] == "finished":
            raise JobFinished(f"{job_id} has {reply[1]} already, there is nothing to cancel")
        return Canceled(await self.get(job_id), changed=reply[0] != "already")

    async def delete(self, job_id: str) -> str | None:
        """Take a done job out of the store; its files are the caller's. Returns its owner.

        Raises UnknownJob, JobLive.
        """
        await self._check_seen(job_id)
        keys = [self._known(job_id), self._keys.artifacts]
        reply = await self._run(Script.DELETE, keys, [job_id, round(SETTLED_S * 1000)])
        if reply[0] == "unknown":
            raise _unknown(job_id)
        if reply[0] == "live":
            raise JobLive(f"{job_id} is {reply[1]}: cancel it first, or wait for its end")
        return reply[1] or None

    async def result(self, job_id: str) -> Result:
        """The job's result. Raises UnknownJob, RecordUnreadable, and without one ResultNotReady, or NoResult where the
        job is done (both with its status).
        """
        text = await self._answer(self._keys.result(job_id), job_id)
        return stored(Result.model_validate_json, text, f"the result of {job_id}")

    async def samples(self, job_id: str) -> Sequence[RunSamples]:
        """The readings that the job's result rests on. Raises as `result` does."""
        text = await self._answer(self._keys.samples(job_id), job_id)
        return stored(_SAMPLES.validate_json, text, f"what was read for {job_id}")

    async def _answer(self, key: str, job_id: str) -> str:
        """What the job left under `key` when it succeeded."""
        await self._check_seen(job_id)
        with store_errors():
            text: Any = await self._client.get(key)
        if text is None:
            raise _without_result(await self.get(job_id))
        return str(text)

    async def list(
        self,
        *,
        status: Status | None = None,
        workload: str | None = None,
        device: str | None = None,
        framework: str | None = None,
        label: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Job]:
        """One page of jobs, newest first; see `dyno.store.listing`. Raises InvalidSpec for a cursor it didn't make."""
        owner = None if self.viewer.sees_all else self.viewer.owner
        wanted = Wanted(status, workload, device, framework, label, created_after, created_before, owner)
        with store_errors():
            return await self._listing.page(wanted, cursor, limit)

    async def seen(self, job_ids: Collection[str]) -> set[str]:
        """Those of the jobs that are there for the viewer; for one who sees all of them, all."""
        if self.viewer.sees_all or not job_ids:
            return set(job_ids)
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for job_id in job_ids:
                    pipeline.hget(self._keys.job(job_id), "owner")
                owners: list[str | None] = await pipeline.execute()
        return {job_id for job_id, owner in zip(job_ids, owners, strict=True) if self.viewer.sees(owner)}

    async def _check_seen(self, job_id: str) -> None:
        self._known(job_id)
        if not await self.seen([job_id]):
            raise _unknown(job_id)

    def _known(self, job_id: str) -> str:
        """The record's key, for an id of the right form only: no id may name another kind of key."""
        if JOB_ID.fullmatch(job_id) is None:
            raise _unknown(job_id)
        return self._keys.job(job_id)

    async def _run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> _Reply:
        with store_errors():
            reply: _Reply = await self._scripts[script](keys=keys, args=[self._keys.namespace, *args])
        return reply


def _without_result(job: Job) -> ResultNotReady:
    if not job.done:
        return ResultNotReady(f"{job.id} is {job.status} and has no result yet", job.status)
    if job.status is Status.CANCELED:
        return NoResult(f"{job.id} was canceled and has no result", job.status)
    why = f": {job.failure.reason}: {job.failure.message}" if job.failure else ""
    return NoResult(f"{job.id} {job.status} and has no result{why}", job.status)


def _unknown(job_id: str) -> UnknownJob:
    return UnknownJob(f"there is no job {job_id}")

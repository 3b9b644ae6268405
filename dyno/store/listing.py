"""Jobs, newest first, by the narrowest index that fits; what it doesn't tell is filtered record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import redis.asyncio

from dyno.errors import RecordUnreadable
from dyno.models.job import Job, Status
from dyno.store.keys import Keys
from dyno.store.pages import Index, Page, page_of
from dyno.store.places import Place
from dyno.store.records import Standing, to_job
from dyno.store.standing import Foresee, standings


@dataclass(frozen=True)
class Wanted:
    """All conditions hold together; null means any.

    device: its kind, its id (with or without host) as asked for, or of the worker that runs it. label: "name" or
    "name=value". Times are exclusive. owner: an API key.
    """

    status: Status | None = None
    workload: str | None = None
    device: str | None = None
    framework: str | None = None
    label: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    owner: str | None = None

    def fits(self, job: Job) -> bool:
        return (
            (self.status is None or job.status == self.status)
            and (self.workload is None or job.spec.workload == self.workload)
            and (self.framework is None or job.spec.framework == self.framework)
            and (self.device is None or self.device in _device_names(job))
            and (self.label is None or _has_label(job, self.label))
            and (self.created_after is None or job.created_at > self.created_after)
            and (self.created_before is None or job.created_at < self.created_before)
            and (self.owner is None or job.owner == self.owner)
        )


def _device_names(job: Job) -> set[str | None]:
    names: set[str | None] = {job.spec.device.kind, job.spec.device.id}
    if job.worker is not None:
        short = job.worker.device.partition("@")[0]
        names |= {short.partition(":")[0], short, f"{short}@{job.worker.host}"}
    return names


def _has_label(job: Job, label: str) -> bool:
    """By name, or by name and value; either may have a = in it."""
    labels = job.spec.labels
    return label in labels or any(label == f"{name}={value}" for name, value in labels.items())


class Listing:
    """Reads pages through the API's client; index entries whose record has expired are dropped on the way."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, foresee: Foresee) -> None:
        self._client, self._keys, self._foresee = client, keys, foresee

    async def page(self, wanted: Wanted, cursor: str | None, limit: int) -> Page[Job]:
        """At most `limit` jobs that come after the cursor's. Raises InvalidSpec for a cursor of another make."""
        index = Index(await self._narrowest(wanted), wanted.created_after, wanted.created_before)

        async def fitting(behind: Sequence[Place]) -> list[Job | None]:
            return [job if job and wanted.fits(job) else None for job in await self._jobs(index.key, behind)]

        return await page_of(self._client, index, fitting, cursor, limit)

    async def _narrowest(self, wanted: Wanted) -> str:
        if wanted.owner is not None:  # a cursor names an entry of the index: no other may hold jobs of others
            return self._keys.jobs_of_owner(wanted.owner)
        indexes = [self._keys.jobs]
        if wanted.status is not None:
            indexes.append(self._keys.jobs_with_status(wanted.status))
        if wanted.workload is not None:
            indexes.append(self._keys.jobs_of_workload(wanted.workload))
        if len(indexes) < 3:
            return indexes[-1]
        sizes = [await self._client.zcard(index) for index in indexes]
        return indexes[sizes.index(min(sizes))]

    async def _jobs(self, index: str, behind: Sequence[Place]) -> list[Job | None]:
        async with self._client.pipeline(transaction=False) as pipeline:
            for _, job_id in behind:
                pipeline.hgetall(self._keys.job(job_id))
            records: list[dict[str, str]] = await pipeline.execute()
        gone = [place[1] for place, record in zip(behind, records, strict=True) if "status" not in record]
        if gone:
            await self._client.zrem(index, *gone)
        waiting = await standings(self._client, self._keys, records, self._foresee)
        return [_read(record, waiting.get(place[1], Standing())) for place, record in zip(behind, records, strict=True)]


def _read(record: dict[str, str], queue_state: Standing) -> Job | None:
    """None for a record that has expired or can't be read: one of those must not hide all the others."""
    if "status" not in record:
        return None
    try:
        return to_job(record, queue_state)
    except RecordUnreadable:  # logged already
        return None

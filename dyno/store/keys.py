"""The name of every key. `_ledger.lua` derives the same names; the namespace comes first in each."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

JOB_ID = re.compile(r"job_[0-9A-HJKMNP-TV-Z]{26}")  # what dyno.models.job.new_job_id makes


@dataclass(frozen=True)
class Keys:
    """Key names under one namespace; the type of each key's value is in its comment."""

    namespace: str

    def _key(self, *parts: str) -> str:
        return ":".join((self.namespace, *parts))

    def job(self, job_id: str) -> str:
        return self._key("job", job_id)  # HASH: the record

    def result(self, job_id: str) -> str:
        return self._key("job", job_id, "result")  # STRING: JSON

    def samples(self, job_id: str) -> str:
        return self._key("job", job_id, "samples")  # STRING: JSON

    def log(self, job_id: str) -> str:
        return self._key("job", job_id, "log")  # HASH: pieces by number, and of them: first, next, bytes, last

    def job_events(self, job_id: str) -> str:
        return self._key("job", job_id, "events")  # STREAM

    def webhook(self, job_id: str) -> str:
        return self._key("job", job_id, "webhook")  # HASH: what its receiver is told once it is done, and each attempt

    @property
    def events(self) -> str:
        return self._key("events")  # STREAM: of all jobs

    @property
    def jobs(self) -> str:
        return self._key("jobs")  # ZSET: job ids by creation, ms; so are the two narrower indexes

    def jobs_with_status(self, status: str) -> str:
        return self._key("jobs", "status", status)

    def jobs_of_workload(self, workload: str) -> str:
        return self._key("jobs", "workload", workload)

    def jobs_of_owner(self, owner: str) -> str:
        return self._key("jobs", "owner", owner)  # ZSET, as the others: what one API key made

    def queued_of_owner(self, owner: str) -> str:
        return self._key("jobs", "queued", owner)  # ZSET: those of them that wait

    @property
    def webhooks(self) -> str:
        return self._key("jobs", "webhooks")  # ZSET: done jobs with a webhook by their end, ms; so is that of an owner

    @property
    def webhooks_due(self) -> str:
        return self._key("jobs", "webhooks", "due")  # ZSET: those not delivered yet by when to try next, ms

    @property
    def webhooks_ready(self) -> str:
        return self._key("jobs", "webhooks", "ready")  # ZSET: owners of those that are due, and more; see deliver.lua

    def webhooks_of_owner(self, owner: str) -> str:
        return self._key("jobs", "webhooks", "owner", owner)

    def spent(self, owner: str, day: int) -> str:
        return self._key("spent", owner, str(day))  # HASH {device_ms} with a life of two days; days since 1970

    @property
    def api_keys(self) -> str:
        return self._key("keys")  # ZSET: ids of all API keys ever made, by creation in ms

    @property
    def opened(self) -> str:
        return self._key("key", "opened")  # STRING: when `dyno keys open` let requests without a key in again

    def api_key(self, key_id: str) -> str:
        return self._key("key", key_id)  # HASH: an API key; its secret as a hash, until it is revoked

    def peers(self, series: str) -> str:
        return self._key("peers", series)  # LIST with a life of its own: figures of results, JSON, the newest first

    def paces(self, series: str) -> str:
        return self._key("paces", series)  # LIST with a life of its own: "expected_s took_s", the newest first

    def comparison(self, comparison_id: str) -> str:
        return self._key("comparison", comparison_id)  # STRING: JSON, gone with the first of its jobs

    @property
    def expiring(self) -> str:
        return self._key("expiring")  # ZSET: "id:status:workload[:owner]" of done jobs by when their record goes, ms

    @property
    def counts(self) -> str:
        return self._key("counts")  # HASH: what has happened how often, for Prometheus

    @property
    def artifacts(self) -> str:
        return self._key("artifacts")  # ZSET: jobs that left files by when to look whether their record is gone, ms

    def queue(self, name: str) -> str:
        return self._key("queue", name)  # ZSET: job ids by priority class and order of arrival

    @property
    def queues(self) -> str:
        return self._key("queues")  # SET: names of the queues that aren't empty

    def passed(self, queue: str) -> str:
        return self._key("passed", queue)  # HASH with a short life: device profile -> score up to which no job fits it

    @property
    def resting(self) -> str:
        return self._key("resting")  # SET: names of queues that hold jobs, none of which fits a worker that rests

    def woken(self, queue: str) -> str:
        return self._key("woken", queue)  # STRING with a short life: reconciliation has just woken this queue

    def lease(self, device: str) -> str:
        return self._key("lease", device)  # HASH

    @property
    def leases(self) -> str:
        return self._key("leases")  # ZSET: devices by expiry of their lease, ms

    def worker(self, worker_id: str) -> str:
        return self._key("worker", worker_id)  # STRING with a short life: JSON

    @property
    def workers(self) -> str:
        return self._key("workers")  # SET

    @property
    def cordoned(self) -> str:
        return self._key("cordoned")  # SET: full ids of devices that claim nothing

    def idempotency(self, owner: str | None, key: str) -> str:
        """HASH. A digest, so that neither length nor characters of a caller's key matter; owners never meet."""
        digest = hashlib.sha256(f"{owner or ''}\n{key}".encode(errors="surrogatepass")).hexdigest()
        return self._key("idempotency", digest)

"""The moves on a real server, through Dyno's own calls, with real scripts, real tokens and really lost replies."""

from __future__ import annotations

import asyncio

import pytest
import redis

from dyno.errors import JobFinished, StoreUnavailable
from dyno.models.api_key import Viewer
from dyno.models.job import SCHEMA, Event, WorkerRef
from dyno.models.spec import Spec, Webhook
from dyno.settings import Settings
from dyno.store.eta import ExpectedDuration
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.maintenance import audit_indexes, expire_leases
from dyno.store.placement import needs
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, async_client, sync_client
from tests.life.ledger import REQUEUES

SPEC = Spec.model_validate({"workload": "matmul", "device": "cpu"})
CLASS = f"{SCHEMA}.{needs(SPEC)}"
TOLD = SPEC.model_copy(update={"webhook": Webhook(url="https://hooks.example.org/")})
QUEUE = "cpu"
PACES = "matmul:tensorflow:cpu/alpha/1"
OWNER = "key_0123456789abcdef"


def is_owned(job):
    """Whether the job is OWNER's; the others have no key. Each submits two jobs before the other one does."""
    return job % 4 >= 2


def device_id(device):
    return f"cpu:{device}@alpha"


class Lossy(redis.Redis):
    """A connection to Redis. If `loses` is set, Redis runs the next command, but the reply doesn't arrive."""

    loses = False

    def evalsha(self, *args, **options):
        answer = super().evalsha(*args, **options)
        if self.loses:
            self.loses = False
            raise redis.TimeoutError("the answer was lost")
        return answer


class Worker:
    """The calls of a worker, and its attempt, if any."""

    def __init__(self, settings, number):
        assert settings.redis_url is not None
        self._settings, self._ref = settings, WorkerRef(id=f"worker-{number}", device="cpu", host="alpha")
        self._client = Lossy.from_url(settings.redis_url, decode_responses=True)
        self.begin()

    def begin(self):
        """Replace the worker by a new process without its state."""
        self._leases = Leases(self._client, self._settings)
        self._claim: Claim | None = None

    def close(self):
        self._client.close()

    def call(self, move):
        """The return value of the call; None if the reply was lost."""
        self._client.loses = not move.heard
        if move.heard:
            return self._called(move)
        with pytest.raises(StoreUnavailable):
            self._called(move)
        return None

    def _called(self, move):
        if move.what == "claim":
            self._claim = self._leases.claim(device_id(move.how), [QUEUE], self._ref)
            return self._claim
        assert self._claim is not None
        if move.what == "beat":
            return self._leases.heartbeat(self._claim, None)
        if move.how in REQUEUES:
            return self._leases.requeue(self._claim, reason="tested", counts_attempt=move.how == Event.REQUEUE)
        samples = [self._claim.token] if move.how == Event.SUCCEED else None
        return self._leases.finish(self._claim, move.how, samples=samples, pace=ExpectedDuration(PACES, 1.0, "work"))


class Real:
    """Everything on one server: jobs by number (the order they were submitted in), devices and workers by number."""

    def __init__(self, redis_url, workers):
        # Leases run out only through `run_out`.
        self.settings = Settings(redis_url=redis_url, namespace="life", lease_s=24 * 3600.0)
        self.keys, self.client = Keys(self.settings.namespace), sync_client(self.settings)
        self.workers = [Worker(self.settings, number) for number in range(workers)]
        self.ids: list[str] = []
        self._loop = asyncio.Runner()
        self._callers = async_client(self.settings)
        self._jobs = Jobs(self._callers, self.settings)
        self._owned = self._jobs.seen_by(Viewer(OWNER))

    def close(self):
        self.client.flushall()
        self.client.close()
        for worker in self.workers:
            worker.close()
        self._loop.run(self._callers.aclose())
        self._loop.close()

    def submit(self, job):
        """Submit or resubmit a job. Each has its own key, every third a webhook."""
        key, jobs = f"key-{job}", self._owned if is_owned(job) else self._jobs
        submitted = self._loop.run(jobs.submit(SPEC if job % 3 else TOLD, idempotency_key=key, body_sha256=key))
        if job == len(self.ids):
            self.ids.append(submitted.job.id)
        return submitted

    def cancel(self, job):
        """Cancel a job. Returns whether that changed anything; None if the job has ended in another way."""
        try:
            return self._loop.run(self._jobs.cancel(self.ids[job])).changed
        except JobFinished:
            return None

    def run_out(self, device):
        """Expire a lease by a write to Redis: a lease short enough to wait for would also run out at other times."""
        self.client.hset(self.keys.lease(device_id(device)), "expires_at_ms", 1)
        self.client.zadd(self.keys.leases, {device_id(device): 1})

    def reap(self):
        """End the expired leases and return their jobs, even if the server has just started."""
        return {
            self.ids.index(job_id)
            for job_id in expire_leases(self.client, self.settings.model_copy(update={"lease_s": 0.0}))
        }

    def audit(self):
        """The audit's repairs: none, whatever the scripts did."""
        return audit_indexes(self.client, self.settings.model_copy(update={"reap_every_s": 0.0}))

    def retain(self):
        """Call the script by which retention deletes a job for all done jobs. Returns those that it has left."""
        delete = self.client.register_script(SCRIPT_SOURCES[Script.DELETE])
        for job_id in self.ids:
            delete(keys=[self.keys.job(job_id), self.keys.artifacts], args=[self.keys.namespace, job_id, 0, 0])
        return [job_id for job_id in self.ids if self.client.exists(self.keys.job(job_id))]


def agrees(ids, told, move, answer):
    """Whether the worker's reply agrees with the model's."""
    match move.what, answer:
        case "claim", ("claimed", job):
            return told is not None and told.job_id == ids[job]
        case "claim", _:
            return told is None
        case "beat", ("beating", canceling):
            return (told.superseded, told.cancel_requested) == (False, canceling)
        case "beat", _:
            return bool(told.superseded)
    return told is (answer != ("superseded",))

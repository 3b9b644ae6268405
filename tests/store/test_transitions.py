"""Every (state, event) pair, legal or not, through Lua on a real server, against the table in dyno/models/job.py."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import pytest
import redis

from dyno.errors import JobFinished, UnknownJob
from dyno.models.job import MAX_ATTEMPTS, SCHEMA, TRANSITIONS, Event, Progress, Status, WorkerRef, new_job_id, new_token
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.maintenance import expire_leases
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script

pytestmark = pytest.mark.anyio

DEVICE = "cpu:0@alpha"
OTHER = "cpu:1@alpha"
WORKER = WorkerRef(id="w", device="cpu:0", host="alpha")
OUTCOMES = {Status.SUCCEEDED: "succeed", Status.FAILED: "fail", Status.CANCELED: "stop"}


@dataclass
class Driver:
    """Brings a job into a state, and triggers an event with the token of its record."""

    client: redis.Redis
    settings: Settings
    keys: Keys
    jobs: Jobs
    leases: Leases
    spec: Spec

    async def job_in(self, status):
        if status is None:
            return Claim(new_job_id(), self.spec, 1, new_token(), "cpu", 0, False, DEVICE)
        job_id = (await self.jobs.submit(self.spec)).job.id
        if status is Status.QUEUED:
            return Claim(job_id, self.spec, 1, new_token(), "cpu", 0, False, DEVICE)
        claim = self.leases.claim(DEVICE, ["cpu"], WORKER)
        assert claim is not None
        if status is not Status.RUNNING:
            assert self.leases.finish(claim, OUTCOMES[status])
        return claim

    def status(self, claim):
        return self.client.hget(self.keys.job(claim.job_id), "status")

    def version(self, claim):
        return self.client.hget(self.keys.job(claim.job_id), "version")

    def fit_token(self, claim, status):
        """Use the right token, so that an illegal event is refused because of the status."""
        if status not in (None, Status.RUNNING):
            self.client.hset(self.keys.job(claim.job_id), "token", claim.token)
            self.client.hdel(self.keys.job(claim.job_id), "last_token")

    async def drive(self, event, claim):
        drivers: dict[Event, Callable[[Claim], Awaitable[None]]] = {
            Event.SUBMIT: self.submit,
            Event.IMPORT: self.import_,
            Event.CLAIM: self.claim,
            Event.PASS_OVER: self.pass_over,
            Event.HEARTBEAT: self.heartbeat,
            Event.CANCEL: self.cancel,
            Event.REQUEUE: self.requeue,
            Event.EXPIRE: self.expire,
            Event.EXHAUST: self.exhaust,
        }
        if event in drivers:
            await drivers[event](claim)
        else:
            self.leases.finish(claim, event.value)

    async def submit(self, claim):
        record = ["spec", claim.spec.model_dump_json(), "expires_in_s", "3600"]
        arguments = [self.keys.namespace, claim.job_id, "matmul", "cpu", 1, 100, "", 1000, *record]
        self.client.register_script(SCRIPT_SOURCES[Script.SUBMIT])(
            keys=[self.keys.job(claim.job_id), ""], args=arguments
        )

    async def import_(self, claim):
        times = ["created_ms", "1000", "created_at", "1", "queued_at", "1", "finished_at", "1"]
        record = ["spec", claim.spec.model_dump_json(), "expires_in_s", "3600", "workload", "matmul", *times]
        arguments = [self.keys.namespace, "", 1, 1, claim.job_id, new_job_id(), "{}", "", len(record) // 2, *record]
        self.client.register_script(SCRIPT_SOURCES[Script.IMPORT])(keys=[], args=arguments)

    async def claim(self, claim):
        self.client.zadd(self.keys.queue("cpu"), {claim.job_id: 0})  # in a queue even where it has no business there
        self.leases.claim(OTHER, ["cpu"], WORKER)

    async def pass_over(self, claim):
        if self.status(claim) is not None:
            self.client.hset(self.keys.job(claim.job_id), "schema", SCHEMA + 1)
        await self.claim(claim)

    async def heartbeat(self, claim):
        self.leases.heartbeat(claim, Progress(phase="sampling", run=1, runs=5))

    async def cancel(self, claim):
        with suppress(UnknownJob, JobFinished):
            await self.jobs.cancel(claim.job_id)

    async def requeue(self, claim):
        self.leases.requeue(claim, reason="shutdown", counts_attempt=False)

    async def expire(self, claim):
        lease = {"job": claim.job_id, "token": claim.token, "worker": "{}", "expires_at_ms": 1}
        self.client.hset(self.keys.lease(DEVICE), mapping=lease)
        self.client.zadd(self.keys.leases, {DEVICE: 1})
        expire_leases(self.client, self.settings.model_copy(update={"lease_s": 0.0}))

    async def exhaust(self, claim):
        if self.status(claim) is not None:
            self.client.hset(self.keys.job(claim.job_id), "attempt", MAX_ATTEMPTS)
        await self.expire(claim)


@pytest.fixture
def driver(client, settings, keys, jobs, leases, a_spec):
    return Driver(client, settings, keys, jobs, leases, a_spec())


@pytest.mark.parametrize(("status", "event"), [*product([None, *Status], Event)])
async def test_an_event_leads_where_the_table_says_and_nowhere_else(driver, status, event):
    claim = await driver.job_in(status)
    driver.fit_token(claim, status)
    before = driver.version(claim)

    await driver.drive(event, claim)

    if (status, event) in TRANSITIONS:
        assert driver.status(claim) == TRANSITIONS[status, event]
    else:
        assert driver.status(claim) == status
        assert driver.version(claim) == before


async def test_events_of_a_claim_and_its_end_identify_the_attempt_without_its_token(driver):
    def told(event):
        found = [fields for _, fields in driver.client.xrange(driver.keys.events) if fields["event"] == event]
        assert claim.token not in str(found)
        return [(fields["attempt"], fields["device"], fields["claim"]) for fields in found]

    for ending, outcome in [(Event.SUCCEED, "succeed"), (Event.FAIL, "fail"), (Event.STOP, "stop")]:
        claim = await driver.job_in(Status.RUNNING)
        driver.leases.finish(claim, outcome)
        assert told(ending) == [("1", DEVICE, hashlib.sha1(claim.token.encode()).hexdigest()[:12])]
        assert told(ending)[0] == told("claim")[-1]
    for ending, attempt in [(Event.REQUEUE, "1"), (Event.EXPIRE, "1"), (Event.EXHAUST, "2")]:
        claim = await driver.job_in(Status.RUNNING)
        await driver.drive(ending, claim)
        [owner] = told(ending)[-1:]
        assert owner[1:] == told("claim")[-1][1:]
        assert owner[0] == attempt

"""Indexes of a real Redis, in order after real lives of jobs, and each damaged by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import redis

from chaos import indexes
from chaos.breach import Breach
from chaos.calls import Answers
from chaos.judge import Heard, judged
from chaos.orders import Order
from dyno.models.api_key import Viewer
from dyno.models.job import WorkerRef
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.redis import Keys, async_client
from tests.results import a_result

DEVICES = ("cpu:0-0@here", "cpu:1-1@here")
OWNER, OTHER = "key_aaaaaaaaaaaaaaaa", "key_bbbbbbbbbbbbbbbb"
OWNERS = (OWNER, None, OTHER, OWNER, OTHER)
SPEC = Spec.model_validate({"workload": "matmul", "device": "cpu"})


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


@pytest.fixture
def ids(settings: Settings, client: redis.Redis) -> list[str]:
    """Jobs that succeeded, failed, run, wait, and were canceled, in this order; the second is no API key's."""
    leases = Leases(client, settings)

    def claimed(device: str) -> Claim:
        claim = leases.claim(device, ["cpu"], WorkerRef(id="w", device=device, host="here"))
        assert claim is not None
        return claim

    async def submitted() -> list[str]:
        async with async_client(settings) as asynchronous:
            jobs = Jobs(asynchronous, settings)
            return [(await jobs.seen_by(Viewer(owner)).submit(SPEC)).job.id for owner in OWNERS]

    async def cancel(job: str) -> None:
        async with async_client(settings) as asynchronous:
            await Jobs(asynchronous, settings).cancel(job)

    made = asyncio.run(submitted())
    leases.finish(claimed(DEVICES[0]), "succeed", result=a_result(made[0]), samples=[1.0])
    leases.finish(claimed(DEVICES[0]), "fail", status_reason="timeout")
    claimed(DEVICES[1])
    asyncio.run(cancel(made[4]))
    return made


def heard(ids: list[str]) -> Heard:
    """What callers of these jobs were told; nobody looks at what they see in the end."""
    answers = Answers(canceling={ids[4]})
    for job in ids:
        answers.accepted[job].add(job)
    too_little = Order(ids[1], 0.0, "failing", {}, twice=False, cancel_after_s=None)
    return Heard(answers, {}, [too_little], set(), [])


def test_after_real_lives_every_index_agrees_and_the_streams_are_in_order(
    client: redis.Redis, keys: Keys, ids: list[str]
) -> None:
    seen = indexes.look(client, keys)
    assert set(seen.jobs) == set(ids)
    assert set(seen.leases) == {DEVICES[1]}
    assert indexes.mismatches(seen) == []
    _, told = judged(client, keys, heard(ids))
    assert {violation.what.split()[0] for violation in told} == {ids[2], ids[3], DEVICES[1]}  # they haven't ended yet
    assert {violation.breach for violation in told} == {Breach.LOST, Breach.HELD}


Damage = Callable[[redis.Redis, Keys, list[str]], object]
DAMAGES: dict[str, Damage] = {
    "not in the list of all jobs": lambda r, k, ids: r.zrem(k.jobs, ids[0]),
    "a job that isn't there": lambda r, k, ids: r.zadd(k.jobs, {"job_x": 1}),
    "two statuses": lambda r, k, ids: r.zadd(k.jobs_with_status("queued"), {ids[0]: 1}),
    "no status": lambda r, k, ids: r.zrem(k.jobs_with_status("failed"), ids[1]),
    "another workload": lambda r, k, ids: r.zadd(k.jobs_of_workload("other"), {ids[1]: 1}),
    "not in its owner's list": lambda r, k, ids: r.zrem(k.jobs_of_owner(OWNER), ids[0]),
    "in another owner's list": lambda r, k, ids: r.zadd(k.jobs_of_owner(OTHER), {ids[1]: 1}),
    "in the list of an owner of nothing": lambda r, k, ids: r.zadd(k.jobs_of_owner("key_c"), {ids[1]: 1}),
    "not among those of its owner that wait": lambda r, k, ids: r.zrem(k.queued_of_owner(OWNER), ids[3]),
    "among those of its owner that wait though it runs": lambda r, k, ids: r.zadd(
        k.queued_of_owner(OTHER), {ids[2]: 1}
    ),
    "a record that has lost its owner": lambda r, k, ids: r.hdel(k.job(ids[2]), "owner"),
    "out of the queue": lambda r, k, ids: r.zrem(k.queue("cpu"), ids[3]),
    "in the queue though it runs": lambda r, k, ids: r.zadd(k.queue("cpu"), {ids[2]: 1}),
    "in a queue that nobody serves": lambda r, k, ids: r.zadd(k.queue("gpu"), {ids[3]: 1}),
    "a queue that isn't listed": lambda r, k, ids: r.srem(k.queues, "cpu"),
    "a done job that never goes": lambda r, k, ids: r.zrem(k.expiring, f"{ids[0]}:succeeded:matmul:{OWNER}"),
    "a done job that goes without its owner": lambda r, k, ids: (
        r.zrem(k.expiring, f"{ids[0]}:succeeded:matmul:{OWNER}")
        and r.zadd(k.expiring, {f"{ids[0]}:succeeded:matmul": 1})
    ),
    "a record that never goes": lambda r, k, ids: r.persist(k.job(ids[0])),
    "no result": lambda r, k, ids: r.delete(k.result(ids[0])),
    "a result without success": lambda r, k, ids: r.set(k.result(ids[1]), "{}"),
    "a token after the end": lambda r, k, ids: r.hset(k.job(ids[0]), "token", "t"),
    "an event too many": lambda r, k, ids: r.xadd(k.job_events(ids[0]), {"job": ids[0]}),
    "a run without its lease": lambda r, k, ids: r.delete(k.lease(DEVICES[1])),
    "a lease of nobody": lambda r, k, ids: r.hset(k.lease(DEVICES[0]), mapping={"job": ids[0], "token": "t"}),
    "a lease of another attempt": lambda r, k, ids: r.hset(k.lease(DEVICES[1]), "token", "t"),
    "a run without any lease": lambda r, k, ids: r.zrem(k.leases, DEVICES[1]) and r.delete(k.lease(DEVICES[1])),
    "a record without a status": lambda r, k, ids: r.hdel(k.job(ids[0]), "status"),
    "a record that doesn't know its own id": lambda r, k, ids: r.hdel(k.job(ids[0]), "id"),
    "a record without its time": lambda r, k, ids: r.hdel(k.job(ids[0]), "created_ms"),
    "a lease without its worker": lambda r, k, ids: r.hdel(k.lease(DEVICES[1]), "worker"),
    "a record without a queue": lambda r, k, ids: r.hdel(k.job(ids[3]), "queue"),
    "a record without a workload": lambda r, k, ids: r.hdel(k.job(ids[1]), "workload"),
    "a record with nothing of its own": lambda r, k, ids: r.delete(k.job(ids[1])) and r.hset(k.job(ids[1]), "x", "y"),
    "a version that is no number": lambda r, k, ids: r.hset(k.job(ids[0]), "version", "new"),
    "a status that there isn't": lambda r, k, ids: r.hset(k.job(ids[0]), "status", "dancing"),
    "an attempt that there can't be": lambda r, k, ids: r.hset(k.job(ids[0]), "attempt", "-1"),
    "a lease without its job": lambda r, k, ids: r.hdel(k.lease(DEVICES[1]), "job"),
    "a lease without its token": lambda r, k, ids: r.hdel(k.lease(DEVICES[1]), "token"),
    "an event that says nothing": lambda r, k, ids: r.xadd(k.job_events(ids[0]), {"x": "y"}),
    "a lease that isn't due": lambda r, k, ids: r.zrem(k.leases, DEVICES[1]),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_whatever_is_out_of_step_is_found(what: str, client: redis.Redis, keys: Keys, ids: list[str]) -> None:
    DAMAGES[what](client, keys, ids)
    assert indexes.mismatches(indexes.look(client, keys)) != []
    _, told = judged(client, keys, heard(ids))
    assert Breach.INDEX in {violation.breach for violation in told}

"""Records of deliveries: written when a job ends, leased by one deliverer at a time, deleted with their job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.errors import UnknownDelivery
from dyno.models.api_key import Viewer
from dyno.models.spec import Spec
from dyno.models.webhook import DeliveryStatus, delivery_of
from dyno.store import list_pages as module
from dyno.store.maintenance import drop_expired, expire_leases
from dyno.store.webhooks import Deliveries, DeliveryQuery, DeliveryQueue
from tests.deliveries import DELIVERED, OTHER, OWNER, REFUSED, URL, canceled, found, taken
from tests.results import a_result

pytestmark = pytest.mark.anyio

ASpec = Callable[..., Spec]


@pytest.mark.parametrize("outcome", ["succeed", "fail", "stop"])
async def test_each_end_of_a_job_with_a_webhook_makes_one_delivery(
    jobs, a_spec, claim, leases, outbox, client, keys, outcome
):
    await jobs.submit(a_spec(webhook=URL))
    attempt = claim()
    assert await outbox.take() is None, "before its end"
    result = a_result(attempt.job_id) if outcome == "succeed" else None
    for _ in range(2):
        assert leases.finish(attempt, outcome, result=result, samples=result and [])
    assert (await taken(outbox)).job_id == attempt.job_id
    assert await outbox.take() is None
    assert list(state_violations(read(client, keys))) == []


async def test_a_lost_job_makes_a_delivery_when_no_attempt_is_left(
    jobs, a_spec, claim, run_out, client, trusting, outbox
):
    job = (await jobs.submit(a_spec(webhook=URL))).job
    for told in (None, job.id):
        claim()
        run_out()
        assert expire_leases(client, trusting) == [job.id]
        one = await outbox.take()
        assert (one and one.job_id) == told


async def test_a_leased_delivery_is_not_given_again_until_the_lease_ends(jobs, a_spec, outbox, deliveries, over):
    job_id = await canceled(jobs, a_spec(webhook=URL))
    dead = await taken(outbox)
    assert await outbox.take() is None
    over(job_id)
    living = await taken(outbox)
    assert (living.tried, living.job_id) == (2, job_id)
    assert not await outbox.settle(dead, REFUSED, DeliveryStatus.FAILED)
    assert await outbox.settle(living, DELIVERED, DeliveryStatus.DELIVERED)
    over(job_id)
    assert await outbox.take() is None
    [delivery] = (await deliveries.page(DeliveryQuery(job=job_id), None, 1)).data
    assert [each.ended for each in delivery.attempts] == [None, DELIVERED]


async def test_a_short_timeout_leaves_time_to_settle(jobs, a_spec, async_redis, client, settings, keys):
    hasty = DeliveryQueue(async_redis, settings.model_copy(update={"webhook_timeout_s": 0.5}))
    job_id = await canceled(jobs, a_spec(webhook=URL))
    leased = await taken(hasty)
    ends_ms: Any = client.zscore(keys.webhooks_due, job_id)
    assert 10 < ends_ms / 1000 - leased.at_s < 30


async def test_an_attempt_that_failed_is_followed_by_another_when_its_pause_is_over(jobs, a_spec, outbox, over):
    job_id = await canceled(jobs, a_spec(webhook=URL))
    assert await outbox.settle(await taken(outbox), REFUSED, DeliveryStatus.PENDING, 3600)
    assert await outbox.take() is None
    over(job_id)
    assert (await taken(outbox)).tried == 2


async def test_a_delivery_ends_even_if_every_deliverer_dies(jobs, a_spec, settings, outbox, deliveries, over):
    job_id = await canceled(jobs, a_spec(webhook=URL))
    for _ in range(len(settings.webhook_retry_s) + 1):
        assert await found(deliveries) == [(job_id, "pending")]
        await taken(outbox)
        over(job_id)
    assert await outbox.take() is None
    assert await found(deliveries) == [(job_id, "failed")]


async def test_of_many_attempts_the_last_ones_are_kept(jobs, a_spec, outbox, deliveries, client, keys):
    job_id = await canceled(jobs, a_spec(webhook=URL))
    for _ in range(30):
        await deliveries.redeliver(delivery_of(job_id))
        await outbox.settle(await taken(outbox), REFUSED, DeliveryStatus.PENDING, 60)
    [delivery] = (await deliveries.page(DeliveryQuery(), None, 1)).data
    assert (delivery.attempts_made, len(delivery.attempts)) == (30, 24)
    assert client.hlen(keys.webhook(job_id)) == 7 + 2 * 24


async def test_an_owner_sees_and_sends_its_own_alone(jobs, a_spec, async_redis, settings, deliveries):
    mine = await canceled(jobs.seen_by(Viewer(OWNER, sees_all=False)), a_spec(webhook=URL))
    nobodys = await canceled(jobs, a_spec(webhook=URL))
    owner, other = (Deliveries(async_redis, settings, Viewer(name, sees_all=False)) for name in (OWNER, OTHER))
    assert await found(owner) == [(mine, "pending")]
    assert await found(owner, job=mine) == [(mine, "pending")]
    assert await found(other) == await found(other, job=mine) == await found(owner, job=nobodys) == []
    assert {job for job, _ in await found(deliveries)} == {mine, nobodys}
    for who, job in ((other, mine), (owner, nobodys)):
        with pytest.raises(UnknownDelivery):
            await who.redeliver(delivery_of(job))
    assert (await owner.redeliver(delivery_of(mine))).owner == OWNER


async def test_a_delivery_lives_as_long_as_its_job_and_leaves_no_trace(jobs, a_spec, client, settings, keys, outbox):
    mine = jobs.seen_by(Viewer(OWNER, sees_all=False))
    expires, deleted = [await canceled(mine, a_spec(webhook=URL, expires_in_s=60)) for _ in range(2)]
    assert 0 < client.pttl(keys.webhook(expires)) <= 60_000
    await jobs.delete(deleted)
    client.delete(keys.job(expires), keys.webhook(expires))
    client.zadd(keys.expiring, {f"{expires}:canceled:matmul:{OWNER}": 1})
    assert drop_expired(client, settings) == 1
    kept = [str(key) for key in client.scan_iter(f"{keys.namespace}:*webhook*")]
    assert kept == []
    assert await outbox.take() is None


async def test_an_entry_whose_delivery_is_gone_is_dropped_and_the_next_one_taken(jobs, a_spec, client, keys, outbox):
    gone, there = [await canceled(jobs, a_spec(webhook=URL)) for _ in range(2)]
    client.delete(keys.webhook(gone))
    assert (await taken(outbox)).job_id == there
    assert client.zrange(keys.webhooks_due, 0, -1) == [there]
    assert list(client.scan_iter(f"{keys.webhooks_ready}*")) == []


async def test_an_unreadable_delivery_hides_no_other_and_pages_continue(
    jobs, a_spec, client, keys, deliveries, monkeypatch
):
    monkeypatch.setattr(module, "_STEP", 1)
    made = [await canceled(jobs, a_spec(webhook=URL)) for _ in range(4)]
    client.hset(keys.webhook(made[1]), "status", "of a newer version")
    seen, cursor = [], None
    for _ in range(3):
        page = await deliveries.page(DeliveryQuery(), cursor, 1)
        seen += [each.job for each in page.data]
        cursor = page.next_cursor
    assert sorted(seen) == sorted({*made} - {made[1]})
    assert cursor is None

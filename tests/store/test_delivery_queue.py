"""The order of deliveries: owners and their receivers take turns, and a backlog of one doesn't block the others."""

from collections.abc import Callable

import pytest

from dyno.models.api_key import Viewer
from dyno.models.spec import Spec
from dyno.models.webhook import DeliveryStatus
from dyno.store.webhooks import DeliveryQuery
from tests.deliveries import OTHER, OWNER, RECEIVER, REFUSED, URL, canceled, delivered, taken

pytestmark = pytest.mark.anyio

ASpec = Callable[..., Spec]
QUICK = "https://quick.example.org/"
MANY = 1200  # more than one call checks


@pytest.fixture
def ends(jobs, a_spec):
    """A done job of the owner with this webhook."""

    async def one(url, owner=None):
        seen = jobs if owner is None else jobs.seen_by(Viewer(owner, sees_all=False))
        return await canceled(seen, a_spec(webhook=url))

    return one


@pytest.fixture
def many(client, keys):
    """Jobs whose deliveries have been due for a long time."""
    ids = [f"job_{number:026d}" for number in range(MANY)]
    record = {"status": "pending", "type": "job.canceled", "url": URL, "tried": 0, "attempts": 0, "created_at": 1}
    with client.pipeline(transaction=False) as pipeline:
        for job_id in ids:
            pipeline.hset(keys.webhook(job_id), mapping=record)
            pipeline.zadd(keys.webhooks_due, {job_id: 1})
        pipeline.execute()
    return ids


async def test_a_busy_receiver_does_not_block_others(ends, outbox, many):
    quick = await ends(QUICK)
    assert (await taken(outbox, RECEIVER)).job_id == quick
    assert await outbox.take([RECEIVER]) is None
    assert (await taken(outbox)).receiver == RECEIVER


async def test_deliveries_deleted_with_their_jobs_do_not_block_others(ends, outbox, many, client, keys):
    assert await outbox.take([RECEIVER]) is None, "so that all wait for their turns"
    client.delete(*map(keys.webhook, many))
    quick = await ends(QUICK)
    assert (await taken(outbox)).job_id == quick
    assert list(client.scan_iter(f"{keys.webhooks_ready}*")) == []


@pytest.mark.parametrize("one", [OWNER, None])
async def test_owners_take_turns(ends, outbox, one):
    first = [await ends(URL, one) for _ in range(3)]
    second = [await ends(URL, OTHER) for _ in range(2)]
    turns = [await taken(outbox) for _ in range(5)]
    assert [each.owner for each in turns] == [one or "", OTHER, one or "", OTHER, one or ""]
    assert {each.job_id for each in turns} == {*first, *second}


async def test_receivers_of_an_owner_take_turns(ends, outbox):
    for url in (URL, URL, QUICK):
        await ends(url, OWNER)
    assert [(await taken(outbox)).receiver for _ in range(3)] == [RECEIVER, "quick.example.org:443", RECEIVER]


async def test_an_excluded_owner_does_not_block_others(ends, outbox):
    for owner in (OWNER, OWNER, OTHER, None):
        await ends(URL, owner)
    one, two = [await outbox.take(owners=[OWNER]) for _ in range(2)]
    assert {each.owner for each in (one, two) if each} == {OTHER, ""}
    assert await outbox.take(owners=[OWNER]) is None
    assert (await taken(outbox)).owner == OWNER


@pytest.mark.parametrize(
    ("urls", "receiver"),
    [
        (["https://H.org/a", "https://h.org:443?b", "https://h.org:0443", "HTTPS://h.org./"], "h.org:443"),
        (["http://h.org", "http://h.org:80/", "https://h.org:80"], "h.org:80"),
        (["https://[2001:DB8::1]/", "https://[2001:db8::1]:443/"], "[2001:db8::1]:443"),
    ],
)
async def test_a_receiver_is_one_however_it_is_written(ends, outbox, urls, receiver):
    for url in urls:
        await ends(url)
    assert await outbox.take([receiver]) is None
    assert {(await taken(outbox)).receiver for _ in urls} == {receiver}


async def test_an_unreadable_delivery_is_taken_in_its_turn(ends, outbox, client, keys):
    damaged, job_id = await ends(URL), await ends(URL)
    client.hset(keys.webhook(damaged), "url", "nowhere")
    assert {(await taken(outbox)).job_id for _ in range(2)} == {damaged, job_id}


async def test_a_delivery_that_waits_for_its_turn_is_shown_as_pending(ends, outbox, deliveries):
    await ends(URL)
    [before] = (await deliveries.page(DeliveryQuery(), None, 1)).data
    assert await outbox.take([RECEIVER]) is None
    [after] = (await deliveries.page(DeliveryQuery(), None, 1)).data
    assert after == before
    assert after.next_attempt_at is not None


async def test_a_delivery_settled_late_leaves_its_lane(ends, outbox, over):
    """Its lease ends, it waits for another turn, and only then the first attempt is settled."""
    for url, status in ((URL, DeliveryStatus.PENDING), (URL, DeliveryStatus.DELIVERED)):
        job_id = await ends(url)
        late = await taken(outbox)
        over(job_id)
        assert await outbox.take([RECEIVER]) is None
        assert await outbox.settle(late, REFUSED, status, 3600)
        assert await outbox.take() is None


async def test_after_the_last_delivery_no_lane_is_left(ends, outbox, client, keys):
    for url, owner in ((URL, None), (URL, OWNER), (QUICK, OWNER), (QUICK, OTHER), (QUICK, OTHER)):
        await ends(url, owner)
    for _ in range(5):
        await delivered(outbox, await taken(outbox))
    assert await outbox.take() is None
    assert list(client.scan_iter(f"{keys.webhooks_ready}*")) == []
    assert client.exists(keys.webhooks_due) == 0

"""Redelivery: at once, with a new series of attempts, whatever the delivery's status."""

import pytest

from dyno.models.webhook import DeliveryStatus, delivery_of
from tests.deliveries import RECEIVER, REFUSED, URL, canceled, delivered, found, taken

pytestmark = pytest.mark.anyio


@pytest.fixture
async def job_id(jobs, a_spec):
    return await canceled(jobs, a_spec(webhook=URL))


async def test_a_redelivery_during_an_attempt_is_not_sent_twice(job_id, outbox, deliveries):
    first = await taken(outbox)
    await deliveries.redeliver(delivery_of(job_id))
    assert await outbox.take() is None
    await delivered(outbox, first)
    assert await outbox.take() is None
    await deliveries.redeliver(delivery_of(job_id))
    assert (await taken(outbox)).tried == 1


@pytest.mark.parametrize("status", [DeliveryStatus.FAILED, DeliveryStatus.PENDING])
async def test_if_the_running_attempt_fails_a_new_series_follows_at_once(job_id, outbox, deliveries, over, status):
    await outbox.settle(await taken(outbox), REFUSED, DeliveryStatus.PENDING, 3600)
    over(job_id)
    under_way = await taken(outbox)
    await deliveries.redeliver(delivery_of(job_id))
    assert await outbox.settle(under_way, REFUSED, status, 3600)
    assert await found(deliveries) == [(job_id, "pending")]
    again = await taken(outbox)
    assert again.tried == 1
    assert await outbox.settle(again, REFUSED, DeliveryStatus.FAILED)
    assert await found(deliveries) == [(job_id, "failed")]
    assert await outbox.take() is None


async def test_if_the_deliverer_dies_in_the_last_attempt_a_new_series_follows(
    job_id, outbox, deliveries, over, settings
):
    for _ in settings.webhook_retry_s:
        await taken(outbox)
        over(job_id)
    assert (await taken(outbox)).tried == len(settings.webhook_retry_s) + 1
    await deliveries.redeliver(delivery_of(job_id))
    over(job_id)
    assert (await taken(outbox)).tried == 1


async def test_one_that_waits_for_its_turn_is_sent_once(job_id, outbox, deliveries):
    assert await outbox.take([RECEIVER]) is None
    await deliveries.redeliver(delivery_of(job_id))
    await delivered(outbox, await taken(outbox))
    assert await outbox.take() is None

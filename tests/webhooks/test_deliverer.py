"""The deliverer stops when it is canceled, and forgets attempts that have ended."""

import asyncio

import pytest
from pydantic import SecretStr

from dyno.asyncio_tasks import cancel_and_wait
from dyno.models.api_key import Viewer
from dyno.models.spec import Spec
from dyno.models.webhook import DeliveryStatus
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.redis import async_client
from dyno.store.webhooks import Deliveries, DeliveryQuery
from dyno.webhook_delivery import WebhookDeliverer, WebhookSender, webhook_deliverer
from tests.inbox import Inbox
from tests.service.webhooks.conftest import SECRET

WITHIN_S = 20.0
OWNER = Viewer("key_aaaaaaaaaaaaaaaa", sees_all=False)


@pytest.mark.anyio
@pytest.mark.parametrize("moments", [20, pytest.param(100, marks=pytest.mark.verify)])
async def test_the_deliverer_stops_at_any_moment(redis_url, moments):
    """Even if the reply of Redis arrives at the moment of the cancel, which Python 3.11 then forgets."""
    settings = Settings(redis_url=redis_url, webhook_secret=SecretStr(SECRET), webhook_every_s=0.001)
    async with async_client(settings) as client:
        for number in range(moments):
            async with asyncio.timeout(WITHIN_S), webhook_deliverer(client, settings):
                await asyncio.sleep(0.01 * number / moments)


@pytest.mark.anyio
async def test_the_counters_forget_receivers_and_owners_without_attempts(redis_url, namespace):
    own = {"webhook_secret": SecretStr(SECRET), "webhook_allowed_hosts": ("127.0.0.1",), "webhook_every_s": 0.01}
    settings = Settings(redis_url=redis_url, namespace=namespace, **own)
    with Inbox() as inbox:
        async with async_client(settings) as client:
            deliverer = WebhookDeliverer(client, settings, SecretStr(SECRET), WebhookSender(settings))
            jobs = Jobs(client, settings).seen_by(OWNER)
            job = (await jobs.submit(Spec.model_validate({"workload": "matmul", "webhook": inbox.url}))).job
            await jobs.cancel(job.id)
            task = asyncio.create_task(deliverer.run())
            try:
                async with asyncio.timeout(WITHIN_S):
                    await _delivered(Deliveries(client, settings))
            finally:
                await cancel_and_wait(task)
    assert [*deliverer._running, *deliverer._of_owners] == []


async def _delivered(deliveries):
    while not (await deliveries.page(DeliveryQuery(DeliveryStatus.DELIVERED), None, 1)).data:
        await asyncio.sleep(0.01)

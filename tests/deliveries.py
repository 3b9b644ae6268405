"""Done jobs with a webhook, and helpers for their deliveries."""

from dyno.models.webhook import DeliveryStatus, Ended, Outcome
from dyno.store.webhooks import DeliveryQuery

URL = "https://hooks.example.org/x"
RECEIVER = "hooks.example.org:443"
OWNER, OTHER = "key_aaaaaaaaaaaaaaaa", "key_bbbbbbbbbbbbbbbb"
REFUSED = Ended(outcome=Outcome.REFUSED, status_code=500, duration_s=0.1)
DELIVERED = Ended(outcome=Outcome.DELIVERED, status_code=204, duration_s=0.1)


async def canceled(jobs, spec):
    job_id = (await jobs.submit(spec)).job.id
    await jobs.cancel(job_id)
    return job_id


async def taken(outbox, *receivers):
    """Take a due delivery whose receiver is none of `receivers`."""
    one = await outbox.take(receivers)
    assert one is not None
    return one


async def delivered(outbox, one):
    assert await outbox.settle(one, DELIVERED, DeliveryStatus.DELIVERED)


async def found(deliveries, **wanted):
    page = await deliveries.page(DeliveryQuery(**wanted), None, 50)
    return [(each.job, each.status) for each in page.data]

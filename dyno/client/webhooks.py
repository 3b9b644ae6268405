"""The calls that are about who is told of jobs that are done."""

from __future__ import annotations

from datetime import datetime

from dyno.client.call import call
from dyno.client.pages import LIMIT, Page, browsed
from dyno.client.paths import in_path
from dyno.client.steps import Steps, asked
from dyno.delivery import Delivery, DeliveryStatus


class DeliveryPage(Page[Delivery]):
    """Of a list of deliveries."""


class WebhookCalls:
    """Of both clients."""

    @call
    def deliveries(
        self,
        *,
        status: DeliveryStatus | str | None = None,
        job: str | None = None,
        created_after: datetime | str | None = None,
        created_before: datetime | str | None = None,
        limit: int | None = LIMIT,
    ) -> Steps[list[Delivery]]:
        """What webhooks were sent, the newest `limit` that fit all filters, null for all; by when the jobs ended."""
        times = {"created_after": created_after, "created_before": created_before}
        return browsed(DeliveryPage, "/v1/webhook-deliveries", {"status": status, "job": job, **times}, limit)

    @call
    def redeliver(self, delivery_id: str) -> Steps[Delivery]:
        """Send it again at once, whatever became of it. Raises Refused where there is none."""
        return asked(Delivery, "POST", f"/v1/webhook-deliveries/{in_path(delivery_id)}/redeliver")

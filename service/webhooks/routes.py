"""Webhooks: list deliveries, redeliver one, and read the secret that receivers check signatures with."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field

from dyno.logging import audit
from dyno.models.webhook import Delivery, DeliveryStatus
from dyno.store.redis import JOB_ID
from dyno.store.webhooks import Deliveries, DeliveryQuery
from dyno.webhook_delivery import owner_secret
from service import auth, dependencies, problems

router = APIRouter(prefix="/v1", tags=["webhooks"])


class DeliveryList(BaseModel):
    """One page, newest first. If few deliveries match, a page may be short although more pages follow."""

    data: list[Delivery]
    next_cursor: str | None
    has_more: bool


class DeliveryFilter(BaseModel, extra="forbid"):
    """Deliveries that match all given conditions. Times refer to the ends of the jobs."""

    status: DeliveryStatus | None = None
    job: Annotated[str, Field(pattern=f"^{JOB_ID.pattern}$")] | None = None
    created_after: dependencies.Timestamp | None = None
    created_before: dependencies.Timestamp | None = None
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="`next_cursor` of the previous page")
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class WebhookSecret(BaseModel):
    """`secret` is null if the service sends no webhooks because `DYNO_WEBHOOK_SECRET` is not set."""

    secret: str | None


async def _deliveries(state: dependencies.StateDep) -> Deliveries:
    return Deliveries(state.client, state.settings, state.jobs.viewer)


DeliveriesDep = Annotated[Deliveries, Depends(_deliveries)]
DeliveryId = Annotated[str, Path(description="`msg_` and a ULID: the `webhook-id` of all attempts")]


@router.get(
    "/webhook-deliveries",
    operation_id="listDeliveries",
    summary="List webhook deliveries",
    responses={200: dependencies.sends("Link")},
)
@auth.requires(auth.READ, auth.OWN)
async def browse(
    deliveries: DeliveriesDep, request: Request, response: Response, query: Annotated[DeliveryFilter, Query()]
) -> DeliveryList:
    """List the webhook deliveries of done jobs, newest first, each with its last attempts."""
    conditions = DeliveryQuery(query.status, query.job, query.created_after, query.created_before)
    with dependencies.as_parameter_errors():
        page = await deliveries.page(conditions, query.cursor, query.limit)
    dependencies.link_next(request, response, page.next_cursor)
    return DeliveryList(data=page.data, next_cursor=page.next_cursor, has_more=page.has_more)


@router.post(
    "/webhook-deliveries/{delivery_id}/redeliver",
    operation_id="redeliver",
    summary="Redeliver a webhook",
    status_code=202,
    responses=problems.documented("delivery-not-found"),
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def redeliver(delivery_id: DeliveryId, deliveries: DeliveriesDep, caller: auth.CallerDep) -> Delivery:
    """Send the delivery again at once with the same `webhook-id`, whatever its status. Retry it like a new delivery.

    An attempt in progress continues; if it fails, the next attempt follows at once.
    """
    delivery = await deliveries.redeliver(delivery_id)
    audit("webhook-redelivered", caller.name, job=delivery.job)
    return delivery


@router.get(
    "/webhook-secret",
    operation_id="getWebhookSecret",
    summary="Read the secret of your webhooks",
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def secret(state: dependencies.StateDep, caller: auth.CallerDep, response: Response) -> WebhookSecret:
    """Read the secret that signs your jobs' webhooks, so that receivers can check them. Each key has its own secret."""
    response.headers["Cache-Control"] = "no-store"
    deployment = state.settings.webhook_secret
    return WebhookSecret(secret=None if deployment is None else owner_secret(deployment, caller.viewer.owner))

"""From a checked request to a queued job, and the wake-up that brings a worker to it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import anyio.to_thread

from dyno import celery_app
from dyno.logging import current_job_id
from dyno.models.inventory import DeviceStatus
from dyno.models.spec import Spec
from dyno.store import fleet
from dyno.store.jobs import Submitted
from service.requests.admission import Admission, admit
from service.requests.receivers import check_webhook
from service.requests.specs import Request
from service.requests.weights import check_weights
from service.state import State

log = logging.getLogger(__name__)

WAKE_WITHIN_S = 2.0
_wake_threads = anyio.CapacityLimiter(4)  # of their own: a broker that hangs must not take the threads of others


async def submit(state: State, asked: Request, idempotency_key: str | None) -> Submitted:
    """Queue the job, or find the one that an earlier request with this key made."""
    return await queue(state, asked.spec, asked.body_sha256, idempotency_key, partial(admitted, state, asked))


async def queue(
    state: State,
    spec: Spec,
    body_sha256: str,
    idempotency_key: str | None,
    admission_of: Callable[[], Awaitable[Admission]],
    rerun_of: str | None = None,
) -> Submitted:
    """As `submit`; `admission_of` raises where the spec can't be run, and isn't asked about a repeated request."""
    if idempotency_key and (earlier := await state.jobs.earlier(idempotency_key, body_sha256)):
        return Submitted(earlier, wake=False, replayed=True)
    admission = await admission_of()
    submitted = await state.jobs.submit(
        spec,
        warnings=admission.warnings,
        fits=admission.fits,
        idempotency_key=idempotency_key,
        body_sha256=body_sha256,
        rerun_of=rerun_of,
        traceparent=state.traces.carried(),
    )
    current_job_id.set(submitted.job.id)
    if submitted.wake:
        await wake_up(state, submitted.job.queue.name)
    return submitted


async def admitted(state: State, asked: Request) -> Admission:
    """What is to be said of the job before it is queued. Raises InvalidSpec, and all that `admit` does."""
    check_webhook(state.settings, asked.spec)
    await check_weights(state, asked.params)
    return admit(asked, await devices(state))


async def devices(state: State) -> list[DeviceStatus]:
    """What live workers offer now."""
    return await fleet.devices(state.client, state.settings)


async def wake_up(state: State, queue_name: str) -> None:
    """The jobs are safe already: a wake-up that fails is sent again by whoever reconciles, so it fails no request."""
    try:
        with anyio.fail_after(WAKE_WITHIN_S):
            await anyio.to_thread.run_sync(
                celery_app.send_wake_up, state.settings, queue_name, abandon_on_cancel=True, limiter=_wake_threads
            )
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises
        log.warning("the wake-up for queue %s was not sent: %s: %s", queue_name, type(error).__name__, error)

"""What a repeated POST gets: the job that the first one made, even where today's fleet would refuse it."""

from __future__ import annotations

from typing import Any

from dyno.errors import UnknownJob
from dyno.store.connect import store_errors
from dyno.store.jobs import Submitted
from dyno.store.keys import Keys
from service.state import State


async def earlier(state: State, idempotency_key: str, body_sha256: str) -> Submitted | None:
    """The job of the same key and body. A hint only: submit.lua decides, this spares a retry the admission.

    Without it, a caller whose first answer was lost would be told `no-device-fits` about a job that is queued.
    """
    with store_errors():
        key = Keys(state.settings.namespace).idempotency(None, idempotency_key)
        found: Any = await state.client.hgetall(key)
    if found.get("body_sha256") != body_sha256:
        return None
    try:
        return Submitted(await state.jobs.get(found["job"]), wake=False, replayed=True)
    except UnknownJob:  # expired in between
        return None

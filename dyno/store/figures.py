"""The figures of a stored result, read without all that they rest on: a tenth of the time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import redis.asyncio
from pydantic import ValidationError

from dyno.models.job import Stored
from dyno.models.result import Metric, Verdict
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys

log = logging.getLogger(__name__)

_AT_ONCE = 25  # results: some have a hundred runs


class Figures(Stored):
    """Some fields of `dyno.models.result.Result`."""

    verdict: Verdict
    metrics: list[Metric]
    hardware_id: str | None = None
    device: dict[str, Any] = {}
    arms: list[Figures] = []


async def read_figures(client: redis.asyncio.Redis, settings: Settings, job_ids: Sequence[str]) -> list[Figures | None]:
    """Null where there is no result, or one that can't be read here. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    found: list[Figures | None] = []
    for start in range(0, len(job_ids), _AT_ONCE):
        with store_errors():
            texts: list[Any] = await client.mget([keys.result(job_id) for job_id in job_ids[start : start + _AT_ONCE]])
        found += [figures_of(text) for text in texts]
    return found


def figures_of(text: str | None) -> Figures | None:
    """Of a stored result; null where there is none, or it can't be read here."""
    if text is None:
        return None
    try:
        return Figures.model_validate_json(text)
    except ValidationError as error:
        log.warning("the figures of a result can't be read: %s", error)
        return None

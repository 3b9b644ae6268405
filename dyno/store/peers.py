"""Headline figures of results, one bounded series per work and model of device. `finish.lua` writes them.

A figure goes in with its result, in one step, so none is there twice and none of a result that doesn't exist. What is
lost of a series costs a check and nothing else.
"""

from __future__ import annotations

import logging
from typing import Any

import redis
from pydantic import ValidationError

from dyno.models.result import Headline, Peer
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys

KEPT = 50  # newest figures: with more the band hardly narrows, and what a fleet gave long ago fades out
LIFE_S = 90 * 24 * 3600  # since the last figure: longer than jobs are kept by default, so that a monthly one is checked

log = logging.getLogger(__name__)


def read_peers(client: redis.Redis, settings: Settings, series: str) -> list[Peer]:
    """The newest first; without those that this version can't read. Raises StoreUnavailable, or redis.ResponseError."""
    with store_errors():
        texts: Any = client.lrange(Keys(settings.namespace).peers(series), 0, KEPT - 1)
    return [peer for text in texts if (peer := _peer(text)) is not None]


def entry(headline: Headline) -> list[str | int]:
    """What `finish.lua` is told of it: the figure, how many are kept, and for how many milliseconds."""
    return [headline.own.model_dump_json(), KEPT, LIFE_S * 1000]


def _peer(text: str) -> Peer | None:
    try:
        return Peer.model_validate_json(text)
    except ValidationError as error:
        log.warning("a figure of a series can't be read: %s", error)
        return None

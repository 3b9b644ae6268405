"""Whoever delivers ends when it is told to."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import SecretStr

from dyno.settings import Settings
from dyno.store.connect import async_client
from dyno.webhooks.deliverer import delivering
from tests.service.webhooks.conftest import SECRET

WITHIN_S = 20.0


@pytest.mark.anyio
async def test_it_stops_whenever_it_is_told_to(redis_url: str) -> None:
    """Also when the answer of Redis comes at the same moment, in which Python 3.11 forgets that it was canceled."""
    settings = Settings(redis_url=redis_url, webhook_secret=SecretStr(SECRET), webhook_every_s=0.001)
    async with async_client(settings) as client:
        for number in range(100):
            async with asyncio.timeout(WITHIN_S), delivering(client, settings):
                await asyncio.sleep(number * 1e-4)

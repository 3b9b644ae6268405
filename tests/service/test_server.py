"""The server of `python -P -m service`, in this process."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
import uvicorn

from service.__main__ import Server


async def nobody(scope: Any, receive: Any, send: Any) -> None:
    """Is never asked."""


@pytest.mark.anyio
async def test_what_is_there_from_the_start_is_not_looked_through_for_garbage() -> None:
    config = uvicorn.Config(nobody, port=0, lifespan="off", log_config=None)
    config.load()
    server = Server(config, asyncio.Event(), 10.0)
    server.lifespan = config.lifespan_class(config)
    before = gc.get_freeze_count()
    try:
        await server.startup()
        assert gc.get_freeze_count() > before + 10_000
    finally:
        gc.unfreeze()
        await server.shutdown()

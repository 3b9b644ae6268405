"""Garbage collection by the server of `python -P -m service`, in this process."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from service.__main__ import Server
from service.server.process import GarbageCollection

pytestmark = pytest.mark.anyio

WITHIN_S = 60


class Knot:
    """Refers to itself, so that only the garbage collector frees it."""

    def __init__(self) -> None:
        self.own = self


async def nobody(scope: Any, receive: Any, send: Any) -> None:
    """An application without requests."""


@asynccontextmanager
async def looking(**how: Any) -> AsyncIterator[None]:
    garbage = GarbageCollection(**how)
    garbage.start()
    try:
        yield
    finally:
        await garbage.stop()


async def freed(knot: weakref.ref[Knot]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while knot() is not None:
            await asyncio.sleep(0.001)


async def test_startup_objects_are_excluded_from_collections() -> None:
    config = uvicorn.Config(nobody, port=0, lifespan="off", log_config=None)
    config.load()
    server = Server(config, asyncio.Event(), 10.0)
    server.lifespan = config.lifespan_class(config)
    before = gc.get_threshold()
    await server.startup()
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[2] > 10**6
    await server.shutdown()
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before)


async def test_later_garbage_is_freed() -> None:
    async with looking(every_s=0.001):
        await freed(weakref.ref(Knot()))

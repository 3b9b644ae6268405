"""Cancel asyncio tasks reliably."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

_AGAIN_AFTER_S = 0.2


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel the task repeatedly until it ends, with or without an error.

    Canceling once is not enough. redis-py calls `asyncio.wait_for`, which swallows a cancel in Python 3.11 if the
    awaited result arrives at the same moment.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_AGAIN_AFTER_S)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` as a task during the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await cancel_and_wait(task)

"""Cancel asyncio tasks reliably."""

from __future__ import annotations

import asyncio

_AGAIN_AFTER_S = 0.2


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel it until it has ended, however it ends.

    Once is not enough: `asyncio.wait_for` of Python 3.11, which redis-py calls, gives what it waited for to a caller
    that is canceled at that very moment, and nobody is told of the cancel any more.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_AGAIN_AFTER_S)

"""Asyncio tasks: cancel them reliably, and repeat work in the background."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from dyno.errors import StoreUnavailable, StoreUnfit

log = logging.getLogger(__name__)

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


def repeating(work: Callable[[], Awaitable[None]], every_s: float, name: str) -> AbstractAsyncContextManager[None]:
    """Do `work` every `every_s` during the block. Its errors are logged, and the repetition continues.

    `name`: for the log, such as "looking for alarms". An outage of Redis is logged once.
    """
    return running(_repeat(work, every_s, name))


async def _repeat(work: Callable[[], Awaitable[None]], every_s: float, name: str) -> None:
    is_away = False
    while True:
        try:
            await work()
            is_away = False
        except (StoreUnavailable, StoreUnfit) as error:
            if not is_away:
                log.warning("%s: waiting for Redis: %s", name, error.detail)
            is_away = True
        except Exception:  # such as a damaged key, until maintenance has repaired it
            log.exception("%s: failed", name)
        await asyncio.sleep(every_s)


@contextmanager
def one_of_many(name: str) -> Iterator[None]:
    """Log an error of one item, so that work on other items continues. Raises StoreUnavailable, which affects all."""
    try:
        yield
    except StoreUnavailable:
        raise
    except Exception:
        log.exception("%s: failed", name)

"""What only Python's collector can free, looked for often and in little at a time.

By itself it looks through all there is from time to time, and holds up every caller for 50 ms and more meanwhile. Here
what one look has left is set aside (`gc.freeze`): it still goes as soon as nobody refers to it, but the next look is at
what came since. What refers to itself and was set aside is found in the rare look at everything.
"""

from __future__ import annotations

import asyncio
import gc
from itertools import count

from dyno.tasks import stopped

EVERY_S = 0.25
ALL_EVERY = 1200  # looks: five minutes
_NEVER = 2**30


class Garbage:
    """From `start` to `stop` the looks at everything are this one's matter, in the whole process."""

    def __init__(self, every_s: float = EVERY_S, all_every: int = ALL_EVERY) -> None:
        self._every_s, self._all_every = every_s, all_every
        self._before = gc.get_threshold()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        young, middle, _ = self._before = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        self._task = asyncio.create_task(self._look(), name="garbage")

    async def stop(self) -> None:
        if self._task is not None:
            await stopped(self._task)
            self._task = None
        gc.unfreeze()
        gc.set_threshold(*self._before)

    async def _look(self) -> None:
        for number in count():
            if number % self._all_every == 0:
                gc.unfreeze()
            gc.collect()
            gc.freeze()
            await asyncio.sleep(self._every_s)

"""What only Python's collector can free, looked for so seldom that nobody waits for it.

By itself it looks through all there is whenever much has come, and holds up every caller for 50 ms and more meanwhile.
Here it looks through what is young alone, in less than a millisecond, and through the rest every ten minutes, without
what was there from the start (`gc.freeze`). Little waits for that: requests, connections and streams leave nothing that
only it can free (tests/service/abuse/test_garbage.py).
"""

from __future__ import annotations

import asyncio
import gc

from dyno.asyncio_tasks import cancel_and_wait

EVERY_S = 600.0
_NEVER = 2**30


class Garbage:
    """From `start` to `stop` the looks at everything are this one's matter, in the whole process."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._before = gc.get_threshold()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        young, middle, _ = self._before = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        gc.collect()
        gc.freeze()
        self._task = asyncio.create_task(self._look(), name="garbage")

    async def stop(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)
            self._task = None
        gc.unfreeze()
        gc.set_threshold(*self._before)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            gc.collect()

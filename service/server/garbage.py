"""What only Python's collector can free, looked for so seldom that nobody waits for it.

By itself it looks through all there is whenever much has come, and holds up every caller for 50 ms and more meanwhile.
Here what is there from the start is set aside (`gc.freeze`), and so is what a look has found alive: the next one is at
what has come since, and the later the longer the last one took. Little waits for it: requests, connections and streams
leave nothing that only it can free (tests/service/abuse/test_garbage.py). For what does, once set aside, there is a
look at everything each hour.
"""

from __future__ import annotations

import asyncio
import gc
import time

from dyno.tasks import stopped

EVERY_S, AT_LEAST_EVERY_S = 1.0, 60.0
REST = 1000  # times as long as the look: one request in 1,000 meets one
ALL_EVERY_S = 3600.0
_NEVER = 2**30


class Garbage:
    """From `start` to `stop` the looks at everything are this one's matter, in the whole process."""

    def __init__(self, every_s: float = EVERY_S, all_every_s: float = ALL_EVERY_S) -> None:
        self._every_s, self._all_every_s = every_s, all_every_s
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
            await stopped(self._task)
            self._task = None
        gc.unfreeze()
        gc.set_threshold(*self._before)

    async def _look(self) -> None:
        pause_s, all_at_s = self._every_s, time.monotonic() + self._all_every_s
        while True:
            await asyncio.sleep(pause_s)
            if time.monotonic() >= all_at_s:
                gc.unfreeze()
                all_at_s = time.monotonic() + self._all_every_s
            began_s = time.perf_counter()
            gc.collect()
            gc.freeze()
            pause_s = rest_s(time.perf_counter() - began_s, self._every_s)


def rest_s(look_s: float, every_s: float = EVERY_S) -> float:
    """After a look that took `look_s`."""
    return min(AT_LEAST_EVERY_S, max(every_s, REST * look_s))

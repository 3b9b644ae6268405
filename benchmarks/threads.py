"""A framework's threads, each on a core of its own, so that the kernel's placement doesn't enter a comparison.

Left alone, the kernel at times keeps two threads of a pool on one core, for a second or for a whole process. A
recurrent layer's steps then take up to 1.6 times as long, Dyno's and those of `fit` alike (decision 11).
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")


def bind_pools(cores: Sequence[int]) -> int:
    """Give the threads of every pool the cores in turn; returns the number of threads. Raises RuntimeError if none.

    Python's own threads stay free. Others of one name count as one pool: those of several were started pool by pool,
    so that neighbours among them still come to lie on different cores. A thread that a bound one starts later inherits
    its core, so call this again once all have started.
    """
    pools: dict[str, list[int]] = defaultdict(list)
    for thread in _threads():
        with suppress(OSError):  # it has just ended, or a sandbox forbids it
            pool = pools[(_TASKS / str(thread) / "comm").read_text().strip()]
            os.sched_setaffinity(thread, {cores[len(pool) % len(cores)]})
            pool.append(thread)
    bound = sum(map(len, pools.values()))
    if not bound:
        raise RuntimeError("no thread could be bound to a core")
    return bound


def _threads() -> list[int]:
    """All but Python's own, in the order of their start."""
    own = {thread.native_id for thread in threading.enumerate()}
    return sorted(thread for thread in (int(entry.name) for entry in _TASKS.iterdir()) if thread not in own)

"""Measure the memory bandwidth of CPU cores.

NumPy releases the GIL during its loops, so one thread per core can stream through the memory. Import this module only
in a short-lived process: it starts threads and takes memory.
"""

import math
import os
import threading
import time
from collections.abc import Sequence

import numpy as np

from dyno.models.device import PeakFigure

_ROUNDS = 5
_PATIENCE_S = 10.0


def measure_memory_bandwidth(cores: Sequence[int], size_bytes: int) -> PeakFigure:
    """The higher rate of STREAM's copy and add, in the best of five rounds, with all cores at once.

    `size_bytes`: the size of each of three arrays. The figure is null, with a reason, if the cores are too busy.
    """
    arrays = [np.ones(max(1, size_bytes // 8 // len(cores)) * len(cores)) for _ in range(3)]
    moved = {"copy": 2 * arrays[0].nbytes, "add": 3 * arrays[0].nbytes}
    barrier = threading.Barrier(len(cores), timeout=_PATIENCE_S)
    times_s = {kernel: [[math.inf] * len(cores) for _ in range(_ROUNDS)] for kernel in moved}

    def work(place: int, core: int) -> None:
        x, y, z = (np.array_split(array, len(cores))[place] for array in arrays)
        os.sched_setaffinity(0, {core})  # pins only this thread
        for number in range(_ROUNDS):
            for kernel, compute in (("copy", lambda: np.copyto(z, x)), ("add", lambda: np.add(x, y, out=z))):
                barrier.wait()
                began_s = time.perf_counter()
                compute()
                times_s[kernel][number][place] = time.perf_counter() - began_s

    def guarded(place: int, core: int) -> None:
        try:
            work(place, core)
        except (threading.BrokenBarrierError, OSError):
            barrier.abort()

    threads = [threading.Thread(target=guarded, args=of_core, daemon=True) for of_core in enumerate(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if barrier.broken:
        return PeakFigure(value=None, unit="bytes/s", reason="the cores were too busy to be measured together")
    best = max(moved[kernel] / min(map(max, rounds)) for kernel, rounds in times_s.items())
    return PeakFigure(value=best, unit="bytes/s", provenance="measured here")

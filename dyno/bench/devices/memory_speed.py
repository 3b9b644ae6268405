"""Measure the memory bandwidth of CPU cores.

NumPy releases the GIL during its loops, so one thread per core can stream through the memory. Measure only in a
short-lived process, because it takes memory and starts threads.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dyno.models.device import PeakFigure

_ROUNDS = 5
_PATIENCE_S = 10.0
_KERNELS: dict[str, tuple[int, Callable[..., object]]] = {  # arrays that a kernel moves, and the kernel
    "copy": (2, lambda x, y, z: np.copyto(z, x)),
    "add": (3, lambda x, y, z: np.add(x, y, out=z)),
}
_TOO_BUSY = "the cores were too busy to be measured together"


def measure_memory_bandwidth(cores: Sequence[int], size_bytes: int) -> PeakFigure:
    """The higher rate of STREAM's copy and add, in the best of five rounds, with all cores at once.

    `size_bytes`: the size of each of three arrays, together on all cores. The figure is null, with a reason, if it
    can't be measured.
    """
    count = max(1, size_bytes // 8 // len(cores))
    try:
        rates = [
            arrays * 8 * count * len(cores) / min(_lengths_s(cores, count, kernel))
            for arrays, kernel in _KERNELS.values()
        ]
    except MemoryError:
        return PeakFigure(value=None, unit="bytes/s", reason=f"no memory for arrays of {size_bytes} bytes")
    except threading.BrokenBarrierError:
        return PeakFigure(value=None, unit="bytes/s", reason=_TOO_BUSY)
    except OSError as error:
        return PeakFigure(value=None, unit="bytes/s", reason=str(error))
    return PeakFigure(value=max(rates), unit="bytes/s", provenance="measured here")


def _lengths_s(cores: Sequence[int], count: int, kernel: Callable[..., object]) -> list[float]:
    """The time of each round, from the first thread's start to the last one's end."""
    parts = [[np.empty(count) for _ in range(3)] for _ in cores]
    barrier = threading.Barrier(len(cores), timeout=_PATIENCE_S)
    starts_s, ends_s = ([[0.0] * len(cores) for _ in range(_ROUNDS)] for _ in range(2))

    def work(place: int) -> None:
        try:
            os.sched_setaffinity(0, {cores[place]})  # pins only this thread
            for array in parts[place]:
                array.fill(1.0)  # so the pages are in the memory next to this core
            for number in range(_ROUNDS):
                barrier.wait()
                starts_s[number][place] = time.perf_counter()
                kernel(*parts[place])
                ends_s[number][place] = time.perf_counter()
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(cores)) as threads:
        done = [threads.submit(work, place) for place in range(len(cores))]
    errors = [error for one in done if (error := one.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return [max(of_round) - min(began) for of_round, began in zip(ends_s, starts_s, strict=True)]

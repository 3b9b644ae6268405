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
# The number of arrays that a kernel moves, and the kernel.
_KERNELS: tuple[tuple[int, Callable[..., object]], ...] = (
    (2, lambda x, y, z: np.copyto(z, x)),
    (3, lambda x, y, z: np.add(x, y, out=z)),
)
_TOO_BUSY = "the cores were too busy to be measured together"


def measure_memory_bandwidth(cores: Sequence[int], size_bytes: int) -> PeakFigure:
    """The higher rate of STREAM's copy and add, in the best of five rounds, with all cores at once.

    `size_bytes`: the size of three arrays together, on all cores. The figure is null, with a reason, if it can't be
    measured.
    """
    count = max(1, size_bytes // 3 // 8 // len(cores))
    try:
        lengths_s = _lengths_s(cores, count)
    except MemoryError:
        return PeakFigure(value=None, unit="bytes/s", reason=f"no memory for arrays of {size_bytes} bytes")
    except threading.BrokenBarrierError:
        return PeakFigure(value=None, unit="bytes/s", reason=_TOO_BUSY)
    except OSError as error:
        return PeakFigure(value=None, unit="bytes/s", reason=str(error))
    moved_bytes = [arrays * 8 * count * len(cores) for arrays, _ in _KERNELS]
    rates = [moved / length_s for moved, length_s in zip(moved_bytes, lengths_s, strict=True)]
    return PeakFigure(value=max(rates), unit="bytes/s", provenance="measured here")


def _lengths_s(cores: Sequence[int], count: int) -> list[float]:
    """The shortest round of each kernel, from the first thread's start to the last one's end."""
    parts = [[np.empty(count) for _ in range(3)] for _ in cores]
    barrier = threading.Barrier(len(cores), timeout=_PATIENCE_S)
    spans_s = [[(0.0, 0.0)] * len(cores) for _ in range(_ROUNDS * len(_KERNELS))]

    def work(place: int) -> None:
        try:
            os.sched_setaffinity(0, {cores[place]})  # pins only this thread
            for array in parts[place]:
                array.fill(1.0)  # so the pages are in the memory next to this core
            for number, of_round in enumerate(spans_s):
                _, kernel = _KERNELS[number % len(_KERNELS)]
                barrier.wait()
                began_s = time.perf_counter()
                kernel(*parts[place])
                of_round[place] = began_s, time.perf_counter()
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(cores)) as threads:
        done = [threads.submit(work, place) for place in range(len(cores))]
    errors = [error for one in done if (error := one.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    lengths_s = [max(end_s for _, end_s in spans) - min(start_s for start_s, _ in spans) for spans in spans_s]
    return [min(lengths_s[place :: len(_KERNELS)]) for place in range(len(_KERNELS))]

"""How fast a loop runs on several cores at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from dyno.devices.machine_code import Loop

BURST_S = 0.004  # long against reading the clock and waking a thread (0.05 ms), short against a time slice
ROUNDS = 10  # the first few raise the clock; a neighbour rarely spoils all others
_PROBE_ITERATIONS = 100_000
_PATIENCE_S = 10.0


def best_rates_per_s(loop: Loop, cores: Sequence[int], rounds: int = ROUNDS) -> list[float]:
    """Iterations per second of each core, all cores running at the same time, in the round where they add up to most.

    The best round, not the mean: whatever disturbs a loop of known length only makes it slower. One round, not each
    core's own best: cores that boost in turns would add up to a rate that they never have together. Takes
    (rounds + 2) x 4 ms on an idle machine, whatever the number of cores. With a busy process on each core it takes
    longer and gives the same within 2 %.
    """
    barrier = threading.Barrier(len(cores), timeout=_PATIENCE_S)
    rates = [[0.0] * len(cores) for _ in range(rounds)]
    failures: list[BaseException] = []

    def work(place: int, core: int) -> None:
        try:
            os.sched_setaffinity(0, {core})  # of this thread alone
            iterations = _for_one_burst(loop)
            for of_round in rates:
                barrier.wait()
                of_round[place] = iterations / _duration_s(loop, iterations)
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=at, daemon=True) for at in enumerate(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise next((error for error in failures if not isinstance(error, threading.BrokenBarrierError)), failures[0])
    return max(rates, key=sum)


def _for_one_burst(loop: Loop) -> int:
    loop(_PROBE_ITERATIONS)
    return max(1, int(_PROBE_ITERATIONS * BURST_S / _duration_s(loop, _PROBE_ITERATIONS)))


def _duration_s(loop: Loop, iterations: int) -> float:
    """Of the thread's own processor time: beside a busy process the wall clock shows half the rate in every burst."""
    start_ns = time.thread_time_ns()
    loop(iterations)
    return (time.thread_time_ns() - start_ns) / 1e9

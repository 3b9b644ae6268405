"""Take the samples of one run: wall and processor time around a block of executions, until the rule says stop."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dyno.spec import Measure


@dataclass
class Taken:
    """Seconds per execution, warm-up apart; processor seconds (user, system) are per sample, all threads."""

    executions_per_sample: int
    warmup: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    cpu_s: list[tuple[float, float]] = field(default_factory=list)
    steady: bool = False
    stopped_because: str = ""


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection inside: one over a framework's objects takes 0.1 s and would fall into any sample."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def take(execute: Callable[[int], None], measure: Measure, report: Callable[[int], None]) -> Taken:
    once = _timed(execute, 1)
    count = max(1, round(0.1 / once + 0.5)) if once < 0.1 else 1
    taken = Taken(count)
    for _ in range(3):
        taken.warmup.append(_timed(execute, count) / count)
    began_s = time.perf_counter()
    while True:
        before = resource.getrusage(resource.RUSAGE_SELF)
        wall_s = _timed(execute, count)
        after = resource.getrusage(resource.RUSAGE_SELF)
        taken.samples.append(wall_s / count)
        taken.cpu_s.append((after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime))
        report(len(taken.samples))
        spent_s = time.perf_counter() - began_s
        if spent_s >= measure.max_s or (len(taken.samples) >= measure.min_samples and spent_s >= measure.min_s):
            break
    taken.stopped_because = "budget"
    return taken


def _timed(execute: Callable[[int], None], count: int) -> float:
    began_s = time.perf_counter()
    execute(count)
    return time.perf_counter() - began_s

"""Take the samples of one run with nothing of the runner's own in between."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dyno.measure.clock import HostClock
from dyno.measure.sampling import Samples, StoppingRule, sample
from dyno.run_frames import FrameWriter
from dyno.spec import DeviceKind, Measure


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection inside: one over a framework's objects takes 0.1 s and would fall into any sample."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def take_samples(execute: Callable[[int], None], measure: Measure, kind: DeviceKind, frames: FrameWriter) -> Samples:
    """Warm up and sample by the method's rule for a device of `kind`, with progress between samples."""

    def report(taken: int, expected: int | None) -> None:
        frames.report("sampling" if taken else "warmup", taken, expected)

    with undisturbed():
        return sample(execute, StoppingRule.of(measure, kind), HostClock(), report)

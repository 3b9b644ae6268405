"""Take the samples of one run with nothing of the runner's own in between."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dyno.devices.device import Device
from dyno.measure.checks import clock_skew
from dyno.measure.clock import HostClock
from dyno.measure.neighbours import Neighbours
from dyno.measure.sampling import Samples, StoppingRule, sample
from dyno.result import ResultWarning
from dyno.runner.writer import FrameWriter
from dyno.spec import Measure


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection inside: one over a framework's objects takes 0.1 s and would fall into any sample."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def take_samples(
    execute: Callable[[int], None],
    measure: Measure,
    device: Device,
    frames: FrameWriter,
    place: tuple[int, int] = (0, 1),
) -> tuple[Samples, list[ResultWarning]]:
    """Warm up and sample by the method's rule, with progress between samples; what disturbed it meanwhile.

    `place`: (how many cases of this run were sampled before, how many there are).
    """
    before, cases = place

    def report(taken: int, expected: int | None) -> None:
        total = None if expected is None else cases * expected  # as if each case took as many
        frames.report("sampling" if before or taken else "warmup", before * (expected or 0) + taken, total)

    clock = HostClock()
    with undisturbed():
        neighbours = Neighbours(device.cores, clock)
        samples = sample(execute, StoppingRule.of(measure, device.kind), clock, report)
        found = (neighbours.warning(), clock_skew(samples.wall_s, samples.epoch_s))
    return samples, [each for each in found if each is not None]

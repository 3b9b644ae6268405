"""Take the samples of one run with nothing of the runner's own in between."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dyno.devices.device import Device
from dyno.devices.sensors.source import Source
from dyno.devices.sensors.watch import Watch
from dyno.frameworks.contract import Framework
from dyno.measure.checks import clock_skew
from dyno.measure.clock import HostClock
from dyno.measure.neighbours import Neighbours, noisy_neighbour
from dyno.measure.rule import StoppingRule
from dyno.measure.sampling import Samples, sample
from dyno.models.result import CoreShares, ResultWarning, Sensors
from dyno.models.spec import Measure
from dyno.runner.traces import Traces
from dyno.runner.writer import FrameWriter


@dataclass(frozen=True)
class Taken:
    """The samples of one case, what sensors said over their window, and what disturbed them.

    `drain_s`: how long the device was busy after the last one; what passed before that was looked at is not in it.
    """

    samples: Samples
    sensors: Sensors
    drain_s: float = 0.0
    core_shares: CoreShares | None = None
    disturbances: list[ResultWarning] = field(default_factory=list)


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
    source: Source,
    frames: FrameWriter,
    place: tuple[int, int] = (0, 1),
    framework: Framework | None = None,
) -> Taken:
    """Warm up and sample by the method's rule, with progress and a look at the sensors between samples.

    `place`: (how many cases of this run were sampled before, how many there are). `framework`: what `execute` runs on.
    """
    before, cases = place

    def report(taken: int, expected: int | None) -> None:
        total = None if expected is None else cases * expected  # as if each case took as many
        frames.report("sampling" if before or taken else "warmup", before * (expected or 0) + taken, total)

    clock, drain = HostClock(), framework.drain if framework else lambda: None
    drain()
    with undisturbed():
        neighbours, watch = Neighbours(device.cores, clock), Watch(source, clock.now_s)
        traces = Traces(framework.traced if framework else lambda: None)

        def before_each() -> None:
            traces.look()
            watch.look()

        samples = sample(execute, StoppingRule.of(measure, device.kind), clock, report, before_each)
        stopped_s = clock.now_s()
        drain()
        drain_s, warmup = clock.now_s() - stopped_s, len(samples.warmup)
        sensors, shares = watch.over(warmup), neighbours.shares()
        found = (noisy_neighbour(shares), clock_skew(samples.wall_s, samples.epoch_s), *traces.warnings(warmup))
    return Taken(samples, sensors, drain_s, shares, [each for each in found if each is not None])

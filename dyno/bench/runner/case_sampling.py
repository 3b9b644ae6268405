"""Take the samples of a run's cases, and observe sensors, host noise and compilations at the same time.

Cases run one after the other. The runner executes, warms up and samples each case as if it were the only case. None of
the runner's code executes inside a sample.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dyno.bench.contract import Built, Case, HasCases
from dyno.bench.devices.sensors import SensorRecorder, SensorSource
from dyno.bench.frameworks.interface import Framework
from dyno.bench.measure.execution_checks import compile_in_timing, retraced
from dyno.bench.measure.host_noise import HostNoise
from dyno.bench.measure.result_checks import clock_skew
from dyno.bench.measure.sampling import HostClock, SamplingResult, sample
from dyno.bench.measure.stopping_rule import StoppingRule
from dyno.bench.runner.frame_writer import FrameWriter
from dyno.models.device import Device
from dyno.models.result import CoreShares, ResultWarning, RunSummary, Sensors
from dyno.models.runner_protocol import CaseRecord

TracedNames = Callable[[], Sequence[str] | None]  # see `Framework.traced`


class TraceCounter:
    """Counts the functions traced after the first execution. Call `look` before each sample, including warm-up."""

    def __init__(self, traced: TracedNames) -> None:
        self._traced = traced
        self._begun = self._count()
        self._looks: list[int] = []

    def look(self) -> None:
        self._looks.append(self._count())

    def warnings(self, warmup: int) -> list[ResultWarning]:
        """The warnings so far. Call it right after the last sample. The first `warmup` samples were warm-up."""
        names = self._traced()
        if names is None:
            return []
        timed = names[self._looks[warmup] :]
        raised = (compile_in_timing(timed), retraced(names[: self._begun], names[self._begun :]))
        return [warning for warning in raised if warning is not None]

    def _count(self) -> int:
        return len(self._traced() or ())


@dataclass(frozen=True)
class CaseSamples:
    """The samples of one case, the sensor readings of the same period, and the disturbances.

    `drain_s`: how long the drain after the last sample took, because the device was still busy.
    """

    samples: SamplingResult
    sensors: Sensors
    drain_s: float = 0.0
    core_shares: CoreShares | None = None
    disturbances: list[ResultWarning] = field(default_factory=list)


@contextmanager
def without_gc() -> Iterator[None]:
    """Disable garbage collection: collecting a framework's objects takes 0.1 s and could fall into any sample."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def take_samples(
    execute: Callable[[int], None],
    rule: StoppingRule,
    device: Device,
    source: SensorSource,
    frames: FrameWriter,
    position: tuple[int, int] = (0, 1),
    framework: Framework | None = None,
) -> CaseSamples:
    """Warm up and sample by `rule`; report progress and read the sensors between samples.

    `position`: (number of cases sampled before, number of all cases). `framework`: the framework that `execute` uses.
    """
    before, cases = position

    def report(taken: int, expected: int | None) -> None:
        total = None if expected is None else cases * expected  # assumes the same number of samples for every case
        frames.report("sampling" if before or taken else "warmup", before * (expected or 0) + taken, total)

    clock, drain = HostClock(), framework.drain if framework else lambda: None
    drain()
    with without_gc():
        neighbours = HostNoise(device.cores, clock, package=device.driven_as == "cpu")
        watch = SensorRecorder(source, clock.now_s)
        traces = TraceCounter(framework.traced if framework else lambda: None)

        def before_each() -> None:
            traces.look()
            watch.look()
            neighbours.look()

        samples = sample(execute, rule, clock, report, before_each)
        stopped_s = clock.now_s()
        drain()
        drain_s, warmup = clock.now_s() - stopped_s, len(samples.warmup)
        sensors, shares = watch.over(warmup), neighbours.shares(warmup)
        disturbances = (clock_skew(samples.wall_s, samples.epoch_s), *traces.warnings(warmup))
    return CaseSamples(samples, sensors, drain_s, shares, [raised for raised in disturbances if raised is not None])


Summarise = Callable[[CaseSamples, float | None], RunSummary]  # from the samples and the seconds of the first execution


@dataclass(frozen=True)
class SampledCase:
    """One case with its samples. `first_execution_s` is None for the first case, because the run records that time."""

    case: Case
    taken: CaseSamples
    first_execution_s: float | None = None

    @property
    def seconds(self) -> float:
        """The time of this case: its first execution, warm-up and samples."""
        return (self.first_execution_s or 0.0) + self.taken.samples.warmup_s + self.taken.samples.wall_s


def sample_cases(
    built: Built,
    rule_for: Callable[[int], StoppingRule],
    device: Device,
    source: SensorSource,
    frames: FrameWriter,
    framework: Framework,
) -> tuple[CaseSamples, list[SampledCase]]:
    """Returns (the run's own samples and the disturbances of all cases, all cases with their samples).

    `rule_for`: takes the number of cases that are left and returns the rule of the next case.
    """
    cases = built.cases if isinstance(built, HasCases) else ()
    count = max(1, len(cases))
    run_samples = take_samples(built.execute, rule_for(count), device, source, frames, (0, count), framework)
    sampled = [SampledCase(case, run_samples) for case in cases[:1]]
    for number, case in enumerate(cases[1:], start=1):
        began_s = time.perf_counter()
        case.execute(1)
        first_execution_s = time.perf_counter() - began_s
        taken = take_samples(case.execute, rule_for(count - number), device, source, frames, (number, count), framework)
        sampled.append(SampledCase(case, taken, first_execution_s))
        run_samples.disturbances.extend(taken.disturbances)
    return run_samples, sampled


def case_records(sampled: Sequence[SampledCase], summarise: Summarise) -> list[CaseRecord]:
    return [
        CaseRecord(
            name=timed.case.name,
            work=timed.case.work,
            flops=timed.case.flops,
            bytes=timed.case.bytes,
            over_link=timed.case.over_link,
            dtype=timed.case.dtype,
            amounts=dict(timed.case.amounts),
            summary=summarise(timed.taken, timed.first_execution_s),
            warmup=timed.taken.samples.warmup,
            samples=timed.taken.samples.samples,
            sample_cpu_s=timed.taken.samples.sample_cpu_s,
        )
        for timed in sampled
    ]

"""After the samples of the first run, make the checks that need further executions.

If a sample has many executions, all checks together take less time than a sample. If it has only one, they take up to
the time of four samples. Before a check raises a warning, it repeats the suspicious reading and uses the fastest one,
because other processes can only make work slower. A check that can't run leaves its code in `unchecked`, with a reason.

If a figure is above a CPU's measured peak, Dyno measures the peak again.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dyno.bench.contract import Built, Countable, Growable, Grown
from dyno.bench.devices.cpu_speed import measure_cpu_peaks
from dyno.bench.frameworks.interface import Framework
from dyno.bench.measure import peak_fraction, statistics
from dyno.bench.measure.execution_checks import (
    DRAIN_FLOOR_S,
    DRAIN_LIMIT,
    DrainReading,
    WorkGrowth,
    async_timing,
    unit_mismatch,
    work_eliminated,
)
from dyno.bench.runner.case_sampling import CaseSamples, SampledCase, without_gc
from dyno.models.device import Device, PeakFigure
from dyno.models.result import ResultWarning


@dataclass(frozen=True)
class CheckedCase:
    """One sampled case. `flops`: the FLOP per execution from which its figures are computed."""

    execute: Callable[[int], None]
    taken: CaseSamples
    flops: float
    dtype: str
    grown: Grown | None = None
    counted_flops: Callable[[], float | None] | None = None
    bytes: float | None = None
    counted_bytes: Callable[[], float] | None = None


def checked_cases(
    built: Built,
    run_samples: CaseSamples,
    cases: Sequence[SampledCase],
    flops: float,
    dtype: str,
    moved_bytes: float | None = None,
) -> list[CheckedCase]:
    """The cases to check. A run without cases is checked as a whole, with `flops` and bytes per execution."""
    if cases:
        return [_of_case(case) for case in cases]
    grown = built.grown if isinstance(built, Growable) else None
    counted_flops = built.counted_flops if isinstance(built, Countable) else None
    return [CheckedCase(built.execute, run_samples, flops, dtype, grown, counted_flops, moved_bytes)]


def _of_case(sampled: SampledCase) -> CheckedCase:
    case = sampled.case
    return CheckedCase(
        case.execute,
        sampled.taken,
        case.flops,
        case.dtype,
        case.grown,
        case.counted_flops,
        case.bytes,
        case.counted_bytes,
    )


def remeasured_peaks(device: Device, subjects: Sequence[CheckedCase]) -> dict[str, PeakFigure]:
    """Peaks measured again right after the samples; empty unless a figure is above a measured peak.

    The clock may have been lower in the earlier measurement than in the samples, or other processes may have used the
    same physical cores. Peaks from data sheets don't change.
    """
    if device.kind != "cpu" or not device.cores or not any(_above(device, subject) for subject in subjects):
        return {}
    return measure_cpu_peaks(device.cores)


def _above(device: Device, subject: CheckedCase) -> bool:
    figure = device.peak.get(subject.dtype)
    if figure is None or figure.value is None or figure.provenance == "datasheet":
        return False
    return subject.flops > figure.value * statistics.median(subject.taken.samples.samples)


_READ_S = DRAIN_FLOOR_S / DRAIN_LIMIT  # 20 ms; for shorter readings the drain's limit is a fixed time, not a share
_READINGS = 3
_LEAST_READ = 64  # executions in a reading of grown work; with fewer, the cost of reading (0.7 ms) would look like work
_LEAST_ROUNDS, _ROUNDS, _ROUNDS_S = 2, 10, 5.0  # limits of the rounds that confirm a suspicion; see `_again`
_GROWTHS = (2, 4, 8, 16, 32, 64)
_LARGER_FIRST = (*_GROWTHS[1:], 2)
_PARTS = (0.1, 0.2, 0.5)
# For executions shorter than this, a call of 0.1 ms may hide doubled work: try larger factors first. But try factor 2
# first if doubled work must be visible, as compilers may drop only small work.
_CALL_S = 5e-4
_SPAN = 8  # ratio of the numbers of executions in the two readings that confirm a suspicion
_LONG_S = 1.0  # executions this long aren't repeated if the samples already give the reading
_TOO_LONG_S = 30.0
_NO_FLOPS = "the workload declares no floating-point operations"
_UNCOUNTED = "{} can't count the operations of this execution"
_TOO_LONG = "one execution takes too long to execute twice the work"
_TOO_SMALL = "the work is too small, compared with its call, to distinguish it from eliminated work"


@dataclass
class CheckFindings:
    """Raised warnings, and the unchecked codes with their reasons."""

    raised: list[ResultWarning] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)

    def add(self, raised: ResultWarning | None) -> None:
        if raised is not None:
            self.raised.append(raised)


def run_checks(
    framework: Framework, device: Device, subjects: Sequence[CheckedCase], alive: Callable[[], None] = lambda: None
) -> CheckFindings:
    """Check each subject; `alive` is called between readings."""
    findings = CheckFindings()
    with without_gc():
        for subject in subjects:
            _CaseChecks(framework, device, subject, alive, findings).examine()
    return findings


class _CaseChecks:
    def __init__(
        self,
        framework: Framework,
        device: Device,
        subject: CheckedCase,
        alive: Callable[[], None],
        findings: CheckFindings,
    ) -> None:
        self._framework, self._device, self._subject = framework, device, subject
        self._alive, self._findings = alive, findings
        self._count = subject.taken.samples.executions_per_sample
        self._single_s = statistics.median(subject.taken.samples.samples)

    def examine(self) -> None:
        if self._count == 1 and self._single_s >= _LONG_S:
            # The samples already show whether more executions take longer.
            self._drained(1, DrainReading(self._single_s, self._subject.taken.drain_s))
        else:
            count = self._read_count()
            reading = self._read(count)
            self._drained(count, reading)
            self._more_executions(count, reading.execution_s)
        for code, check in (("WORK_ELIMINATED", self._more_work), ("UNIT_MISMATCH", self._units)):
            try:
                reason = check()
            except Exception as error:  # noqa: BLE001 - a failed check must not lose the samples
                reason = f"the check failed: {type(error).__name__}"
            if reason is not None:
                self._findings.unchecked[code] = reason

    def _read_count(self) -> int:
        """The number of executions in 20 ms, at most half of a sample's executions; 2 if a sample has one."""
        return 2 if self._count == 1 else max(1, min(self._count // 2, math.ceil(_READ_S / self._single_s)))

    def _drained(self, count: int, reading: DrainReading) -> None:
        """Compare the drain after `count` executions with their time, or with a sample's time if that is shorter."""
        longer = max(1.0, count / self._count)
        readings, began_s = [replace(reading, execution_s=reading.execution_s / longer)], time.perf_counter()
        while readings[-1].late and _again(len(readings), began_s):
            reading = self._read(count)
            readings.append(replace(reading, execution_s=reading.execution_s / longer))
        self._findings.add(async_timing(readings))

    def _more_executions(self, count: int, execution_s: float) -> None:
        """Compare the time of a sample with `execution_s`, the time of `count` executions.

        To confirm a suspicion, the check compares numbers of executions that differ more. On a busy host, readings of
        similar length scatter alike. If executions do work, a few may run undisturbed, but many can't.
        """
        sample_s = self._count * self._single_s
        if count < self._count:
            growth = WorkGrowth(self._count / count, execution_s, sample_s)
            if not growth.grew:  # the first training step after other work took up to three times as long
                growth = replace(growth, single_s=min(execution_s, self._read(count).execution_s))
        else:
            growth = WorkGrowth(count / self._count, sample_s, execution_s)
        if not growth.grew:
            growth = self._over_a_wider_span()
        self._findings.add(work_eliminated(growth, "executions"))

    def _over_a_wider_span(self) -> WorkGrowth:
        fewer = max(1, self._count // _SPAN)
        in_time = max(self._count, int(_LONG_S / self._single_s))
        more = max(2 * fewer, min(_SPAN * fewer, in_time))
        few, many = self._reading(fewer), self._reading(more)
        # If a sample is a single execution, every sample is a reading of one execution.
        sampled_s = min(self._subject.taken.samples.samples) if self._count == 1 else math.inf
        return self._confirmed(WorkGrowth(more / fewer, min(sampled_s, few()), many()), few, many)

    def _reading(self, count: int) -> Callable[[], float]:
        return lambda: self._read(count).execution_s

    def _more_work(self) -> str | None:
        """Grow an execution's work until its time grows, or would have to grow. Returns why the check is undecided."""
        grown, ceiling = self._subject.grown, peak_fraction.ceiling_per_s(self._device, self._subject.dtype)
        if grown is None:
            return None
        bytes_per_s = peak_fraction.ceiling_bytes_per_s(self._device)
        least_s = max(self._subject.flops / ceiling, (self._subject.bytes or 0.0) / bytes_per_s)
        if self._count == 1:
            return self._less_work(grown, least_s)
        single, single_s = partial(self._each_s, self._subject.execute, 1), self._single_s
        unsure: Callable[[], bool] | None = None
        visible = WorkGrowth(2, single_s, single_s, least_s).telling
        for times in _GROWTHS if visible or single_s >= _CALL_S else _LARGER_FIRST:
            expected = WorkGrowth(times, single_s, single_s, least_s)
            if times > 2 and (times > 2 * self._count or not expected.telling):
                continue
            if (execute := grown(times)) is None:
                continue
            execute(1)
            several = partial(self._each_s, execute, times)
            growth = replace(expected, grown_s=several())
            if growth.grew or growth.telling:
                growth = _fastest(growth, several, _READINGS - 1)
                if not growth.grew:
                    growth = _fastest(growth, several, 1)
                # Another reading of the single work could only make the growth look larger.
                if growth.telling and not growth.eliminated:
                    return None
                if self._decides(growth, single, several):
                    return None
            else:  # this reading can't prove that work was eliminated: repeat it only if no larger work decides
                largest = times > 2 or unsure is None  # of the work tried so far
                unsure = partial(self._decides, growth, single, several) if largest else unsure
                single_s = min(single_s, single())
        return None if unsure is not None and unsure() else _TOO_SMALL

    def _less_work(self, grown: Grown, least_s: float) -> str | None:
        """Like `_more_work`, if a sample is one execution: time a part of the work, or twice the work."""
        single = partial(self._each_s, self._subject.execute, 1)
        for share in _PARTS:
            if (execute := grown(share)) is not None:
                less = partial(self._each_s, execute, 1)
                growth = WorkGrowth(1 / share, less(), self._single_s, share * least_s)
                if not growth.grew:  # other processes may have started since `_single_s` was read: read it again
                    growth = replace(growth, grown_s=single())
                return None if self._decides(growth, less, single) else _TOO_SMALL
        if self._single_s > _TOO_LONG_S or (execute := grown(2)) is None:
            return _TOO_LONG
        if self._single_s < _LONG_S:
            execute(1)  # what the first execution compiles would look like work
        twice = partial(self._each_s, execute, 1)
        return None if self._decides(WorkGrowth(2, self._single_s, twice(), least_s), single, twice) else _TOO_SMALL

    def _decides(self, growth: WorkGrowth, single: Callable[[], float], several: Callable[[], float]) -> bool:
        """Add a warning if work was eliminated. Returns whether the readings decide the check."""
        growth = self._confirmed(growth, single, several)
        self._findings.add(work_eliminated(growth, "work in one execution"))
        return growth.grew or growth.telling

    def _each_s(self, execute: Callable[[int], None], times: int) -> float:
        """Seconds per execution of `times` times the work. A reading takes a twentieth of a sample (5 ms), or 64
        executions if these take longer, but at most a fifth of a sample.
        """
        count = max(1, min(self._count // (5 * times), max(_LEAST_READ, self._count // (20 * times))))
        return self._read(count, execute).execution_s / count

    def _confirmed(self, growth: WorkGrowth, single: Callable[[], float], several: Callable[[], float]) -> WorkGrowth:
        """Until the time grows or the rounds end, repeat both readings in turn and keep the fastest of each."""
        if growth.grew:
            return growth
        began_s, confirmed, done = time.perf_counter(), growth, 0
        while _again(done, began_s):
            done += 1
            single_s, grown_s = min(confirmed.single_s, single()), min(confirmed.grown_s, several())
            confirmed = replace(growth, single_s=single_s, grown_s=grown_s)
            if confirmed.grew or (confirmed.telling and not confirmed.eliminated):
                break
        return confirmed

    def _units(self) -> str | None:
        """Compare declared and counted FLOP, or bytes for work without FLOP. Returns why the check is undecided."""
        if self._subject.flops == 0 and self._subject.counted_bytes is not None:
            declared, counted_bytes = self._subject.bytes or 0.0, self._subject.counted_bytes()
            self._findings.add(unit_mismatch(declared, counted_bytes, "bytes"))
            return None
        counted = self._subject.counted_flops() if self._subject.counted_flops else None
        if counted is None:
            return _NO_FLOPS if self._subject.flops == 0 else _UNCOUNTED.format(self._framework.name)
        self._findings.add(unit_mismatch(self._subject.flops, counted))
        return None

    def _read(self, count: int, execute: Callable[[int], None] | None = None) -> DrainReading:
        self._alive()
        self._framework.drain()
        began_s = time.perf_counter()
        (execute or self._subject.execute)(count)
        stopped_s = time.perf_counter()
        self._framework.drain()
        drained_s = time.perf_counter()
        self._framework.drain()
        return DrainReading(stopped_s - began_s, drained_s - stopped_s, time.perf_counter() - drained_s)


def _fastest(growth: WorkGrowth, several: Callable[[], float], readings: int) -> WorkGrowth:
    """`growth` with the shortest time of the grown work: its own, or the time of one of `readings` more readings."""
    return replace(growth, grown_s=min(growth.grown_s, *(several() for _ in range(readings))))


def _again(done: int, began_s: float) -> bool:
    """Whether to repeat a suspicious reading: at least twice, then up to ten times within five seconds."""
    return done < _LEAST_ROUNDS or (done < _ROUNDS and time.perf_counter() - began_s < _ROUNDS_S)

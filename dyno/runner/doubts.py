"""What only more executions can tell: made after the samples of the first run, about two samples' time in all.

A doubt is confirmed before it is raised: whatever looks wrong is read again, and the best of several readings counts,
as neighbours only ever make work slower. A check that can't be made leaves its code among the unchecked, with a reason.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dyno.devices.device import Device
from dyno.frameworks.contract import Framework
from dyno.measure.executed import Drained, Growth, async_timing, unit_mismatch, work_eliminated
from dyno.measure.fraction import ceiling_per_s
from dyno.measure.statistics import median
from dyno.models.result import ResultWarning
from dyno.runner.samples import undisturbed
from dyno.runner.subjects import Subject
from dyno.workloads.contract import Grown

_READINGS = 3
_LEAST_ROUNDS, _ROUNDS, _ROUNDS_S = 2, 10, 5.0  # to confirm a doubt
_GROWTHS = (2, 4, 8, 16, 32, 64)
_PARTS = (0.1, 0.5)
_SPAN = 8  # times as many executions, to confirm that they take no longer
_LONG_S = 1.0  # an execution this long isn't made once more for what is known without
_TOO_LONG_S = 30.0
_NO_FLOPS = "the workload declares no floating-point operations"
_UNCOUNTED = "{} can't count the operations of what was executed"
_TOO_LONG = "one execution takes so long that twice as much of it was not waited for"
_TOO_SMALL = "the work is so small beside the call that starts it that it can't be told from none"


@dataclass
class Doubts:
    """`raised`, and the codes that couldn't be checked with the reason why."""

    raised: list[ResultWarning] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)

    def add(self, found: ResultWarning | None) -> None:
        if found is not None:
            self.raised.append(found)


def doubts(
    framework: Framework, device: Device, subjects: Sequence[Subject], alive: Callable[[], None] = lambda: None
) -> Doubts:
    """Look at each of the subjects; `alive` is called between readings."""
    found = Doubts()
    with undisturbed():
        for subject in subjects:
            _Examined(framework, device, subject, alive, found).examine()
    return found


class _Examined:
    def __init__(
        self, framework: Framework, device: Device, subject: Subject, alive: Callable[[], None], found: Doubts
    ) -> None:
        self._framework, self._device, self._subject = framework, device, subject
        self._alive, self._found = alive, found
        self._count = subject.taken.samples.executions_per_sample
        self._single_s = median(subject.taken.samples.samples)

    def examine(self) -> None:
        self._drained()
        if self._count > 1 or self._single_s < _LONG_S:  # else each sample has shown it of the one before
            self._more_executions()
        for code, check in (("WORK_ELIMINATED", self._more_work), ("UNIT_MISMATCH", self._units)):
            try:
                reason = check()
            except Exception as error:  # noqa: BLE001 - what was measured isn't lost with what would confirm it
                reason = f"the check failed: {type(error).__name__}"
            if reason is not None:
                self._found.unchecked[code] = reason

    def _drained(self) -> None:
        """The drain after half a sample; after the last sample where that is one long execution."""
        count = max(1, self._count // 2)
        if self._count == 1 and self._single_s >= _LONG_S:
            readings = [Drained(self._single_s, self._subject.taken.drain_s)]
        else:
            readings = [self._read(count)]
        began_s = time.perf_counter()
        while readings[-1].late and _again(len(readings), began_s):
            readings.append(self._read(count))
        self._found.add(async_timing(readings))

    def _more_executions(self) -> None:
        """Those of a sample against half of them, two against one where it has but one.

        A doubt is confirmed over a wider span: on a busy host two reads of much the same length scatter alike, but few
        executions find an undisturbed moment and many don't, so that honest work shows its growth all the more.
        """
        if self._count > 1:
            half = self._count // 2
            growth = Growth(self._count / half, self._read(half).execution_s, self._count * self._single_s)
        else:
            growth = Growth(2, self._single_s, self._read(2).execution_s)
        if not growth.grew:
            growth = self._over_a_wider_span()
        self._found.add(work_eliminated(growth, "executions"))

    def _over_a_wider_span(self) -> Growth:
        fewer = max(1, self._count // _SPAN)
        in_time = max(self._count, int(_LONG_S / self._single_s))
        more = max(2 * fewer, min(_SPAN * fewer, in_time))
        few, many = self._reading(fewer), self._reading(more)
        sampled_s = min(self._subject.taken.samples.samples) if self._count == 1 else math.inf  # a few readings more
        return self._confirmed(Growth(more / fewer, min(sampled_s, few()), many()), few, many)

    def _reading(self, count: int) -> Callable[[], float]:
        return lambda: self._read(count).execution_s

    def _more_work(self) -> str | None:
        """Ever more work in one compiled execution, until it takes longer or would have to; why nothing was told."""
        grown, ceiling = self._subject.grown, ceiling_per_s(self._device, self._subject.dtype)
        if grown is None:
            return None
        least_s = self._subject.flops / ceiling
        if self._count == 1:
            return self._less_work(grown, least_s)
        for times in _GROWTHS:
            expected = Growth(times, self._single_s, self._single_s, least_s)
            if times > 2 and (times > 2 * self._count or not expected.telling):
                continue
            if (execute := grown(times)) is None:
                break
            execute(1)
            single, several = partial(self._each_s, self._subject.execute, 1), partial(self._each_s, execute, times)
            growth = Growth(times, self._single_s, min(several() for _ in range(_READINGS)), least_s)
            if self._told(growth, single, several):
                return None
        return _TOO_SMALL

    def _less_work(self, grown: Grown, least_s: float) -> str | None:
        """Of an execution that fills a sample: a tenth, or half of it, or twice as much; why nothing was told."""
        single = partial(self._each_s, self._subject.execute, 1)
        for part in _PARTS:
            if (execute := grown(part)) is not None:
                less = partial(self._each_s, execute, 1)
                growth = Growth(1 / part, less(), self._single_s, part * least_s)
                if not growth.grew:  # what was read before others came is no match for what is read beside them
                    growth = replace(growth, grown_s=single())
                return None if self._told(growth, less, single) else _TOO_SMALL
        if self._single_s > _TOO_LONG_S or (execute := grown(2)) is None:
            return _TOO_LONG
        more = partial(self._each_s, execute, 1)
        return None if self._told(Growth(2, self._single_s, more(), least_s), single, more) else _TOO_SMALL

    def _told(self, growth: Growth, single: Callable[[], float], several: Callable[[], float]) -> bool:
        """Whether anything could be told from it; what speaks against the figure is raised."""
        growth = self._confirmed(growth, single, several)
        self._found.add(work_eliminated(growth, "work in one execution"))
        return growth.grew or growth.telling

    def _each_s(self, execute: Callable[[int], None], times: int) -> float:
        """Seconds of one execution, over as many as take a fifth of a sample if each does `times` the work."""
        count = max(1, self._count // (5 * times))
        return self._read(count, execute).execution_s / count

    def _confirmed(self, growth: Growth, single: Callable[[], float], several: Callable[[], float]) -> Growth:
        """Unless it grew at once: both in turn, the best of each, until it grew or had enough occasions to."""
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
        """Why nothing was told, if so."""
        if self._subject.flops == 0:
            return _NO_FLOPS
        counted = self._subject.counted_flops() if self._subject.counted_flops else None
        if counted is None:
            return _UNCOUNTED.format(self._framework.name)
        self._found.add(unit_mismatch(self._subject.flops, counted))
        return None

    def _read(self, count: int, execute: Callable[[int], None] | None = None) -> Drained:
        self._alive()
        self._framework.drain()
        began_s = time.perf_counter()
        (execute or self._subject.execute)(count)
        stopped_s = time.perf_counter()
        self._framework.drain()
        drained_s = time.perf_counter()
        self._framework.drain()
        return Drained(stopped_s - began_s, drained_s - stopped_s, time.perf_counter() - drained_s)


def _again(done: int, began_s: float) -> bool:
    """Whether a doubt is looked at once more: ten times, or as often as five seconds allow, but twice at least."""
    return done < _LEAST_ROUNDS or (done < _ROUNDS and time.perf_counter() - began_s < _ROUNDS_S)

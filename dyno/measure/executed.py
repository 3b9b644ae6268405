"""Checks of class A and B on how the work was executed: all of it, before the clock stopped, and nothing else.

Each looks at nothing but its arguments. The readings are made after the samples (`dyno.runner.doubts`), what was
compiled is noted between them (`dyno.runner.traces`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning

# An honest drain finds nothing left to wait for: 0.02 to 0.2 ms were measured. Half a sample lasts 25 ms at least.
DRAIN_LIMIT = 0.05
DRAIN_FLOOR_S = 1e-3
# Of the time that added work should take, how much it has to take: the rest is left to noise.
GROWTH_SHARE = 0.5
TELLING_SHARE = 0.25  # of a single execution: less can't be told from noise
# A training counts three times its forward pass. Of its first layer no gradient for the inputs is needed, so that where
# that layer is nearly all of it two thirds are done; a unit that is wrong is so by a factor of two.
UNIT_LIMIT = 5 / 3
_NAMED = 5


@dataclass(frozen=True)
class Drained:
    """One reading: the clock stopped after `execution_s`, and the device had finished `drain_s` later.

    `idle_s`: how long it takes to be told so where there is nothing to wait for, on a busy host many milliseconds.
    """

    execution_s: float
    drain_s: float
    idle_s: float = 0.0

    @property
    def late(self) -> bool:
        return self.drain_s - self.idle_s > max(DRAIN_FLOOR_S, DRAIN_LIMIT * self.execution_s)


@dataclass(frozen=True)
class Growth:
    """The work took `single_s`, and `times` as much of it `grown_s`.

    `least_s`: what the single work takes at the highest rate that the device could have.
    """

    times: float
    single_s: float
    grown_s: float
    least_s: float = math.inf

    @property
    def grew(self) -> bool:
        """By half at least of what the added work should take."""
        return self._added_s >= GROWTH_SHARE * (self.times - 1) * self.single_s

    @property
    def telling(self) -> bool:
        """Whether the added work must show, even at the highest rate."""
        return self._needed_s >= TELLING_SHARE * min(self.single_s, self.grown_s)  # more work bounds less of it

    @property
    def eliminated(self) -> bool:
        """The added work went by faster than the device could do half of it."""
        return self._added_s < self._needed_s

    @property
    def _added_s(self) -> float:
        return self.grown_s - self.single_s

    @property
    def _needed_s(self) -> float:
        return GROWTH_SHARE * (self.times - 1) * min(self.single_s, self.least_s)


def async_timing(readings: Sequence[Drained]) -> ResultWarning | None:
    """After every reading the device was still busy, for more than 1 ms and 5 % of the time taken."""
    if not readings or not all(reading.late for reading in readings):
        return None
    least = min(readings, key=lambda reading: reading.drain_s)
    return warning(
        "ASYNC_TIMING",
        f"The clock stopped {1e3 * least.drain_s:.1f} ms before the device had finished.",
        execution_s=least.execution_s,
        drain_s=least.drain_s,
        idle_s=least.idle_s,
        readings=len(readings),
        limit=DRAIN_LIMIT,
    )


def work_eliminated(growth: Growth, work: str) -> ResultWarning | None:
    """More of the `work`, in words, took no longer."""
    if not growth.telling or not growth.eliminated:
        return None
    return warning(
        "WORK_ELIMINATED",
        f"{growth.times:g} times the {work} took {growth.grown_s / growth.single_s:.2f} times as long.",
        times=growth.times,
        single_s=growth.single_s,
        grown_s=growth.grown_s,
        least_added_s=growth._needed_s,
    )


def unit_mismatch(declared: float, counted: float) -> ResultWarning | None:
    """FLOP of one execution, as declared and as the framework counts them: one is more than 5/3 of the other."""
    if max(declared, counted) <= UNIT_LIMIT * min(declared, counted):
        return None
    message = f"The figure counts {declared:.3g} FLOP per execution; the framework counts {counted:.3g}."
    return warning("UNIT_MISMATCH", message, declared_flop=declared, counted_flop=counted, limit=UNIT_LIMIT)


def steps_mismatch(asked: int, made: int, skipped: int = 0) -> ResultWarning | None:
    """Training steps that the figure counts, and those that the optimiser made; up to `skipped` may be fewer."""
    if asked - skipped <= made <= asked:
        return None
    message = f"The figure counts {asked} training steps; the optimiser made {made}."
    return warning("UNIT_MISMATCH", message, counted_steps=asked, made_steps=made)


def compile_in_timing(names: Sequence[str]) -> ResultWarning | None:
    """These functions were traced or compiled between the first sample's start and the last one's end."""
    if not names:
        return None
    return warning("COMPILE_IN_TIMING", times=len(names), functions=_few(names))


def retraced(before: Sequence[str], since: Sequence[str]) -> ResultWarning | None:
    """Of the functions that had been traced `before` the first look, some were traced again `since`."""
    known = set(before)
    again = [name for name in since if name in known]
    if not again:
        return None
    return warning("RETRACED", times=len(again), functions=_few(again))


def _few(names: Sequence[str]) -> list[JsonValue]:
    """Each once, the first few."""
    return [*list(dict.fromkeys(names))[:_NAMED]]

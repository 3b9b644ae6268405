"""Stop points of sweeps while they run: hopeless ones, and batches larger than one that ran out of memory.

Every few seconds, each API process looks at the sweeps that ask for it. It stops a point at most once, with the figures
that it knew then. A point is hopeless if even the better end of its interval is less than half as good as the worse end
of the best point's. The base of a ratio is never stopped, nor does an untrusted result stop a point, or any result that
can't be compared by the rules of comparisons.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import anyio.to_thread

from dyno import asyncio_tasks, errors
from dyno.bench.contract import Workload
from dyno.models import sweep
from dyno.models.result import Verdict
from dyno.store.sweeps import StoredSweep, Sweeps
from service.state import State
from service.sweeps import results as sweep_results
from service.sweeps.results import Measured

EVERY_S = 2.0
_HOPELESS = 2.0  # times worse than the best point

log = logging.getLogger(__name__)


def stops(state: State) -> AbstractAsyncContextManager[None]:
    """Stop points of sweeps during the block."""
    return asyncio_tasks.running(SweepWatch(state).run())


class SweepWatch:
    """Looks for points to stop until it is cancelled. A sweep without a change since the last look is left out."""

    def __init__(self, state: State) -> None:
        self._state, self._sweeps = state, Sweeps(state.client, state.settings, state.jobs)
        self._seen = dict[str, list[str]]()  # sweep -> the statuses of its jobs
        self._is_away = False

    async def run(self) -> None:
        while True:
            try:
                await self._look_at_all()
                self._is_away = False
            except errors.StoreUnavailable as error:
                if not self._is_away:
                    log.warning("can't look at sweeps now: %s", error.detail)
                self._is_away = True
            except Exception:  # such as a damaged key, until maintenance has repaired it
                log.exception("looking at sweeps failed")
            await asyncio.sleep(EVERY_S)

    async def _look_at_all(self) -> None:
        watched = await self._sweeps.watched()
        statuses = dict(zip([each.id for each in watched], await self._sweeps.statuses(watched), strict=True))
        for stored in watched:
            try:
                if self._seen.get(stored.id) != statuses[stored.id]:
                    await self._look(stored)
                if sweep.sweep_status(statuses[stored.id], is_canceled=False) != "running":
                    await self._sweeps.unwatch(stored.id)
            except errors.StoreUnavailable:
                raise
            except Exception:  # the other sweeps count as well
                log.exception("looking at %s failed", stored.id)
        self._seen = statuses

    async def _look(self, stored: StoredSweep) -> None:
        measured = await sweep_results.read_measured(self._state, stored)
        workload = sweep_results.workload_of(self._state, stored)
        # In a thread: intervals over rounds import SciPy.
        found = await anyio.to_thread.run_sync(points_to_stop, stored, measured, workload)
        for place, why in found.items():
            if await self._sweeps.stop(stored, place, why):
                log.info("%s: stopped point %d: %s", stored.id, place, why.reason)


def points_to_stop(
    stored: StoredSweep, measured: Sequence[Measured], workload: Workload | None
) -> Mapping[int, sweep.Stop]:
    """The points that weren't stopped before, by place, and why to stop them."""
    record, found = stored.record, dict[int, sweep.Stop]()
    if record.stop_hopeless:
        found |= _hopeless(record, measured, workload)
    if record.batch_limits:
        found |= _too_large(record, measured)
    return {place: why for place, why in found.items() if place not in stored.stopped}


def _too_large(record: sweep.SweepRecord, measured: Sequence[Measured]) -> Iterator[tuple[int, sweep.Stop]]:
    """The points that ran out of memory, and those with a larger batch and otherwise the same values."""
    for by, each in enumerate(measured):
        if any(job and job.record.get("status_reason") == "out_of_memory" for job in each.jobs):
            smaller = record.points[by].values
            for place, point in enumerate(record.points):
                is_alike = {**point.values, sweep.BATCH_SIZE: smaller[sweep.BATCH_SIZE]} == smaller
                if is_alike and sweep.batch_size(point.values) >= sweep.batch_size(smaller):
                    yield place, sweep.Stop(reason="out_of_memory", by=by)


def _hopeless(
    record: sweep.SweepRecord, measured: Sequence[Measured], workload: Workload | None
) -> Iterator[tuple[int, sweep.Stop]]:
    ends = {place: found for place, each in enumerate(measured) if (found := _ends(each, record.metric))}
    if not ends:
        return
    best = max(ends, key=lambda place: ends[place].rate(ends[place].worse))
    worse, bases = ends[best].worse, {point.base for point in record.points}
    for place, own in ends.items():
        is_hopeless = own.rate(own.better) * _HOPELESS < own.rate(worse)
        if is_hopeless and place not in bases and measured[place].waits:
            sides = [measured[each].done[-1] for each in (best, place)]
            reason, _ = sweep_results.comparability(measured[best], measured[place], sides, record.metric, workload)
            if reason is None:
                yield place, sweep.Stop(reason="hopeless", by=best, bound=own.better, best_bound=worse)


class _Ends(NamedTuple):
    """The ends of an interval, in the unit of the metric."""

    worse: float
    better: float
    is_rate: bool

    def rate(self, value: float) -> float:
        return value if self.is_rate else 1 / value


def _ends(measured: Measured, metric: str) -> _Ends | None:
    """None if the interval is unknown, or a result is untrusted."""
    found = [each for each in measured.metrics(metric) if each is not None]
    if not found or any(result.verdict is Verdict.UNTRUSTED for result in measured.done):
        return None
    known = sweep_results.pooled(found)
    if not known.low or known.high is None:
        return None
    is_rate = known.better == "higher"
    return _Ends(known.low, known.high, is_rate) if is_rate else _Ends(known.high, known.low, is_rate)

"""Stop points of running sweeps: hopeless points, and batches larger than a batch that ran out of memory.

Every few seconds, each API process checks the sweeps that request such stops. It stops a point at most once, and
records the figures that it used. A point is hopeless if even the better end of its interval is less than half as good
as the worse end of the best point's interval. The base of a ratio is never stopped. Untrusted results, and results
that can't be compared by the rules of comparisons, stop no point.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import anyio.to_thread

from dyno import asyncio_tasks
from dyno.bench.contract import Workload
from dyno.models import sweep
from dyno.models.result import Verdict
from dyno.store.sweeps import StoredSweep, Sweeps
from service.state import State
from service.sweeps import results as sweep_results
from service.sweeps.results import Measured

EVERY_S = 2.0
_HOPELESS = 2.0  # a hopeless point is this many times worse than the best

log = logging.getLogger(__name__)


def stops(state: State) -> AbstractAsyncContextManager[None]:
    """Stop points of sweeps during the block."""
    return asyncio_tasks.repeating(SweepWatch(state).look, EVERY_S, "stopping points of sweeps")


class SweepWatch:
    """Searches for points to stop. Skips sweeps that haven't changed since the last search."""

    def __init__(self, state: State) -> None:
        self._state, self._sweeps = state, Sweeps(state.client, state.settings, state.jobs)
        self._seen = dict[str, list[str]]()  # sweep -> the statuses of its jobs

    async def look(self) -> None:
        """Stop points of all running sweeps. Raises StoreUnavailable."""
        watched = await self._sweeps.watched()
        now = dict(zip([stored.id for stored in watched], await self._sweeps.statuses(watched), strict=True))
        for stored in watched:
            with asyncio_tasks.one_of_many(f"looking at {stored.id}"):
                if self._seen.get(stored.id) != now[stored.id]:
                    await self._stop_points(stored)
                if sweep.sweep_status(now[stored.id], is_canceled=False) != "running":
                    await self._sweeps.unwatch(stored.id)
        self._seen = now

    async def _stop_points(self, stored: StoredSweep) -> None:
        measured = await sweep_results.read_measured(self._state, stored)
        workload = sweep_results.workload_of(self._state, stored)
        # In a thread: the first interval over rounds imports SciPy.
        stop_points = await anyio.to_thread.run_sync(points_to_stop, stored, measured, workload)
        for position, why in stop_points.items():
            if await self._sweeps.stop(stored, position, why):
                log.info("%s: stopped point %d: %s", stored.id, position, why.reason)


def points_to_stop(
    stored: StoredSweep, measured: Sequence[Measured], workload: Workload | None
) -> Mapping[int, sweep.Stop]:
    """The points to stop that aren't stopped yet, by position, with the reasons."""
    record, stop_points = stored.record, dict[int, sweep.Stop]()
    if record.stop_hopeless:
        stop_points |= _hopeless(record, measured, workload)
    if record.batch_limits:
        stop_points |= _too_large(record, measured)
    return {position: why for position, why in stop_points.items() if position not in stored.stopped}


def _too_large(record: sweep.SweepRecord, measured: Sequence[Measured]) -> Iterator[tuple[int, sweep.Stop]]:
    """The points that ran out of memory, and the points that differ from them only in a larger batch."""
    for by, point_jobs in enumerate(measured):
        if any(job and job.record.get("status_reason") == "out_of_memory" for job in point_jobs.jobs):
            smaller = record.points[by].values
            for position, point in enumerate(record.points):
                is_alike = {**point.values, sweep.BATCH_SIZE: smaller[sweep.BATCH_SIZE]} == smaller
                if is_alike and sweep.batch_size(point.values) >= sweep.batch_size(smaller):
                    yield position, sweep.Stop(reason="out_of_memory", by=by)


def _hopeless(
    record: sweep.SweepRecord, measured: Sequence[Measured], workload: Workload | None
) -> Iterator[tuple[int, sweep.Stop]]:
    ends = {
        position: ends_of_point
        for position, point_jobs in enumerate(measured)
        if (ends_of_point := _ends(point_jobs, record.metric))
    }
    if not ends:
        return
    best = max(ends, key=lambda position: ends[position].rate(ends[position].worse))
    worse, bases = ends[best].worse, {point.base for point in record.points}
    for position, ends_of_point in ends.items():
        is_hopeless = ends_of_point.rate(ends_of_point.better) * _HOPELESS < ends_of_point.rate(worse)
        if is_hopeless and position not in bases and measured[position].waits:
            sides = [measured[end].done[-1] for end in (best, position)]
            reason, _ = sweep_results.comparability(measured[best], measured[position], sides, record.metric, workload)
            if reason is None:
                yield position, sweep.Stop(reason="hopeless", by=best, bound=ends_of_point.better, best_bound=worse)


class _Ends(NamedTuple):
    """The ends of an interval, in the unit of the metric."""

    worse: float
    better: float
    is_rate: bool

    def rate(self, value: float) -> float:
        return value if self.is_rate else 1 / value


def _ends(measured: Measured, metric: str) -> _Ends | None:
    """The ends of the point's interval; None if the interval is unknown, or if a result is untrusted."""
    figures = [figure for figure in measured.metrics(metric) if figure is not None]
    if not figures or any(result.verdict is Verdict.UNTRUSTED for result in measured.done):
        return None
    pooled = sweep_results.pooled(figures)
    if not pooled.low or pooled.high is None:
        return None
    is_rate = pooled.better == "higher"
    return _Ends(pooled.low, pooled.high, is_rate) if is_rate else _Ends(pooled.high, pooled.low, is_rate)

"""Read the history of results, and rerun the jobs of new alarms.

Every `alarms_every_s`, one of all API processes looks at the newest results of each workload. For an alarm without a
rerun, it submits the job again, on the same device and with low priority. The idempotency key of that submit is the
alarm's id, and the record of the rerun stays first, so an alarm has one rerun even if a process dies in between or
several look at once.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread

from dyno import asyncio_tasks, errors
from dyno.measure.result_series import RaisedAlarm, alarms_of, history_of, with_changes
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.history import Alarm, AlarmRecord, History, ResultSeries
from dyno.models.job import Job, Status
from dyno.models.result import ResultSummary
from dyno.models.spec import DeviceSelector
from dyno.store.alarms import AlarmRecords
from dyno.store.records import read_result_summaries
from service import submission, validation
from service.state import State

MOST_RESULTS = 500  # of one request, which takes 0.13 to 0.3 s with one series of that many `matmul` results
_PAGE = 100

log = logging.getLogger(__name__)


async def read_history(
    state: State, metric: str | None = None, *, limit: int = MOST_RESULTS, query: str = "", **wanted: Any
) -> History:
    """The history of the newest results that match, at most `limit`. `wanted`: filters and cursor of `Jobs.browse`.

    `query`: the query of this request, for the URLs that acknowledge alarms. Raises InvalidSpec for a wrong cursor.
    """
    results, read, cursor = await _read_results(state, limit, wanted)
    found = await _searched(state, results, metric)
    alarms = [_alarm(series, raised, query) for series, all_raised in found for raised in all_raised]
    alarms.sort(key=lambda alarm: alarm.time, reverse=True)
    return History(
        series=[series for series, _ in found],
        alarms=alarms,
        results_read=read,
        next_cursor=cursor,
        has_more=cursor is not None,
    )


async def _read_results(
    state: State, limit: int, wanted: dict[str, Any]
) -> tuple[list[tuple[Job, ResultSummary]], int, str | None]:
    found, read, cursor = list[tuple[Job, ResultSummary]](), 0, wanted.pop("cursor", None)
    while read < limit:
        page = await state.jobs.list(status=Status.SUCCEEDED, cursor=cursor, limit=min(_PAGE, limit - read), **wanted)
        figures = await read_result_summaries(state.client, state.settings, [job.id for job in page.data])
        found += [(job, each) for job, each in zip(page.data, figures, strict=True) if each is not None]
        read, cursor = read + len(page.data), page.next_cursor
        if cursor is None or not page.data:
            break
    return found, read, cursor


_Results = Sequence[tuple[Job, ResultSummary]]
_Searched = list[tuple[ResultSeries, list[RaisedAlarm]]]


async def _searched(state: State, results: _Results, metric: str | None) -> _Searched:
    """The series with their changes and alarms. They are made in threads: a search takes up to 20 ms a series."""
    untimed = {name: workload.params.untimed for name, workload in state.workloads.items()}
    series = await anyio.to_thread.run_sync(history_of, results, metric, untimed)
    records = await AlarmRecords(state.client, state.settings).read([each.series_id for each in series])
    return await anyio.to_thread.run_sync(_search_all, series, records)


def _search_all(series: Sequence[ResultSeries], records: Sequence[Mapping[str, AlarmRecord]]) -> _Searched:
    found = [(with_changes(each, known), known) for each, known in zip(series, records, strict=True)]
    return [(each, alarms_of(each, known)) for each, known in found]


def _alarm_id(series: ResultSeries, raised: RaisedAlarm) -> str:
    return f"alm_{series.series_id.removeprefix('ser_')}_{raised.job.removeprefix('job_')}"


def _alarm(series: ResultSeries, raised: RaisedAlarm, query: str) -> Alarm:
    alarm_id, record = _alarm_id(series, raised), raised.record
    return Alarm(
        **raised.change.model_dump(),
        **record.model_dump(),
        id=alarm_id,
        series_id=series.series_id,
        metric=series.metric,
        outcome="faster" if raised.change.ratio > 1 else "slower",
        state=raised.state,
        acknowledge_url=f"/v1/history/alarms/{alarm_id}/acknowledge" + (f"?{query}" if query else ""),
    )


async def acknowledge(state: State, alarm_id: str, history: History) -> Alarm:
    """Acknowledge an alarm of `history`, and return it. One that was acknowledged before stays. Raises UnknownAlarm."""
    alarm = next((each for each in history.alarms if each.id == alarm_id), None)
    if alarm is None:
        raise errors.UnknownAlarm(
            "no such alarm in the history that the request's query selects; use the alarm's acknowledge_url"
        )
    records, job_id = AlarmRecords(state.client, state.settings), f"job_{alarm_id.rpartition('_')[2]}"
    await records.acknowledge(alarm.series_id, job_id, state.jobs.viewer.owner)
    [stored] = await records.read([alarm.series_id])
    return alarm.model_copy(update={**stored[job_id].model_dump(), "state": "acknowledged"})


@asynccontextmanager
async def alarm_reruns(state: State) -> AsyncIterator[None]:
    """Look for alarms during the block, unless `alarms_every_s` is 0."""
    if not state.settings.alarms_every_s:
        yield
        return
    task = asyncio.create_task(AlarmWatch(state).run())
    try:
        yield
    finally:
        await asyncio_tasks.cancel_and_wait(task)


class AlarmWatch:
    """Looks for alarms until it is cancelled. A workload without a new result since the last look is left out."""

    def __init__(self, state: State) -> None:
        self._state, self._records = state, AlarmRecords(state.client, state.settings)
        self._seen = dict[str, str]()  # workload -> its newest job

    async def run(self) -> None:
        every_s = self._state.settings.alarms_every_s
        while True:
            try:
                if await self._records.take_turn(0.9 * every_s):  # else a turn would end after the next look
                    for workload in self._state.workloads:
                        await self._try_to_look(workload)
            except errors.StoreUnavailable as error:
                log.warning("can't look for alarms now: %s", error.detail)
            await asyncio.sleep(every_s)

    async def _try_to_look(self, workload: str) -> None:
        try:
            await self.look(workload)
        except errors.StoreUnavailable:
            raise
        except Exception:  # the other workloads' alarms count as well
            log.exception("looking for alarms of %s failed", workload)

    async def look(self, workload: str) -> None:
        """Rerun the jobs of this workload's alarms that need it. Raises StoreUnavailable."""
        newest = await self._state.jobs.browse(status=Status.SUCCEEDED, workload=workload, limit=1)
        job_id = newest.data[0].id if newest.data else ""
        if self._seen.get(workload, "") == job_id:
            return
        results, _, _ = await _read_results(self._state, MOST_RESULTS, {"workload": workload})
        waiting = False
        for series, alarms in await _searched(self._state, results, None):
            for raised in alarms:
                if raised.is_last and raised.state == "new" and raised.record.rerun is None:
                    waiting |= not await self._rerun(series, raised)
        if not waiting:
            self._seen[workload] = job_id

    async def _rerun(self, series: ResultSeries, raised: RaisedAlarm) -> bool:
        """Returns False if the job can't be submitted now; a later look tries again."""
        try:
            job = await self._state.jobs.get(raised.job)
            viewer = await self._viewer(job.owner)
            if viewer is None:
                return True
            state = self._state.seen_by(viewer)
            asked = submission.rerun_request(_on_device(job), state, validation.body_digest({"rerun_of": job.id}))
            key = _alarm_id(series, raised)
            submitted = await submission.submit(state, asked, key, rerun_of=job.id)
        except errors.StoreUnavailable:
            raise
        except (errors.InvalidSpec, errors.UnknownJob) as error:  # it never can
            log.warning("can't rerun %s to confirm an alarm: %s", raised.job, error.detail)
            return True
        except errors.DynoError as error:
            log.warning("can't rerun %s to confirm an alarm now: %s", raised.job, error.detail)
            return False
        await self._records.add_rerun(series.series_id, raised.job, submitted.stored.id)
        log.info("%s reruns %s to confirm an alarm", submitted.stored.id, raised.job)
        return True

    async def _viewer(self, owner: str | None) -> Viewer | None:
        """The owner of the rerun, whose limits count; None for a revoked key, which submits nothing."""
        if owner is None:
            return EVERYBODY
        keys = (key for key in await self._state.keys.list() if key.id == owner and key.revoked_at is None)
        key = next(keys, None)
        return None if key is None else Viewer(key.id, False, key.high_priority, key.limits.expires_in_s)


def _on_device(job: Job) -> Job:
    """The job, to be run on the device that ran it, reported to no webhook and held against no baseline."""
    device = job.worker and f"{job.worker.device.partition('@')[0]}@{job.worker.host}"
    changes = {"device": DeviceSelector(id=device), "priority": "low", "queue_if_absent": False}
    alone = {"webhook": None, "baseline": None}
    return job.model_copy(update={"spec": job.spec.model_copy(update=changes | alone)})

"""Read the history of results, and rerun the jobs of new alarms.

Every `alarms_every_s`, one of the API processes checks each spec and device that has new results. For an alarm without
a rerun, it submits the job again, on the same device and with low priority. The limits of the job's key don't apply to
the rerun. The submit's idempotency key is made from the job, and a later rerun doesn't replace the recorded rerun. So
an alarm has one rerun even if a process dies during the check or several processes check at once.
"""

import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import anyio.to_thread

from dyno import asyncio_tasks, errors
from dyno.bench.contract import Workload
from dyno.bench.measure.result_series import RaisedAlarm, alarms_of, history_of, with_changes
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.history import Alarm, AlarmRecord, History, ResultSeries
from dyno.models.job import Job, Status
from dyno.models.result import ResultSummary
from dyno.models.spec import DeviceSelector
from dyno.store.alarms import AlarmRecords
from dyno.store.list_pages import RecordPage
from dyno.store.stored_results import read_result_summaries
from service import submission, validation
from service.state import State

MOST_RESULTS = 500  # per request; a single series of 500 `matmul` results takes 0.13 to 0.3 s
WATCHED_JOBS = 5000  # newest jobs of each workload that the search for alarms reads
_PAGE = 100
_MOST_PAGES = 50  # if a filter matches nothing in these pages, the response has only a cursor

log = logging.getLogger(__name__)


async def read_history(
    state: State, metric: str | None = None, *, limit: int = MOST_RESULTS, query: str = "", **filters: Any
) -> History:
    """The history of the `limit` newest results that match. `filters`: filters and cursor of `Jobs.browse`.

    `query`: the query of this request, for the URLs that acknowledge alarms. Raises InvalidSpec for a wrong cursor.
    """
    results, read, cursor = await _read_results(state, limit, filters)
    searched = await _searched(state, results, metric)
    alarms = [_alarm(series, raised, query) for series, all_raised in searched for raised in all_raised]
    alarms.sort(key=lambda alarm: alarm.time, reverse=True)
    return History(
        series=[series for series, _ in searched],
        alarms=alarms,
        results_read=read,
        next_cursor=cursor,
        has_more=cursor is not None,
    )


_Results = Sequence[tuple[Job, ResultSummary]]


async def _read_results(state: State, limit: int, filters: dict[str, Any]) -> tuple[_Results, int, str | None]:
    results, read, cursor = list[tuple[Job, ResultSummary]](), 0, None
    async for page in _job_pages(state, limit, filters):
        results += await _with_results(state, page.data)
        read, cursor = read + len(page.data), page.next_cursor
    return results, read, cursor


async def _job_pages(state: State, limit: int, filters: dict[str, Any]) -> AsyncIterator[RecordPage[Job]]:
    """Pages of the newest matching jobs that succeeded, at most `limit` jobs. A page may be empty."""
    read, cursor = 0, filters.pop("cursor", None)
    for _ in range(_MOST_PAGES):
        page = await state.jobs.list(status=Status.SUCCEEDED, cursor=cursor, limit=min(_PAGE, limit - read), **filters)
        yield page
        read, cursor = read + len(page.data), page.next_cursor
        if cursor is None or read == limit:
            break


async def _with_results(state: State, jobs: Sequence[Job]) -> _Results:
    figures = await read_result_summaries(state.client, state.settings, [job.id for job in jobs])
    return [(job, summary) for job, summary in zip(jobs, figures, strict=True) if summary is not None]


_Searched = list[tuple[ResultSeries, list[RaisedAlarm]]]


async def _searched(state: State, results: _Results, metric: str | None) -> _Searched:
    """The series with their changes and alarms. Searches run in threads: each takes up to 20 ms per series."""
    series = await anyio.to_thread.run_sync(history_of, results, metric, state.workloads)
    records = await AlarmRecords(state.client, state.settings).read([one_series.series_id for one_series in series])
    return await anyio.to_thread.run_sync(_search_all, series, records)


def _search_all(series: Sequence[ResultSeries], records: Sequence[Mapping[str, AlarmRecord]]) -> _Searched:
    changed = [
        (with_changes(one_series, alarm_records), alarm_records)
        for one_series, alarm_records in zip(series, records, strict=True)
    ]
    return [(one_series, alarms_of(one_series, alarm_records)) for one_series, alarm_records in changed]


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
    """Acknowledge an alarm of `history`, and return it. Keeps an earlier acknowledgement. Raises UnknownAlarm."""
    alarm = next((alarm for alarm in history.alarms if alarm.id == alarm_id), None)
    if alarm is None:
        raise errors.UnknownAlarm(
            "no such alarm in the history that the request's query selects; use the alarm's acknowledge_url"
        )
    records, job_id = AlarmRecords(state.client, state.settings), f"job_{alarm_id.rpartition('_')[2]}"
    await records.acknowledge(alarm.series_id, job_id, state.jobs.viewer.owner)
    [stored] = await records.read([alarm.series_id])
    return alarm.model_copy(update={**stored[job_id].model_dump(), "state": "acknowledged"})


def alarm_reruns(state: State) -> AbstractAsyncContextManager[None]:
    """Look for alarms during the block, unless `alarms_every_s` is 0."""
    if not state.settings.alarms_every_s:
        return nullcontext()
    return asyncio_tasks.repeating(AlarmWatch(state).look_at_all, state.settings.alarms_every_s, "looking for alarms")


class AlarmWatch:
    """Searches for alarms of the specs and devices that have new results since the last search."""

    def __init__(self, state: State) -> None:
        self._state, self._records = state, AlarmRecords(state.client, state.settings)

    async def look_at_all(self) -> None:
        """If it is this process' turn, rerun the jobs of alarms that have no rerun yet. Raises StoreUnavailable."""
        # Shorter than the interval: otherwise, this turn wouldn't have ended by the next search.
        if await self._records.take_turn(0.9 * self._state.settings.alarms_every_s):
            for workload in self._state.workloads:
                with asyncio_tasks.one_of_many(f"looking for alarms of {workload}"):
                    await self.look(workload)

    async def look(self, workload: str) -> None:
        """Rerun the jobs of this workload's alarms that have no rerun yet. Raises StoreUnavailable."""
        last, now = await self._records.looks(workload)
        if now.succeeded == last.succeeded:
            return
        since_s = last.at_s if last.at_s <= now.at_s else 0.0  # 0 if Redis' clock has stepped back
        series = defaultdict[str, list[Job]](list)
        async for page in _job_pages(self._state, WATCHED_JOBS, {"workload": workload}):
            for job in page.data:
                series[_spec_on_device(job, self._state.workloads[workload])].append(job)
        is_done = True
        for jobs in series.values():
            if any(job.finished_at and job.finished_at.timestamp() >= since_s for job in jobs):
                is_done &= await self._look_at(jobs[:MOST_RESULTS])
        if is_done:
            await self._records.end_look(workload, now)

    async def _look_at(self, jobs: Sequence[Job]) -> bool:
        """Returns False if a job can't be submitted now; a later search tries again."""
        is_done = True
        for series, alarms in await _searched(self._state, await _with_results(self._state, jobs), None):
            for raised in alarms:
                if raised.is_last and raised.state == "new" and raised.record.rerun is None:
                    is_done &= await self._confirm(series.series_id, raised.job)
        return is_done

    async def _confirm(self, series_id: str, job_id: str) -> bool:
        """Rerun the job of the alarm, and record the rerun."""
        try:
            rerun = await self._rerun(job_id)
        except errors.StoreUnavailable:
            raise
        except (errors.InvalidSpec, errors.UnknownJob) as error:  # this job can never be rerun
            log.warning("can't rerun %s to confirm an alarm: %s", job_id, error.detail)
            return True
        except errors.DynoError as error:
            log.warning("can't rerun %s to confirm an alarm now: %s", job_id, error.detail)
            return False
        if rerun is not None:
            await self._records.add_rerun(series_id, job_id, rerun)
        return True

    async def _rerun(self, job_id: str) -> str | None:
        """The new job's id; None if the key is invalid or the job was imported. Raises as `submission.submit` does."""
        job = await self._state.jobs.get(job_id)
        viewer = await self._viewer(job.owner)
        if viewer is None or job.imported is not None:
            return None
        state = self._state.seen_by(viewer)
        request = submission.rerun_request(_on_device(job), state, validation.body_digest({"rerun_of": job.id}))
        submitted = await submission.submit(state, request, f"alarm_of_{job.id}", rerun_of=job.id, uncharged=True)
        log.info("%s reruns %s to confirm an alarm", submitted.stored.id, job.id)
        return submitted.stored.id

    async def _viewer(self, owner: str | None) -> Viewer | None:
        """The viewer that submits the rerun; None if the key was revoked or has expired."""
        if owner is None:
            return EVERYBODY
        key = await self._state.keys.valid(owner)
        return None if key is None else key.viewer


def _spec_on_device(job: Job, workload: Workload) -> str:
    """A text that is equal for all jobs whose results may be in one series, whatever the metric of the series."""
    free, spec = workload.params.untimed | workload.params.how, job.spec
    params = {name: value for name, value in spec.params.items() if name not in free}
    device = job.worker and job.worker.full_device
    return json.dumps([job.owner, params, spec.framework, spec.replicas, device], sort_keys=True)


def _on_device(job: Job) -> Job:
    """A copy of the job, with a spec that runs on the job's device, without webhook and baseline."""
    device = DeviceSelector(id=job.worker and job.worker.full_device)
    changes = {"device": device, "priority": "low", "queue_if_absent": False, "webhook": None, "baseline": None}
    return job.model_copy(update={"spec": job.spec.model_copy(update=changes)})

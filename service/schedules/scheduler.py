"""Schedules: check new schedules, and submit the jobs of due schedules.

Each API process looks for due schedules every `schedules_every_s`. A firing is a submit by the schedule's key, within
that key's rights and limits. After an outage, the scheduler still fires for the last due time if that is at most
`LATE_S` old; the document lists other due times as missed. The store decides which process fires (schedule.lua).
"""

import logging
import zoneinfo
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain, islice, takewhile
from typing import NamedTuple

import anyio.to_thread
import cronsim
from pydantic import JsonValue

from dyno import asyncio_tasks, errors
from dyno.models import job_schedule
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.job import SCHEMA, new_job_id
from dyno.store.schedules import DueSchedule, Schedules, StoredSchedule
from dyno.store.sweeps import NewJob
from service import auth, problems, submission, validation
from service.state import State

LATE_S = 600
_CRON_FIELDS = 5  # cronsim also accepts a field of seconds
_UTC = "UTC"
_MOST_OF_DETAIL = 500  # characters
_REVOKED = "the key that saved the schedule was revoked or has expired"
_KEY_NEEDED = "the schedule was saved without a key, and every request needs one now"

log = logging.getLogger(__name__)


def schedules_of(state: State) -> Schedules:
    return Schedules(state.client, state.settings, state.jobs.viewer)


async def save(
    state: State, saved: Schedules, name: str, new: job_schedule.NewSchedule
) -> tuple[bool, job_schedule.JobSchedule]:
    """Save the schedule; returns whether its name is new, and the schedule.

    Raises InvalidSchedule, PriorityNotAllowed and StoreUnfit.
    """
    made = await _new_schedule(state, name, new)
    await state.readiness.require_fit()
    return await saved.put(made)


async def _new_schedule(state: State, name: str, new: job_schedule.NewSchedule) -> job_schedule.JobSchedule:
    """Check that a submit of the spec would be accepted now. Raises InvalidSchedule and PriorityNotAllowed."""
    now, wrong = await schedules_of(state).now(), list[errors.FieldError]()
    try:
        upcoming = await anyio.to_thread.run_sync(_upcoming, new.cron, new.timezone, now)
    except errors.InvalidSchedule as invalid:
        wrong += invalid.errors
    try:
        request = validation.validate_job({**new.spec, "labels": _labels(new.spec, name)}, (), state.workloads)
        await _admitted(state, request)
    except errors.NoDeviceFits as absent:
        wrong.append(errors.FieldError("/spec/device", absent.code, absent.detail))
    except errors.InvalidSpec as invalid:
        wrong += [errors.FieldError(f"/spec{error.pointer}", error.code, error.detail) for error in invalid.errors]
    if wrong:
        raise errors.InvalidSchedule(wrong)
    return job_schedule.JobSchedule(
        name=name,
        cron=new.cron,
        timezone=new.timezone,
        spec=request.spec,
        enabled=new.enabled,
        next_firings=upcoming if new.enabled else [],
        saved_at=now,
        owner=state.jobs.viewer.owner,
        schema=SCHEMA,
    )


def _labels(spec: dict[str, JsonValue], name: str) -> JsonValue:
    """The labels of the spec, and the label that names the schedule. Raises InvalidSpec."""
    labels = spec.get("labels", {})
    if not isinstance(labels, dict):
        return labels
    if labels.get(job_schedule.LABEL, name) != name:
        detail = "this label has the schedule's name; leave it out"
        raise errors.InvalidSpec([errors.FieldError(f"/labels/{job_schedule.LABEL}", "reserved", detail)])
    return {**labels, job_schedule.LABEL: name}


async def _admitted(state: State, request: validation.JobRequest) -> NewJob:
    """The job, not yet queued. Raises what `submission.submit` raises before it queues a job."""
    allowed, admission, baseline = await submission.admitted(state, request)
    return NewJob(new_job_id(), allowed.spec, admission.warnings, dict(admission.fits), baseline)


def _upcoming(expression: str, timezone: str, after: datetime) -> list[datetime]:
    """Raises InvalidSchedule."""
    return list(islice(cron_times(expression, timezone, after), job_schedule.NEXT_SHOWN))


def firing_schedules(state: State) -> AbstractAsyncContextManager[None]:
    """Fire schedules during the block."""
    return asyncio_tasks.repeating(Scheduler(state).look, state.settings.schedules_every_s, "firing schedules")


class Scheduler:
    """Fires due schedules, and records missed firings."""

    def __init__(self, state: State) -> None:
        self._state, self._schedules = state, schedules_of(state.seen_by(EVERYBODY))
        self._broken = dict[tuple[str | None, str], int]()  # schedule -> the due time that failed, ms

    async def look(self) -> None:
        """Fire all schedules that are due. Raises StoreUnavailable and StoreUnfit."""
        now, due = await self._schedules.due()
        if due:
            await self._state.readiness.require_fit()
        for due_schedule in due:
            key = (due_schedule.owner, due_schedule.name)
            if self._broken.get(key) == due_schedule.due_ms:
                continue
            try:
                await self._deal_with(due_schedule, now)
            except errors.StoreUnavailable:
                raise
            except Exception:  # the other schedules must still fire
                self._broken[key] = due_schedule.due_ms
                log.exception("firing the schedule %s of %s failed", due_schedule.name, due_schedule.owner or "anyone")

    async def _deal_with(self, due: DueSchedule, now: datetime) -> None:
        stored = await self._schedules.read(due.owner, due.name)
        if stored is None:
            await self._schedules.forget(due)
            return
        schedule = stored.document
        try:
            state = self._state.seen_by(await self._viewer(due.owner))
            passed = await anyio.to_thread.run_sync(_passed, schedule, now)
            upcoming = await anyio.to_thread.run_sync(_upcoming, schedule.cron, schedule.timezone, now)
        except (problems.NotAuthorized, errors.InvalidSchedule) as ended:  # another version may have other time zones
            stop = job_schedule.ScheduleStop(code=ended.code, detail=ended.detail, stopped_at=now)
            await self._schedules.replace(stored, schedule.model_copy(update={"stopped": stop, "next_firings": []}))
            return
        if not passed.newest:
            return  # the schedule was replaced after `due` was read
        is_late = now - passed.newest[-1] > timedelta(seconds=LATE_S)
        fired = 0 if is_late else 1
        missed = passed.number - fired
        after = _with_missed(schedule, passed.newest[: len(passed.newest) - fired], missed)
        after = after.model_copy(update={"next_firings": upcoming})
        if is_late:
            await self._schedules.replace(stored, after, missed=missed)
        else:
            firing = job_schedule.Firing(due_at=passed.newest[-1], fired_at=now)
            await self._fire(state, stored, after, firing, missed)

    async def _fire(
        self,
        state: State,
        before: StoredSchedule,
        after: job_schedule.JobSchedule,
        firing: job_schedule.Firing,
        missed: int,
    ) -> None:
        try:
            job = await _admitted(state, submission.stored_request(after.spec, state))
            fired = _with_firing(after, firing.model_copy(update={"job": job.id}))
            if await self._schedules.fire(before, fired, job, state.jobs, missed=missed):
                submission.wake_all(state, [job.spec])
        except errors.StoreUnavailable:
            raise
        except errors.DynoError as refused:
            recorded = firing.model_copy(update={"code": refused.code, "detail": refused.detail[:_MOST_OF_DETAIL]})
            await self._schedules.replace(before, _with_firing(after, recorded), outcome="refused", missed=missed)

    async def _viewer(self, owner: str | None) -> Viewer:
        """The viewer that a request with the schedule's key has. Raises NotAuthorized."""
        key = None if owner is None else await self._state.keys.valid(owner)
        if key is not None:
            return auth.Caller(key).viewer
        if owner is not None:
            raise problems.NotAuthorized(_REVOKED)
        if await self._state.gate.closed():
            raise problems.NotAuthorized(_KEY_NEEDED)
        return EVERYBODY


class _Passed(NamedTuple):
    """Due times until now: their number, and the newest of them, in order."""

    number: int
    newest: Sequence[datetime]


def _passed(schedule: job_schedule.JobSchedule, now: datetime) -> _Passed:
    """The due times until `now`. Each takes 4 µs for the expression `* * * * *`, and 44 µs for a daily schedule."""
    newest = deque[datetime](maxlen=job_schedule.MOST_KEPT + 1)
    number = 0
    if schedule.next_firings and schedule.next_firings[0] <= now:
        first = schedule.next_firings[0]
        later = takewhile(lambda moment: moment <= now, cron_times(schedule.cron, schedule.timezone, first))
        for number, moment in enumerate(chain([first], later), start=1):  # noqa: B007
            newest.append(moment)
    return _Passed(number, list(newest))


def _with_missed(
    schedule: job_schedule.JobSchedule, newest: Sequence[datetime], count: int
) -> job_schedule.JobSchedule:
    missed = [*reversed(newest), *schedule.missed][: job_schedule.MOST_KEPT]
    return schedule.model_copy(update={"missed": missed, "missed_count": schedule.missed_count + count})


def _with_firing(schedule: job_schedule.JobSchedule, firing: job_schedule.Firing) -> job_schedule.JobSchedule:
    return schedule.model_copy(update={"firings": [firing, *schedule.firings][: job_schedule.MOST_KEPT]})


def cron_times(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """The times of a cron expression after `after`, in UTC, by the rules of Debian's cron.

    Raises InvalidSchedule with all errors.

    When clocks go forward, a time in the skipped hour moves to the end of that hour. When clocks go back, a time in the
    repeated hour occurs once. Expressions whose minute or hour begins with `*` follow the elapsed time instead.
    """
    if wrong := [*_expression_errors(cron), *_zone_errors(timezone)]:
        raise errors.InvalidSchedule(wrong)
    zone = UTC if timezone == _UTC else zoneinfo.ZoneInfo(timezone)  # cronsim is twice as fast with `datetime.UTC`
    return _later(cronsim.CronSim(cron, after.astimezone(zone)), after)


def _later(moments: Iterator[datetime], after: datetime) -> Iterator[datetime]:
    for moment in moments:
        in_utc = moment.astimezone(UTC)
        if in_utc > after:  # if `after` is in a repeated hour, cronsim first yields times in that hour's first pass
            yield in_utc


def _expression_errors(cron: str) -> Iterator[errors.FieldError]:
    given = len(cron.split())
    if given != _CRON_FIELDS:
        detail = f"{given} fields given; use five: minute, hour, day of month, month, day of week"
        yield errors.FieldError("/cron", "invalid-cron", detail)
        return
    try:
        if next(cronsim.CronSim(cron, datetime.now(UTC)), None) is None:
            yield errors.FieldError("/cron", "never-fires", f'"{cron}" has no time in the next 50 years')
    except cronsim.CronSimError as error:
        yield errors.FieldError("/cron", "invalid-cron", f'"{cron}" is no cron expression: {str(error).lower()}')


def _zone_errors(name: str) -> Iterator[errors.FieldError]:
    if name != _UTC and name not in _known_zones():
        detail = f'unknown time zone "{name}"; use a name such as Europe/Zurich, or UTC'
        yield errors.FieldError("/timezone", "unknown-timezone", detail)


@lru_cache(maxsize=1)
def _known_zones() -> frozenset[str]:
    """The names of time zones. Reading the system's folders takes 60 ms."""
    return frozenset(zoneinfo.available_timezones()) - {"localtime"}  # its meaning depends on the host

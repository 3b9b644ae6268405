"""Reads the event streams of all jobs from Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import redis

from dyno.store.redis import JOB_ID, Keys

MOST_JOBS = 2000  # per run, because the general stream keeps 10,000 events


class Owner(NamedTuple):
    """Identifies an attempt. `claim`: a digest of its token."""

    attempt: int
    device: str
    claim: str


class Event(NamedTuple):
    """`at_s`: seconds since 1970 by Redis' clock, from the stream's id. `at`: the time in the event's field.

    `owner`: set for a claim and the end of an attempt. A damaged or missing field is "", -1 or None.
    """

    at_s: float
    job: str
    event: str
    status: str
    version: int
    detail: str | None = None
    owner: Owner | None = None
    at: str = ""


class Streams(NamedTuple):
    """`general`: all events in Redis' order. `by_job`: the stream of each job."""

    general: Sequence[Event]
    by_job: Mapping[str, Sequence[Event]]


def read(client: redis.Redis, keys: Keys) -> Streams:
    """The streams of all jobs, including those that no index lists."""
    names = {str(key) for key in client.scan_iter(match=keys.job_events("*"), count=1000)}
    jobs = sorted(job for name in names if (job := _job(name)) is not None and keys.job_events(job) == name)
    return Streams(_stream(client, keys.events), {job: _stream(client, keys.job_events(job)) for job in jobs})


def number(text: str | None) -> int:
    """The number, or -1 if the text isn't one: no count here is negative."""
    return int(text) if text is not None and text.isdecimal() else -1


def _job(key: str) -> str | None:
    found = JOB_ID.search(key)
    return found[0] if found else None


def _stream(client: redis.Redis, name: str) -> list[Event]:
    entries: Any = client.xrange(name)
    return [_event(entry_id, fields) for entry_id, fields in entries]


def _event(entry_id: str, fields: Mapping[str, str]) -> Event:
    job, event, status, at = (fields.get(name, "") for name in ("job", "event", "status", "at"))
    at_s = int(entry_id.partition("-")[0]) / 1000
    return Event(at_s, job, event, status, number(fields.get("version")), fields.get("detail"), _owner(fields), at)


def _owner(fields: Mapping[str, str]) -> Owner | None:
    if not {"attempt", "device", "claim"} & fields.keys():
        return None
    return Owner(number(fields.get("attempt")), fields.get("device", ""), fields.get("claim", ""))

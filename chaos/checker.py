"""The proof: from the event streams, and from what callers were answered, alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from chaos.streams import Event, Streams
from dyno.job import DONE, TRANSITIONS, Status
from dyno.job import Event as Step


class Breach(StrEnum):
    """What must never be."""

    LOST = "lost jobs"
    TWICE = "double finishes"
    OVERLAP = "overlapping leases"
    ILLEGAL = "illegal transitions"
    DOUBLED = "jobs made twice"
    UNASKED = "canceled unasked"
    DIFFER = "streams that differ"
    INDEX = "index mismatches"
    ORPHAN = "orphans"
    HELD = "devices not free"
    DIED = "parts that died or hung"
    STRANGE = "strange answers"


class Violation(NamedTuple):
    breach: Breach
    what: str


def violations(
    accepted: Mapping[str, Collection[str]], canceling: Collection[str], streams: Streams
) -> list[Violation]:
    """Everything in the streams that breaks the promise.

    `accepted`: the job ids that each idempotency key was answered with by 202. `canceling`: jobs that somebody tried
    to cancel. All has come to rest: a job that has no end now has none for ever.
    """
    return list(
        chain(
            _doubled(accepted, streams.by_job),
            _lost(chain.from_iterable(accepted.values()), streams.by_job),
            chain.from_iterable(_life(job, events, canceling) for job, events in streams.by_job.items()),
            _overlaps(streams.general),
            _differing(streams),
        )
    )


def _doubled(accepted: Mapping[str, Collection[str]], by_job: Mapping[str, Sequence[Event]]) -> Iterator[Violation]:
    for key, ids in accepted.items():
        if len(set(ids)) > 1:
            yield Violation(Breach.DOUBLED, f"key {key} was answered with {', '.join(sorted(ids))}")
    for job in sorted(set(by_job) - set(chain.from_iterable(accepted.values()))):
        yield Violation(Breach.DOUBLED, f"nobody was ever answered with {job}")


def _lost(answered: Iterator[str], by_job: Mapping[str, Sequence[Event]]) -> Iterator[Violation]:
    for job in sorted(set(answered)):
        events = by_job.get(job, ())
        if not any(event.status in DONE for event in events):
            last = f"its last event is {events[-1].event}" if events else "it has no event"
            yield Violation(Breach.LOST, f"{job} was answered 202 and never ended: {last}")


def _life(job: str, events: Sequence[Event], canceling: Collection[str]) -> Iterator[Violation]:
    """Every step is in the table, none is missing, and the job ends once, with nothing behind that."""
    before: Status | None = None
    for number, event in enumerate(events, start=1):
        after = _after(before, event)
        if before in DONE:
            breach = Breach.TWICE if event.status in DONE else Breach.ILLEGAL
            yield Violation(breach, f"{job}: {event.event} to {event.status} after it was {before}")
        elif after is None:
            yield Violation(Breach.ILLEGAL, f"{job}: {event.event} from {before or 'nothing'} to {event.status}")
        if event.version != number:
            yield Violation(Breach.ILLEGAL, f"{job}: event {number} has version {event.version}")
        before = Status(event.status) if after is None else after
    if before is Status.CANCELED and job not in canceling:
        yield Violation(Breach.UNASKED, f"{job} was canceled, and nobody had asked for that")


def _after(before: Status | None, event: Event) -> Status | None:
    """The state that the event leads to by the table; None where it isn't the one that the event says."""
    try:
        after = TRANSITIONS.get((before, Step(event.event)))
    except ValueError:
        return None
    return after if after == event.status else None


def _overlaps(general: Sequence[Event]) -> Iterator[Violation]:
    """A device is a job's from the claim to the event with which the job runs no longer. In Redis' own order."""
    holders: dict[str, str] = {}
    devices: dict[str, str] = {}
    for event in general:
        if event.event == Step.CLAIM:
            device = device_of(event)
            if (holder := holders.get(device)) is not None:
                yield Violation(Breach.OVERLAP, f"{device} was given to {event.job} while {holder} had it")
            holders[device], devices[event.job] = event.job, device
        elif event.status != Status.RUNNING:
            freed = devices.pop(event.job, "")
            if holders.get(freed) == event.job:
                del holders[freed]


def device_of(claim: Event) -> str:
    """With its host, of the worker that a claim's event tells of."""
    return str(json.loads(claim.detail or "{}").get("device"))


def _differing(streams: Streams) -> Iterator[Violation]:
    """The general stream has to tell of each job what the job's own does, in the same order."""
    told: dict[str, list[Event]] = {}
    for event in streams.general:
        told.setdefault(event.job, []).append(event)
    for job in sorted({*told, *streams.by_job}):
        if _said(told.get(job, ())) != _said(streams.by_job.get(job, ())):
            yield Violation(Breach.DIFFER, f"the general stream and that of {job} tell different lives")


def _said(events: Sequence[Event]) -> list[tuple[str, str, int]]:
    return [(event.event, event.status, event.version) for event in events]

"""The checker: finds violations from the event streams and the API's responses alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from chaos.breach import Breach, Violation
from chaos.streams import Event, Owner, Streams
from chaos.table import CANCELED, DONE, ENDS_ATTEMPT, MOST_ATTEMPTS, ROWS, RUNNING


def violations(
    accepted: Mapping[str, Collection[str]], canceling: Collection[str], streams: Streams
) -> list[Violation]:
    """All violations in the streams.

    `accepted`: the job ids in the 202 responses to each idempotency key. `canceling`: jobs that a client tried to
    cancel. Call this when all parts are idle: a job without an end is lost.
    """
    lives = streams.by_job.items()
    return list(
        chain(
            _doubled(accepted, streams.by_job),
            _lost(chain.from_iterable(accepted.values()), streams.by_job),
            chain.from_iterable(_life(job, events, canceling) for job, events in lives),
            chain.from_iterable(_attempts(job, events) for job, events in lives),
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
    """Each transition is in the table, none is missing, and the job ends once, with its last event."""
    before: str | None = None
    for number, event in enumerate(events, start=1):
        if before in DONE:
            breach = Breach.TWICE if event.status in DONE else Breach.ILLEGAL
            yield Violation(breach, f"{job}: {event.event} to {event.status} after it was {before}")
        elif ROWS.get((before, event.event)) != event.status:
            yield Violation(Breach.ILLEGAL, f"{job}: {event.event} from {before or 'nothing'} to {event.status}")
        if event.version != number:
            yield Violation(Breach.ILLEGAL, f"{job}: event {number} has version {event.version}")
        before = event.status
    if before == CANCELED and job not in canceling:
        yield Violation(Breach.UNASKED, f"{job} was canceled, and nobody had asked for that")


def _attempts(job: str, events: Sequence[Event]) -> Iterator[Violation]:
    """Only the attempt claimed last may end the job or hand it back, and the number of attempts is limited."""
    claimed: Owner | None = None
    least = 1  # a hand-back may cost no attempt, a lease that ran out costs one
    for event in events:
        if event.event == "claim":
            claimed = event.owner
            if claimed is None or not least <= claimed.attempt <= MOST_ATTEMPTS:
                yield Violation(Breach.ATTEMPT, f"{job} was claimed by {_told(claimed)}, after {least - 1} lost ones")
        elif event.event in ENDS_ATTEMPT:
            if claimed is None or event.owner != claimed:
                what = f"{job}: {event.event} by {_told(event.owner)}, and {_told(claimed)} had it"
                yield Violation(Breach.ATTEMPT, what)
            if event.event == "expire" and claimed is not None:
                least = claimed.attempt + 1
            claimed = None


def _told(owner: Owner | None) -> str:
    return "nobody" if owner is None else f"attempt {owner.attempt} on {owner.device} ({owner.claim})"


def _overlaps(general: Sequence[Event]) -> Iterator[Violation]:
    """A job has its device from the claim to the event that ends the attempt, in Redis' order; no other may overlap."""
    holders: dict[str, str] = {}
    devices: dict[str, str] = {}
    for event in general:
        if event.event == "claim":
            device = event.owner.device if event.owner else ""
            if (holder := holders.get(device)) is not None:
                yield Violation(Breach.OVERLAP, f"{device} was given to {event.job} while {holder} had it")
            holders[device], devices[event.job] = event.job, device
        elif event.status != RUNNING:
            freed = devices.pop(event.job, "")
            if holders.get(freed) == event.job:
                del holders[freed]


def _differing(streams: Streams) -> Iterator[Violation]:
    """The general stream must have the same events of each job as the job's own stream, in the same order."""
    told: dict[str, list[Event]] = {}
    for event in streams.general:
        told.setdefault(event.job, []).append(event)
    for job in sorted({*told, *streams.by_job}):
        if _said(told.get(job, ())) != _said(streams.by_job.get(job, ())):
            yield Violation(Breach.DIFFER, f"the general stream and that of {job} tell different lives")


def _said(events: Sequence[Event]) -> list[Event]:
    """The event without the stream's id."""
    return [event._replace(at_s=0.0) for event in events]

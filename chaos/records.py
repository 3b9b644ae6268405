"""Checks the records of jobs against their event streams."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from chaos.breach import Breach, Violation
from chaos.indexes import Record
from chaos.streams import Event, number
from chaos.table import DONE, ENDS_ATTEMPT, FAILED

_DIGITS = 12  # of a token's digest, as in dyno/store/_ledger.lua


def contradictions(records: Mapping[str, Record], by_job: Mapping[str, Sequence[Event]]) -> Iterator[Violation]:
    """Checks status, attempt, end, and the attempt that ended the job."""
    for job in sorted({*records, *by_job}):
        if job not in records:
            yield Violation(Breach.RECORD, f"{job} has a stream and no record")
        elif not by_job.get(job):
            yield Violation(Breach.RECORD, f"{job} has a record and no stream")
        else:
            for fault in _of_one(records[job], by_job[job]):
                yield Violation(Breach.RECORD, f"{job}: {fault}")


def _of_one(record: Record, events: Sequence[Event]) -> Iterator[str]:
    last = events[-1]
    if record.get("status") != last.status:
        yield f"its record is {record.get('status')}, its stream {last.status}"
    if number(record.get("attempt")) not in (attempts := _attempts(events)):
        yield f"its record has attempt {record.get('attempt')}, its stream {' or '.join(map(str, sorted(attempts)))}"
    ended_at = next((event.at for event in events if event.status in DONE), None)
    if record.get("finished_at") != ended_at:
        yield f"its record ended at {record.get('finished_at')}, its stream at {ended_at}"
    if last.status == FAILED and record.get("status_reason") != last.detail:
        yield f"its record failed for {record.get('status_reason')}, its stream for {last.detail}"
    ends = [event for event in events if event.event in ENDS_ATTEMPT]
    if ends and ends[-1].owner and _digest(record.get("last_token", "")) != ends[-1].owner.claim:
        yield "the attempt that its record names last is another than its stream does"


def _attempts(events: Sequence[Event]) -> set[int]:
    """The attempt numbers that the record may have. A hand-back may not have counted the last attempt."""
    since = [event for event in events if event.event in ("claim", "requeue")]
    claims = [event.owner.attempt for event in since if event.event == "claim" and event.owner]
    last = claims[-1] if claims else 0
    return {last, last - 1} if since and since[-1].event == "requeue" else {last}


def _digest(token: str) -> str:
    return hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest()[:_DIGITS]

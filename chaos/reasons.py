"""What jobs may fail for, or be given back for: what the faults of the run may cause, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from chaos.breach import Breach, Violation
from chaos.schedule import Kind
from chaos.streams import Streams
from chaos.table import FAILED, GIVEN_BACK

_ENDED: Final = frozenset({Kind.KILL, Kind.STOP, Kind.TERM})

# Reason -> the faults each of which may bring it about. A full disk has no room for a runner's own number in its lock.
CAUSES: Final[Mapping[str, Collection[Kind]]] = {
    "worker_lost": _ENDED,
    "worker_shutdown": {Kind.TERM},
    "device_busy": _ENDED,  # by the runner of a worker that is gone, or asleep
    "runner_killed": _ENDED,
    "runner_not_started": _ENDED,
    "disk_full": {Kind.FULL},
    "artifact_store_unavailable": {Kind.FULL},  # no folder for the job's files
}
TOO_LITTLE_TIME: Final = "timeout"  # of jobs that ask for less than they need


def unexplained(streams: Streams, kinds: Collection[Kind], too_little: Collection[str]) -> Iterator[Violation]:
    """`kinds`: of the faults that there were. `too_little`: the jobs that ask for less time than they need."""
    for job, events in streams.by_job.items():
        for event in events:
            if event.status != FAILED and event.event not in GIVEN_BACK:
                continue
            reason = event.detail or "no reason"
            if reason == TOO_LITTLE_TIME and job in too_little:
                continue
            if not set(CAUSES.get(reason, ())) & set(kinds):
                yield Violation(Breach.REASON, f"{job}: {event.event} for {reason}, which no fault of this run causes")

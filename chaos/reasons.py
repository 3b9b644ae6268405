"""The reasons for which jobs may fail or be handed back: only those that the run's faults can cause."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from chaos.breach import Breach, Violation
from chaos.schedule import Kind
from chaos.streams import Streams
from chaos.table import FAILED, GIVEN_BACK

_ENDED: Final = frozenset({Kind.KILL, Kind.STOP, Kind.TERM})

# Reason -> the faults that can cause it. On a full disk, a runner can't write its pid to its lock file.
CAUSES: Final[Mapping[str, Collection[Kind]]] = {
    "worker_lost": _ENDED,
    "worker_shutdown": {Kind.TERM},
    "device_busy": _ENDED,  # held by the runner of a dead or stopped worker
    "runner_killed": _ENDED,
    "runner_not_started": _ENDED,
    "disk_full": {Kind.FULL},
    "artifact_store_unavailable": {Kind.FULL},  # no folder for the job's files
}
TOO_LITTLE_TIME: Final = "timeout"  # of jobs whose timeout is too short on purpose


def unexplained(streams: Streams, kinds: Collection[Kind], too_little: Collection[str]) -> Iterator[Violation]:
    """`kinds`: the kinds of faults that occurred. `too_little`: the jobs whose timeout is too short on purpose."""
    for job, events in streams.by_job.items():
        for event in events:
            if event.status != FAILED and event.event not in GIVEN_BACK:
                continue
            reason = event.detail or "no reason"
            if reason == TOO_LITTLE_TIME and job in too_little:
                continue
            if not set(CAUSES.get(reason, ())) & set(kinds):
                yield Violation(Breach.REASON, f"{job}: {event.event} for {reason}, which no fault of this run causes")

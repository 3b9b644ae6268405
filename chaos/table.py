"""The checker's own table of a job's transitions, so that an error in dyno/models/job.py is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QUEUED, RUNNING = "queued", "running"
SUCCEEDED, FAILED, CANCELED = "succeeded", "failed", "canceled"
STATUSES: Final = (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED)
DONE: Final = frozenset({SUCCEEDED, FAILED, CANCELED})
MOST_ATTEMPTS: Final = 2

# (status, event) -> status; any other transition is a violation. None: no record yet.
ROWS: Final[Mapping[tuple[str | None, str], str]] = {
    (None, "submit"): QUEUED,
    (QUEUED, "claim"): RUNNING,
    (QUEUED, "pass_over"): QUEUED,
    (QUEUED, "cancel"): CANCELED,
    (RUNNING, "heartbeat"): RUNNING,
    (RUNNING, "cancel"): RUNNING,
    (RUNNING, "succeed"): SUCCEEDED,
    (RUNNING, "fail"): FAILED,
    (RUNNING, "stop"): CANCELED,
    (RUNNING, "requeue"): QUEUED,
    (RUNNING, "expire"): QUEUED,
    (RUNNING, "exhaust"): FAILED,
    (CANCELED, "cancel"): CANCELED,
}
ENDS_ATTEMPT: Final = frozenset({"succeed", "fail", "stop", "requeue", "expire", "exhaust"})
GIVEN_BACK: Final = frozenset({"requeue", "expire"})

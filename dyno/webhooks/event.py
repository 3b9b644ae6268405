"""What a receiver is told: that a job is done, with what of it others may ask for by its links."""

from __future__ import annotations

import json
from typing import Any

from dyno.job import Job

_TOLD: dict[str, Any] = {
    **dict.fromkeys(("id", "status", "status_reason", "attempt", "version", "rerun_of", "urls"), True),
    **dict.fromkeys(("created_at", "started_at", "finished_at"), True),
    "failure": {"failure_class", "reason"},
    "spec": {"workload", "labels"},
}


def text_of(job: Job) -> str:
    """The same for each attempt: nothing of a done job changes."""
    document = job.model_dump(mode="json", include=_TOLD)
    event = {"type": f"job.{job.status}", "timestamp": document["finished_at"], "data": document}
    return json.dumps(event, separators=(",", ":"))

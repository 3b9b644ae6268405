"""What a job's runners print, as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx

from dyno.client.errors import ServerUnreachable
from dyno.client.paths import in_path
from dyno.client.steps import asked
from dyno.client.transport import AsyncTransport, Transport
from dyno.job import Job

_OPTIONS = {"params": {"follow": "true"}, "timeout": httpx.Timeout(10.0, read=None)}  # a runner may print nothing


def printed(http: Transport, job_id: str) -> Iterator[str]:
    """Over one connection. Raises Refused and ServerUnreachable, also where it ends before the job is done."""
    with http.open(_path(job_id), **_OPTIONS) as answer:
        yield from answer.iter_text()
    _check(http.through(asked(Job, "GET", f"/v1/jobs/{in_path(job_id)}")))


async def printed_awaiting(http: AsyncTransport, job_id: str) -> AsyncIterator[str]:
    """The same."""
    async with http.open(_path(job_id), **_OPTIONS) as answer:
        async for text in answer.aiter_text():
            yield text
    _check(await http.through(asked(Job, "GET", f"/v1/jobs/{in_path(job_id)}")))


def _path(job_id: str) -> str:
    return f"/v1/jobs/{in_path(job_id)}/logs"


def _check(job: Job) -> None:
    """The service ends an answer when it stops itself, too."""
    if not job.done:
        raise ServerUnreachable(f"the service has let go of the log of {job.id}, which goes on")

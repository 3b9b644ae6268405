"""The two clients: what they have besides their calls."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

from dyno.client.call import Awaiting, Blocking
from dyno.client.calls import Calls
from dyno.client.following import Following, follow, follow_awaiting
from dyno.client.paths import in_path
from dyno.client.printed import printed, printed_awaiting
from dyno.client.transport import AsyncTransport, Told, Transport
from dyno.events import AnyEvent
from dyno.settings import WrongSettings

DEFAULT_URL = "http://127.0.0.1:8000"


class Client(Calls, Blocking):
    """One connection pool to one Dyno, with an API key. Use it as a context manager.

    `url` is by default that of `DYNO_URL`, or this host's, and `key` that of `DYNO_API_KEY`. A submit is retried while
    the service is away, under one idempotency key, so that it makes one job at most. `away` is called with what goes
    wrong, once each time that a call begins to wait for the service.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: Told | None = None
    ) -> None:
        self.url = _url(url)
        self._http = Transport(self.url, timeout_s, _headers(key), away)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def events(self, job_id: str | None = None, after: str | None = None) -> Iterator[AnyEvent]:
        """What happens to the job until it is done, or without one to any, for ever; each event once.

        A connection that breaks is made anew, behind the last event; `after` is the `id` of one to begin behind.
        Without it a job is told from its beginning, and all jobs from now on. Raises as `wait` does.
        """
        return follow(self._http, _following(job_id, after))

    def follow_logs(self, job_id: str) -> Iterator[str]:
        """What `logs` has, and what comes, until the job is done.

        Raises Refused and ServerUnreachable, also where it is cut off before the job is done.
        """
        return printed(self._http, job_id)


class AsyncClient(Calls, Awaiting):
    """The same for asyncio: each call is awaited, events come by `async for`, and it is an async context manager.

    `progress` and `away` are called as Client does, and must not block.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: Told | None = None
    ) -> None:
        self.url = _url(url)
        self._http = AsyncTransport(self.url, timeout_s, _headers(key), away)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    def events(self, job_id: str | None = None, after: str | None = None) -> AsyncIterator[AnyEvent]:
        """As of Client."""
        return follow_awaiting(self._http, _following(job_id, after))

    def follow_logs(self, job_id: str) -> AsyncIterator[str]:
        """As of Client."""
        return printed_awaiting(self._http, job_id)


def _url(given: str | None) -> str:
    return given or os.environ.get("DYNO_URL") or DEFAULT_URL


def _headers(key: str | None) -> dict[str, str]:
    """Raises WrongSettings for what can be no key, and doesn't show it."""
    key = (key or os.environ.get("DYNO_API_KEY") or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise WrongSettings("DYNO_API_KEY, or the key given in its place: a key has printable ASCII characters only")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _following(job_id: str | None, after: str | None) -> Following:
    path = f"/v1/jobs/{in_path(job_id)}/events" if job_id is not None else "/v1/events"
    return Following(path, after, ends=job_id is not None)

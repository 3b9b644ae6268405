"""The clients: `Client` blocks, `AsyncClient` is awaited, workers use `AttemptClient`."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from dyno.client import endpoints
from dyno.client.calls import ClientCalls
from dyno.client.exceptions import Refused, ServerUnreachable
from dyno.client.flows import Awaited, Blocking, Flow, Pages
from dyno.client.http_transport import CONNECT_RETRIES, OnRetry, Request, Retries, http_errors
from dyno.client.streams import EventFollower, check_done, checked_file
from dyno.models.event import AnyEvent
from dyno.models.result import Artifact
from dyno.settings import WrongSettings

DEFAULT_URL = "http://127.0.0.1:8000"

T = TypeVar("T")


class Client(ClientCalls, Blocking):
    """A blocking client with one connection pool and an API key. Use it as a context manager.

    `url` defaults to `DYNO_URL`, then to this host; `key` defaults to `DYNO_API_KEY`. The client retries a submit while
    the service is away. All tries have one idempotency key, so they create one job at most. The client calls `away`
    with the error each time a call starts to wait for the service.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: OnRetry | None = None
    ) -> None:
        self.url, self._away = url or os.environ.get("DYNO_URL") or DEFAULT_URL, away
        transport = httpx.HTTPTransport(retries=CONNECT_RETRIES)
        with http_errors(self.url):
            self._http = httpx.Client(base_url=self.url, headers=_headers(key), timeout=timeout_s, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def follow_logs(self, job_id: str) -> Iterator[str]:
        """The output in `logs` and all new output until the job is done.

        Raises Refused and ServerUnreachable, the latter also if the stream ends before the job is done.
        """
        with self._open(endpoints.follow_logs(job_id)) as response:
            yield from response.iter_text()
        check_done(self._send(endpoints.job(job_id)))

    def events(self, job_id: str | None = None, after: str | None = None) -> Iterator[AnyEvent]:
        """The events of a job until it is done, or of all jobs without end. Each event is yielded once.

        The client reconnects after a broken connection and resumes after the last event. `after` is the `id` of the
        event to start after. By default a job's events start at its beginning, and those of all jobs now. Raises as
        `wait` does.
        """
        following = EventFollower(job_id, after)
        while not following.ended:
            try:
                with self._open(following.request()) as response:
                    following.connected(response)
                    for piece in response.iter_bytes():
                        yield from following.events(piece)
                        if following.ended:
                            return
            except (Refused, ServerUnreachable) as error:
                following.broke(error)
            if not following.ended:
                self._pause(following.pause_s)

    def download(self, job_id: str, artifact: Artifact, to: Path) -> None:
        """Download an artifact to the file `to`. Raises DownloadDamaged if its SHA-256 isn't the listed one."""
        request = endpoints.artifact(job_id, artifact.name)
        with checked_file(job_id, artifact, to) as write, self._open(request) as response:
            for piece in response.iter_bytes():
                write(piece)

    def _carry_out(self, request_or_flow: Request[T] | Flow[T]) -> T:
        if isinstance(request_or_flow, Request):
            return self._send(request_or_flow)
        step: Any = request_or_flow.send
        answer: Any = None
        with closing(request_or_flow):
            while True:
                try:
                    yielded = step(answer)
                except StopIteration as ended:
                    returned: T = ended.value
                    return returned
                step, answer = self._answer(request_or_flow, yielded)

    def _stream(self, pages: Pages[T]) -> Iterator[T]:
        step: Any = pages.send
        answer: Any = None
        while True:
            try:
                yielded = step(answer)
            except StopIteration:
                return
            if isinstance(yielded, list):
                yield from yielded
                step, answer = pages.send, None
            else:
                step, answer = self._answer(pages, yielded)

    def _answer(self, flow: Any, yielded: Request[Any] | float) -> tuple[Any, Any]:
        """How the flow goes on: by the answer to its request, or by the error that it raised."""
        if not isinstance(yielded, Request):
            self._pause(yielded)
            return flow.send, None
        try:
            return flow.send, self._send(yielded)
        except Exception as error:  # noqa: BLE001 - the flow handles it, or lets it pass
            return flow.throw, error

    def _send(self, request: Request[T]) -> T:
        retries = Retries(request.retry, self._away)
        while True:
            try:
                with http_errors(self.url):
                    response = self._http.send(request.build(self._http))
                return request.read(response)
            except (Refused, ServerUnreachable) as error:
                pause_s = retries.pause_s(error)
            self._pause(pause_s)

    @contextmanager
    def _open(self, request: Request[None]) -> Iterator[httpx.Response]:
        """Send the request once, and check the response, whose body is yet to be read."""
        with http_errors(self.url), closing(self._http.send(request.build(self._http), stream=True)) as response:
            if not response.is_success:
                response.read()
            request.read(response)
            yield response

    def _pause(self, time_s: float) -> None:
        time.sleep(time_s)


class AsyncClient(ClientCalls, Awaited):
    """The same client for asyncio: await each call, read events by `async for`, use it as an async context manager.

    The callbacks `progress` and `away` must not block.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: OnRetry | None = None
    ) -> None:
        self.url, self._away = url or os.environ.get("DYNO_URL") or DEFAULT_URL, away
        transport = httpx.AsyncHTTPTransport(retries=CONNECT_RETRIES)
        with http_errors(self.url):
            self._http = httpx.AsyncClient(
                base_url=self.url, headers=_headers(key), timeout=timeout_s, transport=transport
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def follow_logs(self, job_id: str) -> AsyncIterator[str]:
        async with self._open(endpoints.follow_logs(job_id)) as response:
            async for text in response.aiter_text():
                yield text
        check_done(await self._send(endpoints.job(job_id)))

    async def events(self, job_id: str | None = None, after: str | None = None) -> AsyncIterator[AnyEvent]:
        following = EventFollower(job_id, after)
        while not following.ended:
            try:
                async with self._open(following.request()) as response:
                    following.connected(response)
                    async for piece in response.aiter_bytes():
                        for event in following.events(piece):
                            yield event
                        if following.ended:
                            return
            except (Refused, ServerUnreachable) as error:
                following.broke(error)
            if not following.ended:
                await self._pause(following.pause_s)

    async def download(self, job_id: str, artifact: Artifact, to: Path) -> None:
        request = endpoints.artifact(job_id, artifact.name)
        with checked_file(job_id, artifact, to) as write:
            async with self._open(request) as response:
                async for piece in response.aiter_bytes():
                    write(piece)

    async def _carry_out(self, request_or_flow: Request[T] | Flow[T]) -> T:
        if isinstance(request_or_flow, Request):
            return await self._send(request_or_flow)
        step: Any = request_or_flow.send
        answer: Any = None
        with closing(request_or_flow):
            while True:
                try:
                    yielded = step(answer)
                except StopIteration as ended:
                    returned: T = ended.value
                    return returned
                step, answer = await self._answer(request_or_flow, yielded)

    async def _stream(self, pages: Pages[T]) -> AsyncIterator[T]:
        step: Any = pages.send
        answer: Any = None
        while True:
            try:
                yielded = step(answer)
            except StopIteration:
                return
            if isinstance(yielded, list):
                for item in yielded:
                    yield item
                step, answer = pages.send, None
            else:
                step, answer = await self._answer(pages, yielded)

    async def _answer(self, flow: Any, yielded: Request[Any] | float) -> tuple[Any, Any]:
        if not isinstance(yielded, Request):
            await self._pause(yielded)
            return flow.send, None
        try:
            return flow.send, await self._send(yielded)
        except Exception as error:  # noqa: BLE001 - the flow handles it, or lets it pass
            return flow.throw, error

    async def _send(self, request: Request[T]) -> T:
        retries = Retries(request.retry, self._away)
        while True:
            try:
                with http_errors(self.url):
                    response = await self._http.send(request.build(self._http))
                return request.read(response)
            except (Refused, ServerUnreachable) as error:
                pause_s = retries.pause_s(error)
            await self._pause(pause_s)

    @asynccontextmanager
    async def _open(self, request: Request[None]) -> AsyncIterator[httpx.Response]:
        with http_errors(self.url):
            async with aclosing(await self._http.send(request.build(self._http), stream=True)) as response:
                if not response.is_success:
                    await response.aread()
                request.read(response)
                yield response

    async def _pause(self, time_s: float) -> None:
        await asyncio.sleep(time_s)


for _name in ("follow_logs", "events", "download"):  # `help(AsyncClient)` explains them too
    vars(AsyncClient)[_name].__doc__ = vars(Client)[_name].__doc__


def _headers(key: str | None) -> dict[str, str]:
    """Raises WrongSettings for an invalid key, without showing the key."""
    key = (key or os.environ.get("DYNO_API_KEY") or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise WrongSettings("invalid API key (DYNO_API_KEY or the argument): use printable ASCII characters only")
    return {"Authorization": f"Bearer {key}"} if key else {}


class AttemptClient(Client):
    """A client that sends an attempt's token in place of an API key.

    The token permits storing files of its job, and downloading files of another job that its job starts from.
    """

    def __init__(self, url: str, job_id: str, token: str, *, timeout_s: float = 10.0) -> None:
        super().__init__(url, token, timeout_s=timeout_s)
        self._job_id = job_id
        self._http.headers["Dyno-Job"] = job_id

    def upload(self, name: str, source: Path) -> Artifact:
        """Store a file of the job."""
        with source.open("rb") as file:
            return self._send(endpoints.upload(self._job_id, name, content=file))

"""The two ways to take steps: one blocks at each until it is done, the other awaits it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, TypeVar

import httpx

from dyno.client.answers import check, connected
from dyno.client.errors import Refused, ServerUnreachable
from dyno.client.steps import Ask, Away, Pause, Receive, Step, Steps
from dyno.errors import DynoError

_TRIES_TO_CONNECT = 1  # beyond the first
T = TypeVar("T")
Told = Callable[[Refused | ServerUnreachable], None]


class Transport:
    """One connection pool to one service. Raises ConnectionBroken, ServerUnreachable or Refused."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str], away: Told | None = None) -> None:
        """`headers` go with each request, and so to `url` alone: redirects aren't followed. Raises ConnectionBroken."""
        self._url, self._away = url, away
        transport = httpx.HTTPTransport(retries=_TRIES_TO_CONNECT)
        with connected(url):
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)

    def close(self) -> None:
        self._http.close()

    def through(self, steps: Steps[T]) -> T:
        """What the steps come to."""
        with closing(steps):
            try:
                step = next(steps)
                while True:
                    try:
                        outcome = self._take(step)
                    except DynoError as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(outcome)
            except StopIteration as end:
                found: T = end.value
                return found

    @contextmanager
    def open(self, path: str, **options: Any) -> Iterator[httpx.Response]:
        """What is there, to be read as it comes."""
        with connected(self._url), self._http.stream("GET", path, **options) as answer:
            if not answer.is_success:
                answer.read()
                check(answer)
            yield answer

    def _take(self, step: Step) -> Any:
        match step:
            case Ask():
                with connected(self._url):
                    return self._http.send(_built(self._http, step))
            case Receive(path, file):
                digest = hashlib.sha256()
                with self.open(path) as answer:
                    for piece in answer.iter_bytes():
                        file.write(piece)
                        digest.update(piece)
                return digest.hexdigest()
            case Pause(time_s):
                return time.sleep(time_s)
            case Away(error):
                return self._away(error) if self._away else None


class AsyncTransport:
    """The same, awaited."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str], away: Told | None = None) -> None:
        self._url, self._away = url, away
        transport = httpx.AsyncHTTPTransport(retries=_TRIES_TO_CONNECT)
        with connected(url):
            self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_s, transport=transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def through(self, steps: Steps[T]) -> T:
        with closing(steps):
            try:
                step = next(steps)
                while True:
                    try:
                        outcome = await self._take(step)
                    except DynoError as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(outcome)
            except StopIteration as end:
                found: T = end.value
                return found

    @asynccontextmanager
    async def open(self, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        with connected(self._url):
            async with self._http.stream("GET", path, **options) as answer:
                if not answer.is_success:
                    await answer.aread()
                    check(answer)
                yield answer

    async def _take(self, step: Step) -> Any:
        match step:
            case Ask():
                with connected(self._url):
                    return await self._http.send(_built(self._http, step))
            case Receive(path, file):
                digest = hashlib.sha256()
                async with self.open(path) as answer:
                    async for piece in answer.aiter_bytes():
                        file.write(piece)
                        digest.update(piece)
                return digest.hexdigest()
            case Pause(time_s):
                return await asyncio.sleep(time_s)
            case Away(error):
                return self._away(error) if self._away else None


def _built(http: httpx.Client | httpx.AsyncClient, ask: Ask) -> httpx.Request:
    request = http.build_request(ask.method, ask.path, **ask.options)
    if ask.to_strangers:
        request.headers.pop("Authorization", None)
    return request

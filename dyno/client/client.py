"""The clients: `Client` blocks, `AsyncClient` is awaited, workers use `AttemptClient`."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx

from dyno.client.calls import ClientCalls
from dyno.client.endpoints import UPLOAD_S, request
from dyno.client.exchange import Awaited, Blocking, run
from dyno.client.http_transport import CONNECT_RETRIES, read_model
from dyno.models.result import Artifact


class Client(ClientCalls, Blocking):
    """A blocking client with one connection pool and an API key. Use it as a context manager.

    `url` defaults to `DYNO_URL`, then to this host; `key` defaults to `DYNO_API_KEY`. The client retries a submit while
    the service is away. All tries have the same idempotency key, so they create one job at most. Each time a call
    starts to wait for the service, the client calls `away` with the error.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _connected(self, **options: Any) -> httpx.Client:
        return httpx.Client(transport=httpx.HTTPTransport(retries=CONNECT_RETRIES), **options)

    async def _exchange(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        response: httpx.Response = self._http.send(request, stream=stream)
        return response

    async def _read(self, response: httpx.Response) -> None:
        response.read()

    async def _pieces(self, response: httpx.Response) -> AsyncIterator[bytes]:
        for piece in response.iter_bytes():
            yield piece

    async def _close(self, response: httpx.Response) -> None:
        response.close()

    async def _pause(self, time_s: float) -> None:
        time.sleep(time_s)


class AsyncClient(ClientCalls, Awaited):
    """A client for asyncio with the same calls: await each call, read events with `async for`, and use `async with`.

    The callbacks `progress` and `away` must not block.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    def _connected(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=CONNECT_RETRIES), **options)

    async def _exchange(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        response: httpx.Response = await self._http.send(request, stream=stream)
        return response

    async def _read(self, response: httpx.Response) -> None:
        await response.aread()

    def _pieces(self, response: httpx.Response) -> AsyncIterator[bytes]:
        return response.aiter_bytes()

    async def _close(self, response: httpx.Response) -> None:
        await response.aclose()

    async def _pause(self, time_s: float) -> None:
        await asyncio.sleep(time_s)


class AttemptClient(Client):
    """A client that sends an attempt's token in place of an API key.

    The token permits storing files of the attempt's job, and downloading the weights from which this job starts.
    """

    def __init__(self, url: str, job_id: str, token: str, *, timeout_s: float = 10.0) -> None:
        super().__init__(url, token, timeout_s=timeout_s)
        self._job_id = job_id
        self._http.headers["Dyno-Job"] = job_id

    def upload(self, name: str, source: Path) -> Artifact:
        """Store a file of the job."""
        headers, path = {"Content-Type": "application/octet-stream"}, "/v1/jobs/{}/artifacts/{}"
        with source.open("rb") as file:
            options: dict[str, Any] = {"content": file, "headers": headers, "timeout": UPLOAD_S}
            stored = request("PUT", partial(read_model, Artifact), path, self._job_id, name, **options)
            return run(self._send(stored))

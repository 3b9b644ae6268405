"""Requests over HTTP: JSON there and back, files downloaded, and what went wrong as one of the client's errors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import httpx

from dyno.client.errors import ConnectionBroken, Refused, ServerUnreachable

_ALIVE_WITHIN_S = 2.0  # it asks nobody else; what keeps a port and says nothing is no service


class Transport:
    """One connection pool to one service. Every method raises ConnectionBroken, ServerUnreachable or Refused."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str]) -> None:
        """`headers` go with each request, and so to `url` alone: redirects aren't followed."""
        self._url = url
        transport = httpx.HTTPTransport(retries=1)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, **options: Any) -> Any:
        """The JSON that is answered."""
        return body(self.send(method, path, **options))

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer as it came, problems too."""
        with self._answers():
            return self._http.request(method, path, **options)

    def text(self, path: str) -> str:
        """What is there, where it is no JSON."""
        answer = self.send("GET", path)
        if answer.is_error:
            body(answer)
        return answer.text

    @contextmanager
    def open(self, path: str, **options: Any) -> Iterator[httpx.Response]:
        """What is there, to be read as it comes."""
        with self._answers(), self._http.stream("GET", path, **options) as answer:
            if answer.is_error:
                answer.read()
                body(answer)
            yield answer

    def receive(self, path: str, file: BinaryIO) -> str:
        """What is there, written to `file`; returns its SHA-256."""
        digest = hashlib.sha256()
        with self.open(path) as answer:
            for piece in answer.iter_bytes():
                file.write(piece)
                digest.update(piece)
        return digest.hexdigest()

    def alive(self) -> bool:
        """Whether the service answers at all, and soon. It isn't told the key: another program may have its port."""
        question = self._http.build_request("GET", "/livez", timeout=_ALIVE_WITHIN_S)
        question.headers.pop("Authorization", None)
        try:
            return self._http.send(question).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionBroken(f"{self._url}: {error or type(error).__name__}") from error


def body(answer: httpx.Response) -> Any:
    """The JSON of an answer. Raises Refused for a problem, ServerUnreachable for what Dyno can't have sent."""
    try:
        found = answer.json()
    except json.JSONDecodeError as error:
        raise ServerUnreachable(f"{answer.url} answered {answer.status_code} without JSON: not Dyno?") from error
    if answer.is_error:
        raise Refused(found if isinstance(found, dict) else {"title": str(found), "status": answer.status_code})
    return found

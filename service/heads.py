"""Heads of requests: how large they may be, and what of them is refused before a route is looked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MAX_FIELDS = 100
VERSIONS = frozenset({"1.0", "1.1"})
WITHOUT_BODY = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS"})  # no route reads one, so it would lie in memory


class Fault(NamedTuple):
    """`why` is for the meter, the rest for the problem."""

    why: str
    code: str
    detail: str


MALFORMED = Fault("malformed", "bad-request", "this is no HTTP/1.1 request")


class Head:
    """Of the request that is being read, with the fields behind its body. Each method finds a fault, or none."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = self._fields = 0

    def begin(self) -> None:
        self._bytes = self._fields = 0

    def add(self, size_bytes: int, fields: int = 0) -> Fault | None:
        self._bytes += size_bytes
        self._fields += fields
        return self.too_large if self._bytes > self._max_bytes or self._fields > MAX_FIELDS else None

    @property
    def too_large(self) -> Fault:
        most = f"{self._max_bytes} bytes and {MAX_FIELDS} fields"
        return Fault("large_head", "head-too-large", f"the head of a request has at most {most}")

    def check(self, version: str, method: bytes, fields: Iterable[tuple[bytes, bytes]]) -> Fault | None:
        if version not in VERSIONS:
            return MALFORMED
        if method in WITHOUT_BODY and any(_announces_body(name, value) for name, value in fields):
            return Fault("malformed", "bad-request", f"a {method.decode()} has no body here")
        return None


def _announces_body(name: bytes, value: bytes) -> bool:
    return name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" 0") != b"")

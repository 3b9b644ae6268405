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
        self.size_bytes = self._fields = 0

    def begin(self) -> None:
        self.size_bytes = self._fields = 0

    def add(self, size_bytes: int, fields: int = 0) -> Fault | None:
        self.size_bytes += size_bytes
        self._fields += fields
        return self.too_large if self.size_bytes > self._max_bytes or self._fields > MAX_FIELDS else None

    @property
    def too_large(self) -> Fault:
        most = f"{self._max_bytes} bytes and {MAX_FIELDS} fields"
        return Fault("large_head", "head-too-large", f"the head of a request has at most {most}")

    def check(self, version: str, method: bytes, fields: Iterable[tuple[bytes, bytes]]) -> Fault | None:
        if version not in VERSIONS:
            return MALFORMED
        if method in WITHOUT_BODY and announced_bytes(fields) != 0:
            return Fault("malformed", "bad-request", f"a {method.decode()} has no body here")
        return None


def announced_bytes(fields: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Of the body that is to follow; none where its length isn't said."""
    given = {name: value for name, value in fields if name in (b"content-length", b"transfer-encoding")}
    return None if b"transfer-encoding" in given else int(given.get(b"content-length", b"0").strip() or b"0")

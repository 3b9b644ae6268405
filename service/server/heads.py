"""Heads of requests: how large they may be, and what of them is refused before a route is looked for."""

from __future__ import annotations

from collections.abc import Collection
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
# RFC 9112, 3.2 and 6.1: two readers of such a request may differ on whom it is for, or on where it ends.
_NO_HOST = Fault("malformed", "bad-request", "a request names its host, and names it once")
_CODED = Fault("malformed", "bad-request", "of the transfer codings only chunked is read")


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

    def check(self, version: str, method: bytes, fields: Collection[tuple[bytes, bytes]]) -> Fault | None:
        if version not in VERSIONS:
            return MALFORMED
        hosts = sum(name == b"host" for name, _ in fields)
        if hosts > 1 or (hosts == 0 and version != "1.0"):
            return _NO_HOST
        if any(name == b"transfer-encoding" and value.strip().lower() != b"chunked" for name, value in fields):
            return _CODED
        if method in WITHOUT_BODY and announced_bytes(fields) != 0:
            return Fault("malformed", "bad-request", f"a {method.decode()} has no body here")
        return None


def announced_bytes(fields: Collection[tuple[bytes, bytes]]) -> int | None:
    """Of the body that is to follow; none where its length isn't said."""
    given = {name: value for name, value in fields if name in (b"content-length", b"transfer-encoding")}
    return None if b"transfer-encoding" in given else int(given.get(b"content-length", b"0").strip() or b"0")

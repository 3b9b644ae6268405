"""Ids that sort by when they were made (ULID, https://github.com/ulid/spec), also within one millisecond."""

from __future__ import annotations

import secrets
import threading
import time

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80

_turn = threading.Lock()
_last = 0


def new_ulid(now_s: float | None = None) -> str:
    """48 bits of milliseconds, 80 random bits, in Crockford's base 32.

    now_s: seconds since 1970, the system's clock where it is None. In one process an id of the same millisecond as
    the last is the last plus one, as the specification's monotonic ids are, so lists keep the order of creation.
    """
    global _last
    millis = int((time.time() if now_s is None else now_s) * 1000)
    with _turn:
        _last = _last + 1 if _last >> _RANDOM_BITS == millis else (millis << _RANDOM_BITS) | secrets.randbits(80)
        return "".join(_CROCKFORD[(_last >> shift) & 31] for shift in range(125, -1, -5))

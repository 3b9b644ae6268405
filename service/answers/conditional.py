"""What callers have already: `If-None-Match`, as RFC 9110 has it."""

from __future__ import annotations

import re

_ETAG = re.compile(r'"[^"]*"')  # a W/ before it counts for nothing here: they are compared weakly


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether it is `*`, or a list in which `etag` stands; weak or not."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag.removeprefix("W/") in _ETAG.findall(if_none_match)

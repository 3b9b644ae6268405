"""What is said where a key has reached one of its limits: which, what it may have, and when there is more."""

from __future__ import annotations

from math import ceil

from dyno.errors import LimitReached, QueueFull

_DAY_S = 24 * 3600
_QUEUE_RETRY_S = 2  # nobody knows when a job is claimed


def too_many_requests(per_s: int, wait_ms: int) -> LimitReached:
    detail = f"this key may make {per_s} requests per second; there is one more in {wait_ms} ms"
    return LimitReached(detail, "requests", per_s, 1, ceil(wait_ms / 1000))


def full(most: int, queued: int) -> QueueFull:
    """Whoever's jobs they are."""
    detail = f"{queued} jobs are queued, and there may be {most}; try again later"
    return QueueFull(detail, "all-queued-jobs", most, None, _QUEUE_RETRY_S)


def refused(limit: str, most: int, has: int, day_left_ms: int) -> LimitReached:
    """`submit.lua`'s reply."""
    if limit == "queued_jobs":
        detail = f"{has} jobs of this key are queued, and it may have {most}"
        return LimitReached(detail, "queued-jobs", most, None, _QUEUE_RETRY_S)
    detail = f"this key has had {has} s of devices today, and may have {most}; the next day begins at 00:00 UTC"
    return LimitReached(detail, "device-seconds", most, _DAY_S, ceil(day_left_ms / 1000))

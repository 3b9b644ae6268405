"""How long jobs waited once nothing was wrong any more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from chaos.streams import Event
from dyno.job import Event as Step
from dyno.job import Status


def longest_wait_s(general: Sequence[Event], over_at_s: Iterable[float]) -> float:
    """From when a job was queued, or the last fault before its claim was over if that came later, to the claim.

    0 where no job was ever claimed. Both by one clock, in seconds since 1970.
    """
    overs, queued_at_s, longest_s = sorted(over_at_s), dict[str, float](), 0.0
    for event in general:
        if event.status == Status.QUEUED:
            queued_at_s[event.job] = event.at_s
        elif event.event == Step.CLAIM and event.job in queued_at_s:
            last = bisect_right(overs, event.at_s)
            since_s = max(queued_at_s.pop(event.job), overs[last - 1] if last else 0.0)
            longest_s = max(longest_s, event.at_s - since_s)
    return longest_s

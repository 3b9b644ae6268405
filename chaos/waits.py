"""Measures how long jobs waited although a worker could have taken them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from chaos.spans import Span, covers, seconds_where
from chaos.streams import Event
from chaos.table import QUEUED

REDIS = "Redis"  # key in `away`, beside the workers' names


def longest_wait_s(
    general: Sequence[Event], takers: Mapping[str, Collection[str]], away: Mapping[str, Sequence[Span]]
) -> float:
    """The longest time for which a job waited for a claim while Redis and one of its takers were up.

    Such time is summed up over a job's wait, with faults in between left out. `takers`: the workers that each job fits.
    `away`: when each worker, or Redis, was dead, stopped or unreachable. 0 if no job was claimed.
    """
    queued_at_s, longest_s = dict[str, float](), 0.0
    for event in general:
        if event.status == QUEUED:
            queued_at_s[event.job] = event.at_s
        elif event.event == "claim" and event.job in queued_at_s:
            since_s = queued_at_s.pop(event.job)
            longest_s = max(longest_s, _served_s(since_s, event.at_s, takers.get(event.job, ()), away))
    return longest_s


def _served_s(from_s: float, to_s: float, takers: Collection[str], away: Mapping[str, Sequence[Span]]) -> float:
    def served(at_s: float) -> bool:
        up = not takers or any(not covers(away.get(taker, ()), at_s) for taker in takers)
        return up and not covers(away.get(REDIS, ()), at_s)

    spans = [span for who in (*takers, REDIS) for span in away.get(who, ())]
    return seconds_where(served, from_s, to_s, spans)

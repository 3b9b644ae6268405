"""All checks of a run: the state of Redis, the API's responses, and failures that the faults don't explain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import redis

from chaos import indexes, reasons, records, streams, views
from chaos.breach import Breach, Violation
from chaos.calls import Answers
from chaos.checker import violations
from chaos.orders import Order
from chaos.schedule import Kind
from chaos.spans import Span
from chaos.streams import Streams
from dyno.store.redis import Keys


class Heard(NamedTuple):
    """Observations outside of Redis.

    `kinds`: the kinds of faults that occurred. `faults`: when, each including the time for which it has an effect.
    """

    answers: Answers
    views: Mapping[str, views.View]
    orders: Sequence[Order]
    kinds: Collection[Kind]
    faults: Sequence[Span]


def judged(client: redis.Redis, keys: Keys, heard: Heard) -> tuple[Streams, list[Violation]]:
    """The streams, and all violations."""
    found, seen = streams.read(client, keys), indexes.look(client, keys)
    return found, list(
        chain(
            violations(heard.answers.accepted, heard.answers.canceling, found),
            reasons.unexplained(found, heard.kinds, _too_little(heard)),
            records.contradictions({job: kept.record for job, kept in seen.jobs.items()}, found.by_job),
            views.untrue(heard.views, found.by_job),
            views.unkept(heard.answers.cancels, found.by_job, heard.faults),
            (Violation(Breach.INDEX, what) for what in indexes.mismatches(seen)),
            (Violation(Breach.HELD, f"{device} is leased for {at.get('job')}") for device, at in seen.leases.items()),
            (Violation(Breach.STRANGE, what) for what in heard.answers.strange),
        )
    )


def _too_little(heard: Heard) -> set[str]:
    keys = [order.key for order in heard.orders if order.size == "failing"]
    return set().union(*(heard.answers.accepted.get(key, set()) for key in keys))

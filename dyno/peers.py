"""Figures of earlier results, kept so that a new one of the same work can be held against them."""

from __future__ import annotations

from dataclasses import dataclass

from dyno.job import Stored


class Peer(Stored):
    """The headline figure of one result: `value` in the unit of the series that it is in."""

    job: str
    value: float
    hardware_id: str | None = None
    context_id: str | None = None


@dataclass(frozen=True)
class Headline:
    """A new result's own figure, and the id of the series that it goes into."""

    series: str
    own: Peer

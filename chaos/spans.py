"""Time spans on one clock, in seconds since 1970: the time that they cover, and the gaps between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    from_s: float
    to_s: float


def clear_s(from_s: float, to_s: float, spans: Sequence[Span]) -> float:
    """The seconds between the two times that no span covers."""
    return seconds_where(lambda at_s: not covers(spans, at_s), from_s, to_s, spans)


def covers(spans: Iterable[Span], at_s: float) -> bool:
    return any(span.from_s <= at_s < span.to_s for span in spans)


def seconds_where(holds: Callable[[float], bool], from_s: float, to_s: float, spans: Iterable[Span]) -> float:
    """The seconds between the two times at which `holds` is true; it changes only at edges of `spans`."""
    edges = {edge for span in spans for edge in span if from_s < edge < to_s}
    return sum(end - begin for begin, end in pairwise(sorted({from_s, to_s, *edges})) if holds((begin + end) / 2))

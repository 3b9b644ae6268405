"""Was the machine quiet? Its clock tells, whatever the figures say."""

from __future__ import annotations

from collections.abc import Iterable

QUIET = 0.01


def moved(clocks_hz: Iterable[float | None]) -> float:
    """The fastest clock to the slowest, less one; 0 where none was measured."""
    known = [clock_hz for clock_hz in clocks_hz if clock_hz is not None]
    return max(known) / min(known) - 1 if known else 0.0

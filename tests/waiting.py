"""How every test waits: for a condition, with a deadline, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_EVERY_S = 0.01


def eventually(condition: Callable[[], object], within_s: float = 30, what: str = "the condition holds") -> None:
    """Returns as soon as `condition` is true; fails the test after `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
        time.sleep(_LOOK_EVERY_S)

"""How every test waits: for a condition, with a deadline, never for a time.

Deadlines are for what never comes. They allow for a machine that others keep busy, and cost nothing otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_EVERY_S = 0.01


def eventually(condition: Callable[[], T], within_s: float = 60, what: str = "the condition holds") -> T:
    """What `condition` returns as soon as it is true; fails the test after `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
        time.sleep(_LOOK_EVERY_S)
    return found

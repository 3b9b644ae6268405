"""How every test waits: for a condition, with a deadline, never for a time.

Deadlines are for what never comes. They allow for a machine that others keep busy, and cost nothing otherwise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# What docs/promises.md promises within seconds is held to the second by `make verify` alone. A machine that is slow, or
# that others keep busy, is given three times as long, which is still less than it takes where the promise is broken.
_ALLOWANCE = 1 if "DYNO_TEST_TO_THE_SECOND" in os.environ else 3

# A look costs milliseconds of a core that what is waited for may need: the longer it takes, the fewer of them.
_LEAST_PAUSE_S, _MOST_PAUSE_S, _OF_WAITED = 0.01, 0.1, 0.05


def promised(within_s: float) -> float:
    """How long a test allows for what is promised within `within_s`."""
    return _ALLOWANCE * within_s


def eventually(condition: Callable[[], T], within_s: float = 60, what: str = "the condition holds") -> T:
    """What `condition` returns as soon as it is true; fails the test after `within_s`."""
    began_s = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - began_s
        assert waited_s < within_s, f"not within {within_s:g} s: {what}"
        time.sleep(min(_MOST_PAUSE_S, max(_LEAST_PAUSE_S, _OF_WAITED * waited_s)))
    return found

"""How every test waits: for a condition with a deadline, never for a fixed time.

Deadlines only catch conditions that never hold. They are long enough for a busy machine, and cost nothing otherwise.
"""

import os
import time
from typing import TypeVar

T = TypeVar("T")

# Only `make verify` checks the times in docs/promises.md to the second. Other runs allow three times as long, for slow
# or busy machines, which is still less than a broken promise takes.
_ALLOWANCE = 1 if "DYNO_TEST_TO_THE_SECOND" in os.environ else 3

# A check costs milliseconds of a core that the tested processes may need, so checks get rarer with time.
_LEAST_PAUSE_S, _MOST_PAUSE_S, _OF_WAITED = 0.01, 0.1, 0.05


def promised(within_s):
    """How long a test waits for something that Dyno promises within `within_s`."""
    return _ALLOWANCE * within_s


def eventually(condition, within_s=60, what="the condition holds"):
    """Wait until `condition` returns a true value, and return it. Fails the test after `within_s`."""
    began_s = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - began_s
        assert waited_s < within_s, f"not within {within_s:g} s: {what}"
        time.sleep(min(_MOST_PAUSE_S, max(_LEAST_PAUSE_S, _OF_WAITED * waited_s)))
    return found

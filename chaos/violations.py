"""The kinds of violations, and a single violation."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ViolationKind(StrEnum):
    """The values are keys of recorded results."""

    LOST = "lost jobs"
    TWICE = "double finishes"
    OVERLAP = "overlapping leases"
    ILLEGAL = "illegal transitions"
    ATTEMPT = "ends by another attempt"
    REASON = "unexplained failures"
    DOUBLED = "jobs made twice"
    UNASKED = "canceled unasked"
    CANCEL = "cancels not kept"
    DIFFER = "streams that differ"
    RECORD = "records that differ"
    VIEW = "answers that differ"
    INDEX = "index mismatches"
    ORPHAN = "orphans"
    HELD = "devices not free"
    DIED = "parts that died or hung"
    STRANGE = "strange answers"


class Violation(NamedTuple):
    kind: ViolationKind
    what: str

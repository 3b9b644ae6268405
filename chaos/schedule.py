"""Which fault comes when: the same for the same seed and duration."""

from __future__ import annotations

import random
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

WORKERS = ("worker-0", "worker-1", "worker-2")
API = "api"
JUMPING = WORKERS[-1]  # its clock jumps


class Kind(StrEnum):
    """What is done to the rig."""

    KILL = "KILL"  # a process, as a host that is gone
    STOP = "STOP/CONT"  # a process sleeps for longer than its lease, and goes on as if nothing had been
    TERM = "TERM"  # a process is asked to end
    RESTART = "Redis restart"  # by TERM or by KILL
    AWAY = "Redis away"  # nobody accepts, or nobody replies
    SLOW = "slow Redis"  # each reply half a second late
    RESET = "connections reset"  # all of Redis', once
    FULL = "disk full"  # the workers' own: scratch, spool and locks
    JUMP = "clock jump"  # of one worker, by hours


class Fault(NamedTuple):
    """`at_s` is counted from the run's begin. Of a process that is killed `lasts_s` is how long it stays dead."""

    at_s: float
    kind: Kind
    target: str
    lasts_s: float


_SLOT_S = 20.0
# Faults of one lane never overlap, those of different lanes do as it happens.
_LANES = (
    (Kind.KILL, Kind.STOP, Kind.TERM),
    (Kind.RESTART, Kind.AWAY, Kind.SLOW, Kind.RESET),
    (Kind.FULL, Kind.JUMP),
)
_TARGETS: dict[Kind, tuple[str, ...]] = {
    Kind.KILL: (*WORKERS, API),
    Kind.STOP: (*WORKERS, API),
    Kind.TERM: (*WORKERS, API),
    Kind.RESTART: ("by TERM", "by KILL"),
    Kind.AWAY: ("refusing", "silent"),
    Kind.SLOW: ("every reply",),
    Kind.RESET: ("every connection",),
    Kind.FULL: ("the workers' disk",),
    Kind.JUMP: ("+10800", "-10800"),
}
# Of its slot, from and to.
_LASTS: dict[Kind, tuple[float, float]] = {
    Kind.KILL: (0.02, 0.3),
    Kind.STOP: (0.35, 0.6),
    Kind.TERM: (0.02, 0.3),
    Kind.RESTART: (0.0, 0.1),
    Kind.AWAY: (0.1, 0.6),
    Kind.SLOW: (0.2, 0.6),
    Kind.RESET: (0.0, 0.0),
    Kind.FULL: (0.3, 0.6),
    Kind.JUMP: (0.3, 0.6),
}
_BEGINS = (0.05, 0.35)


def schedule(seed: int, duration_s: float, kinds: Collection[Kind] = frozenset(Kind)) -> list[Fault]:
    """Each of these kinds at least once, in the order in which they begin; all have ended after `duration_s`."""
    rng = random.Random(f"faults {seed}")
    lanes = [tuple(kind for kind in lane if kind in kinds) for lane in _LANES]
    return sorted(fault for lane in lanes if lane for fault in _in_lane(rng, lane, duration_s))


def _in_lane(rng: random.Random, kinds: tuple[Kind, ...], duration_s: float) -> list[Fault]:
    """One fault to a slot, each kind about as often as the others."""
    slots = max(len(kinds), round(duration_s / _SLOT_S))
    slot_s = duration_s / slots
    turns = [*kinds] * -(-slots // len(kinds))
    drawn = turns[:slots]
    rng.shuffle(drawn)
    return [
        Fault(
            round((slot + rng.uniform(*_BEGINS)) * slot_s, 3),
            kind,
            rng.choice(_TARGETS[kind]),
            round(rng.uniform(*_LASTS[kind]) * slot_s, 3),
        )
        for slot, kind in enumerate(drawn)
    ]

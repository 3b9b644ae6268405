"""The schedule of faults, which depends on the seed and the duration only."""

from __future__ import annotations

import random
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

WORKERS = ("worker-0", "worker-1", "worker-2")
API = "api"
JUMPING = WORKERS[-1]  # the worker whose clock jumps


class Kind(StrEnum):
    """The kinds of faults."""

    KILL = "KILL"  # of a process, as if its host was gone
    STOP = "STOP/CONT"  # a process is stopped for longer than its lease, then continued
    TERM = "TERM"  # of a process
    RESTART = "Redis restart"  # with TERM or KILL
    AWAY = "Redis away"  # connections are refused, or get no replies
    SLOW = "slow Redis"  # each reply is delayed by half a second
    RESET = "connections reset"  # all connections to Redis, once
    FULL = "disk full"  # the workers' disk, with scratch folders, spool and locks
    JUMP = "clock jump"  # of one worker, by hours


class Fault(NamedTuple):
    """`at_s`: seconds after the run's start. `lasts_s`: duration; of a KILL, how long the process stays dead."""

    at_s: float
    kind: Kind
    target: str
    lasts_s: float


_SLOT_S = 20.0
# Faults of one lane never overlap; those of different lanes may.
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
# Share of the slot, from and to.
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
    """Faults in the order of their start, with each kind at least once. All have ended after `duration_s`."""
    rng = random.Random(f"faults {seed}")
    lanes = [tuple(kind for kind in lane if kind in kinds) for lane in _LANES]
    return sorted(fault for lane in lanes if lane for fault in _in_lane(rng, lane, duration_s))


def _in_lane(rng: random.Random, kinds: tuple[Kind, ...], duration_s: float) -> list[Fault]:
    """One fault per slot; all kinds are about equally frequent."""
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

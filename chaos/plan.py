"""The faults and jobs of a run. They depend on the seed, the duration and the number of jobs only."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import JsonValue

WORKERS = ("worker-0", "worker-1", "worker-2")
API = "api"


class FaultKind(StrEnum):
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
    kind: FaultKind
    target: str
    lasts_s: float


_SLOT_S = 20.0
_BEGINS = (0.05, 0.35)  # a fault begins between these shares of its slot
_PROCESSES = (*WORKERS, API)
# Per kind: its targets, and the least and largest share of the slot that it lasts. Faults of a lane never overlap.
_LANES: Sequence[Mapping[FaultKind, tuple[Sequence[str], tuple[float, float]]]] = (
    {
        FaultKind.KILL: (_PROCESSES, (0.02, 0.3)),
        FaultKind.STOP: (_PROCESSES, (0.35, 0.6)),
        FaultKind.TERM: (_PROCESSES, (0.02, 0.3)),
    },
    {
        FaultKind.RESTART: (("by TERM", "by KILL"), (0.0, 0.1)),
        FaultKind.AWAY: (("refusing", "silent"), (0.1, 0.6)),
        FaultKind.SLOW: (("every reply",), (0.2, 0.6)),
        FaultKind.RESET: (("every connection",), (0.0, 0.0)),
    },
    {
        FaultKind.FULL: (("the workers' disk",), (0.3, 0.6)),
        FaultKind.JUMP: (("+10800", "-10800"), (0.3, 0.6)),
    },
)


def plan_faults(seed: int, duration_s: float, kinds: Collection[FaultKind] = frozenset(FaultKind)) -> list[Fault]:
    """Faults in the order of their start, with each kind at least once. All have ended after `duration_s`."""
    rng, planned = random.Random(f"faults {seed}"), []
    for lane in _LANES:
        if wanted := [kind for kind in lane if kind in kinds]:
            slots = max(len(wanted), round(duration_s / _SLOT_S))
            slot_s = duration_s / slots
            drawn = (wanted * -(-slots // len(wanted)))[:slots]  # all kinds are about equally frequent
            rng.shuffle(drawn)
            for slot, kind in enumerate(drawn):
                targets, lasts = lane[kind]
                at_s = round((slot + rng.uniform(*_BEGINS)) * slot_s, 3)
                planned.append(Fault(at_s, kind, rng.choice(targets), round(rng.uniform(*lasts) * slot_s, 3)))
    return sorted(planned)


class Span(NamedTuple):
    """Seconds since 1970."""

    from_s: float
    to_s: float


def clear_s(from_s: float, to_s: float, spans: Iterable[Span]) -> float:
    """The seconds between the two times that lie in none of the spans."""
    total_s, at_s = 0.0, from_s
    for span in sorted(spans):
        total_s += max(0.0, min(span.from_s, to_s) - at_s)
        at_s = max(at_s, span.to_s)
    return total_s + max(0.0, to_s - at_s)


MOST_JOBS = 2000  # per run, because the general stream keeps 10,000 events
MOST_CORES = 2  # the workers have two devices of one core each
_JOBS_A_MINUTE = 62.5  # for each core: 1,250 in ten minutes on two cores


def job_count(minutes: float, cores: int) -> int:
    """The number of jobs in a run of this length on a machine with `cores` cores."""
    return max(1, min(MOST_JOBS, round(_JOBS_A_MINUTE * minutes * min(cores, MOST_CORES))))


Size = Literal["tiny", "long", "longer", "with a file", "failing"]
_SIZES: Mapping[Size, int] = {"tiny": 84, "long": 10, "longer": 2, "with a file": 3, "failing": 1}
_LASTS_S: Mapping[Size, tuple[float, float]] = {"long": (0.5, 2.0), "longer": (3.0, 6.0)}  # so that faults meet them
_TINY: Mapping[str, JsonValue] = {"min_samples": 1, "min_s": 0, "max_s": 0.02}  # far below the method's minimum
_CANCELED, _CANCELED_AFTER_S, _TWICE = 0.06, (0.0, 3.0), 0.08


class PlannedJob(NamedTuple):
    """A job to submit `at_s` seconds after the run's start. `twice`: submit it twice at once, like an impatient client.

    `key`: its idempotency key.
    """

    key: str
    at_s: float
    size: Size
    body: dict[str, JsonValue]
    twice: bool
    cancel_after_s: float | None


def plan_jobs(seed: int, count: int, duration_s: float, cores: tuple[int, int]) -> list[PlannedJob]:
    """`count` jobs at random times within the duration. `cores`: the cores of the two CPU devices."""
    rng = random.Random(f"orders {seed}")
    times_s = sorted(rng.uniform(0, duration_s) for _ in range(count))
    return [_job(rng, f"{seed}-{number}", at_s, cores) for number, at_s in enumerate(times_s)]


def _job(rng: random.Random, key: str, at_s: float, cores: tuple[int, int]) -> PlannedJob:
    size = rng.choices(list(_SIZES), list(_SIZES.values()))[0]
    body: dict[str, JsonValue] = {
        **_work(rng, size),
        "device": rng.choice(["cpu", "cpu", "cpu", "cpu", *(f"cpu:{core}-{core}" for core in cores)]),
        "priority": rng.choice(["low", "normal", "high"]),
        "queue_if_absent": True,  # while all workers are down, the job waits
        "labels": {"order": key},
    }
    cancel_after_s = rng.uniform(*_CANCELED_AFTER_S) if rng.random() < _CANCELED else None
    return PlannedJob(key, round(at_s, 3), size, body, rng.random() < _TWICE, cancel_after_s)


def _work(rng: random.Random, size: Size) -> dict[str, JsonValue]:
    if size == "with a file":
        measure = {**_TINY, "processes": 1}
        return {"workload": "device_info", "params": {"ask_frameworks": False}, "measure": measure}
    matmul: dict[str, JsonValue] = {"workload": "matmul", "params": {"n": 64, "repeats": 1}}
    if size == "failing":  # it needs 7 s, its timeout is 3 s; Dyno would refuse less than a third of 7 s
        long: JsonValue = {"processes": 1, "min_samples": 200, "min_s": 0, "max_s": 7}
        return {**matmul, "measure": long, "timeout_s": 3.0}
    if size in _LASTS_S:
        for_s = round(rng.uniform(*_LASTS_S[size]), 2)
        return {**matmul, "measure": {"processes": 1, "min_samples": 20, "min_s": for_s, "max_s": for_s}}
    return {**matmul, "measure": {**_TINY, "processes": rng.choice([1, 1, 2])}}

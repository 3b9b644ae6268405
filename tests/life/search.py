"""A breadth-first search through all reachable worlds, which checks invariants of each world and each move."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dyno.models.job import DONE, MAX_ATTEMPTS, Status
from tests.life.sameness import fresh, renamed
from tests.life.world import Move, World, make, moves

# Moves without the present workers, cancels and lost replies.
_HEALTHY = ("submit", "run out", "expire", "die", "claim")


@dataclass
class Found:
    """`trace`: the shortest sequence of moves to a violation. `stuck`: worlds from which not all jobs can end."""

    worlds: int = 0
    transitions: int = 0
    wrong: str | None = None
    trace: list[Move] = field(default_factory=list)
    stuck: int = 0


def search(scripts, beginning):
    """Check all reachable worlds and all moves between them, until an invariant is violated."""
    found = Found()
    came: dict[World, World | None] = {beginning: None}
    ways_back: dict[World, list[World]] = {}
    ahead = deque([beginning])
    while ahead:
        world = ahead.popleft()
        for move in moves(world):
            after, answer = make(scripts, world, move, fresh(world))
            if any(broken(world, move, after, answer)):
                found.worlds = len(came)
                found.trace, found.wrong = _trace(scripts, _path(came, world))
                return found
            after = renamed(after)
            if after == world:
                continue
            found.transitions += 1
            if after not in came:
                came[after] = world
                ahead.append(after)
            if _healthy(move):
                ways_back.setdefault(after, []).append(world)
    found.worlds, found.stuck = len(came), len(came) - _ends_from(came, ways_back)
    return found


def broken(before, move, after, answer):
    """The violated invariant after a move, as text."""
    for job, (was, now) in enumerate(zip(before.ledger.jobs, after.ledger.jobs, strict=True)):
        if was.status in DONE and now.status is not was.status:
            yield f"job {job} was {was.status} and is {now.status}"
        belief = before.workers[move.who] if move.what == "end" else None
        if belief is not None and was.status is not now.status and was.token != belief.token:
            yield f"worker {move.who} ended job {job}, which is another attempt's"
    if answer == ("superseded",) and after.ledger != before.ledger:
        yield "a call that was refused changed something"
    yield from _state(after.ledger)


def _state(ledger):
    leased = [(lease.job, lease.token) for lease in ledger.leases if lease is not None]
    for job, record in enumerate(ledger.jobs):
        tokens = [token for other, token in leased if other == job]
        if tokens != ([record.token] if record.status is Status.RUNNING else []):
            yield f"job {job} is {record.status} under {len(tokens)} leases, or under another's"
        if ledger.queue.count(job) != (record.status is Status.QUEUED):
            yield f"job {job} is {record.status}, and the queue doesn't say so"
        if record.ends != record.done:
            yield f"job {job} is {record.status} and ended {record.ends} times"
        if not (record.status is Status.RUNNING) <= record.attempt <= MAX_ATTEMPTS:
            yield f"job {job} is in attempt {record.attempt}"
        if record.status is Status.CANCELED and not record.canceling:
            yield f"job {job} was canceled, and nobody asked for it"


def _healthy(move):
    return move.heard and (move.what in _HEALTHY or move.how == "succeed")


def _ends_from(came, ways_back):
    """The number of worlds from which all jobs can end by healthy moves alone."""
    ahead = [world for world in came if all(record.done for record in world.ledger.jobs)]
    ending = set(ahead)
    while ahead:
        for world in ways_back.get(ahead.pop(), ()):
            if world not in ending:
                ending.add(world)
                ahead.append(world)
    return len(ending)


def _path(came, last):
    path: list[World] = []
    step: World | None = last
    while step is not None:
        path.append(step)
        step = came[step]
    return path[::-1]


def _trace(scripts, path):
    """The moves of a path to a violation, replayed without renaming, so that workers keep their numbers."""
    world, trace = path[0], []
    for goal in path[1:]:
        steps = ((move, make(scripts, world, move, fresh(world))[0]) for move in moves(world))
        move, world = next((move, after) for move, after in steps if renamed(after) == goal)
        trace.append(move)
    last = ((move, broken(world, move, *make(scripts, world, move, fresh(world)))) for move in moves(world))
    return next(([*trace, move], wrong) for move, wrongs in last for wrong in wrongs)

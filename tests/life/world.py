"""The ledger with the workers around it: what each of them believes, and every move that can be made next.

A worker here is a process: it may claim for any device (as a successor on a dead one's device does), may be stopped
for as long as it likes while its lease is taken (a zombie), and may die, when a new one takes its place. Every answer
may be lost; the worker then makes the same call again with the same token, or ends its attempt in another way.
Left out: an old request that reaches Redis after its repetition, and how a worker hears of a cancel (it may stop
whatever is being canceled).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dyno.models.job import DONE, Event
from tests.life.ledger import HAND_BACK, REQUEUES, Answer, Ledger, Scripts, run_out

ENDINGS = (Event.SUCCEED, Event.FAIL, Event.STOP, Event.REQUEUE, HAND_BACK)


class Belief(NamedTuple):
    """What a worker thinks it has; `job` is None until its claim was answered."""

    device: int
    token: int
    job: int | None = None


class World(NamedTuple):
    """One state of everything."""

    ledger: Ledger
    workers: tuple[Belief | None, ...]

    @classmethod
    def beginning(cls, jobs: int, devices: int, workers: int) -> World:
        return cls(Ledger.empty(jobs, devices), (None,) * workers)

    def with_belief(self, worker: int, belief: Belief | None) -> World:
        workers = list(self.workers)
        workers[worker] = belief
        return self._replace(workers=tuple(workers))


class Move(NamedTuple):
    """`who` is a job, device or worker, as the move has it; `heard` is false where the answer gets lost."""

    what: str
    who: int
    how: Any = None  # the device of a claim, the ending of an attempt
    heard: bool = True

    def __str__(self) -> str:
        return WORDS[self.what].format(who=self.who, how=self.how) + ("" if self.heard else ", unheard")


WORDS = {
    "submit": "job {who} is submitted",
    "cancel": "job {who} is canceled by its caller",
    "run out": "the lease of device {who} runs out",
    "expire": "the lease of device {who} is taken",
    "claim": "worker {who} claims for device {how}",
    "beat": "worker {who} sends a heartbeat",
    "end": "worker {who} ends its attempt: {how}",
    "die": "worker {who} dies",
}


def moves(world: World) -> Iterator[Move]:
    """All that can happen next."""
    records, leases = world.ledger.jobs, world.ledger.leases
    new = next((job for job, record in enumerate(records) if record.status is None), None)
    if new is not None:
        yield Move("submit", new)
    for job, record in enumerate(records):
        if record.status is not None and not record.canceling and record.status not in DONE:
            yield Move("cancel", job)
    for device, lease in enumerate(leases):
        if lease is not None:
            yield Move("expire" if lease.late else "run out", device)
    for worker, belief in enumerate(world.workers):
        if belief is not None:
            yield Move("die", worker)
        for what, how in _calls(world, belief):
            yield Move(what, worker, how)
            yield Move(what, worker, how, heard=False)


def _calls(world: World, belief: Belief | None) -> Iterator[tuple[str, Any]]:
    if belief is None:
        yield from (("claim", device) for device in range(len(world.ledger.leases)))
    elif belief.job is None:
        yield "claim", belief.device
    else:
        yield "beat", None
        stops = world.ledger.jobs[belief.job].canceling
        yield from (("end", ending) for ending in ENDINGS if stops or ending is not Event.STOP)


def make(scripts: Scripts, world: World, move: Move, token: int) -> tuple[World, Answer]:
    """The world after a move, and what was answered. `token` is for a claim that isn't made again."""
    ledger, who = world.ledger, move.who
    match move.what:
        case "submit" | "cancel" | "expire":
            ledger, answer = getattr(scripts, move.what)(ledger, who)
            return world._replace(ledger=ledger), answer
        case "run out":
            return world._replace(ledger=run_out(ledger, who)), ()
        case "die":
            return world.with_belief(who, None), ()
    belief, (ledger, answer) = _called(scripts, world, move, token)
    believes = _heard(belief, move, answer) if move.heard else belief
    return world._replace(ledger=ledger).with_belief(who, believes), answer


def _called(scripts: Scripts, world: World, move: Move, token: int) -> tuple[Belief, tuple[Ledger, Answer]]:
    """What the worker believes until it hears of its call, and what the call did."""
    ledger, belief = world.ledger, world.workers[move.who]
    if belief is None:
        belief = Belief(move.how, token)
    if belief.job is None:
        return belief, scripts.claim(ledger, belief.device, belief.token)
    held = (belief.device, belief.job, belief.token)
    if move.what == "beat":
        return belief, scripts.heartbeat(ledger, *held)
    if move.how in REQUEUES:
        return belief, scripts.requeue(ledger, *held, counts=move.how != HAND_BACK)
    return belief, scripts.finish(ledger, *held, Event(move.how))


def _heard(belief: Belief, move: Move, answer: Answer) -> Belief | None:
    """A worker without a job, one that ended its attempt and one that was superseded have nothing any more."""
    match move.what, answer:
        case "claim", ("claimed", job):
            return belief._replace(job=job)
        case "beat", ("beating", _):
            return belief
    return None

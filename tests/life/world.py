"""The ledger plus the workers: the state that each of them believes in, and all possible next moves.

A worker here is a process. It may claim for any device, as the successor of a dead worker does. It may be stopped while
its lease is taken (a zombie), and it may die, and a new one takes its place. Every reply may be lost. The worker then
repeats the call with the same token, or ends its attempt in another way.
Left out: an old request that reaches Redis after its retry, and how a worker learns of a cancel (it may stop any job
whose cancel was requested).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dyno.models.job import DONE, Event
from tests.life.ledger import HAND_BACK, REQUEUES, Ledger, run_out

ENDINGS = (Event.SUCCEED, Event.FAIL, Event.STOP, Event.REQUEUE, HAND_BACK)


class Belief(NamedTuple):
    """The attempt that a worker believes it has. `job`: None until its claim was answered."""

    device: int
    token: int
    job: int | None = None


class World(NamedTuple):
    """A state of the ledger and all workers."""

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
    """A move. `who`: a job, device or worker, depending on the move. `heard`: False if the reply is lost."""

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


def moves(world):
    """All possible next moves."""
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


def _calls(world, belief):
    if belief is None:
        yield from (("claim", device) for device in range(len(world.ledger.leases)))
    elif belief.job is None:
        yield "claim", belief.device
    else:
        yield "beat", None
        stops = world.ledger.jobs[belief.job].canceling
        yield from (("end", ending) for ending in ENDINGS if stops or ending is not Event.STOP)


def make(scripts, world, move, token):
    """The world after a move, and the reply. `token`: for a claim that isn't a retry."""
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


def _called(scripts, world, move, token):
    """The worker's belief until its call is answered, and the effect of the call."""
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


def _heard(belief, move, answer):
    """Workers without a job, with an ended attempt or superseded have no attempt any more."""
    match move.what, answer:
        case "claim", ("claimed", job):
            return belief._replace(job=job)
        case "beat", ("beating", _):
            return belief
    return None

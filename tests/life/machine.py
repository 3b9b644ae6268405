"""Applies moves in any order to the model and to a real server; after each move, both must agree."""

from __future__ import annotations

from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dyno.models.job import DONE, Event, Status
from tests.life.agreement import Agreement, look
from tests.life.ledger import REQUEUES, Scripts
from tests.life.real import Real, agrees, is_owned
from tests.life.world import Move, World, make, moves
from tests.servers import kill_once_written

JOBS, DEVICES, WORKERS = 8, 2, 3
WEIGHTS = {
    "submit": 3,
    "submit again": 1,
    "cancel queued": 1,
    "cancel running": 2,
    "cancel done": 1,
    "claim": 8,
    "beat": 2,
    "finish": 2,
    "requeue": 2,
    "zombie": 6,
    "call again": 4,
    "run out": 4,
    "expire": 4,
    "die": 1,
    "redis is killed": 1,
}


class Life(RuleBasedStateMachine):
    """At the end all workers die, and a new one must bring every job to its end.

    There is one rule for all moves, because Hypothesis omits some rules in each run, and a zombie needs many moves. The
    rule first draws a kind of move, by WEIGHTS. With equal weights, most jobs would be canceled early.
    """

    def __init__(self, server):
        super().__init__()
        self._server, self._real = server, Real(server.url, WORKERS)
        self._scripts, self._tokens, self._agreement = Scripts(is_owned=is_owned), count(), Agreement()
        self._world = World.beginning(JOBS, DEVICES, WORKERS)
        self._unheard: dict[int, Move] = {}  # by worker: its last call, if the reply was lost
        self._sound = False  # both have agreed, and no move has begun since

    @rule(data=st.data())
    def goes_on(self, data):
        self._sound = False
        kinds = {kind: possible for kind, possible in self._kinds() if possible}
        weighted = [kind for kind in kinds for _ in range(WEIGHTS[kind])]
        self._move(data.draw(st.sampled_from(kinds[data.draw(st.sampled_from(weighted))])))

    @invariant()
    def both_say_the_same(self):
        self._sound = False
        self._agreement.check(self._world.ledger, look(self._real, DEVICES), self._real.ids)
        assert self._real.audit() == []
        self._sound = True

    def teardown(self):
        try:
            if self._sound:
                self._all_end()
        finally:
            self._real.close()

    def _kinds(self):
        """The moves that are possible now, by kind."""
        calls = [move for move in moves(self._world) if move.what in ("claim", "beat", "end")]
        zombies = [move.who for move in calls if self._is_zombie(move.who)]
        for what in ("submit", "run out", "expire", "die"):
            yield what, [move for move in moves(self._world) if move.what == what]
        yield "submit again", [Move("submit again", job) for job in range(len(self._real.ids))]
        for status in (Status.QUEUED, Status.RUNNING):
            yield f"cancel {status}", [Move("cancel", job) for job in self._jobs(status)]
        yield "cancel done", [Move("cancel", job) for job in self._jobs(*DONE)]
        yield "claim", [move for move in calls if move.what == "claim" and self._world.ledger.queue]
        yield "beat", [move for move in calls if move.what == "beat"]
        ends = [move for move in calls if move.what == "end"]
        yield "finish", [move for move in ends if move.how not in REQUEUES]
        yield "requeue", [move for move in ends if move.how in REQUEUES]
        yield "zombie", [move for move in calls if move.who in zombies]
        yield "call again", [move._replace(heard=heard) for move in self._unheard.values() for heard in (True, False)]
        yield "redis is killed", [Move("redis is killed", 0)] if len(self._real.ids) > JOBS / 2 else []

    def _jobs(self, *statuses):
        return [job for job, record in enumerate(self._world.ledger.jobs) if record.status in statuses]

    def _is_zombie(self, worker):
        """Whether another attempt owns the worker's job by now."""
        belief = self._world.workers[worker]
        if belief is None or belief.job is None:
            return False
        return self._world.ledger.jobs[belief.job].token not in (None, belief.token)

    def _move(self, move):
        match move.what:
            case "submit again":
                submitted = self._real.submit(move.who)
                assert (submitted.replayed, submitted.job.id) == (True, self._real.ids[move.who])
            case "redis is killed":
                kill_once_written(self._server)  # with `always` a plain kill would do, but takes three times as long
                assert self._server.revive()
            case "expire":
                self._reap()
            case _:
                self._make(move)

    def _make(self, move):
        """Apply the move to both sides. The replies to submits, cancels and calls must be the same."""
        queue_was_empty = not self._world.ledger.queue
        answer = self._modelled(move)
        match move.what:
            case "submit":
                submitted = self._real.submit(move.who)
                assert (submitted.replayed, submitted.wake) == (False, queue_was_empty)
            case "cancel":
                expected = {"finished": None, "already": False}.get(answer[0], True)
                assert self._real.cancel(move.who) is expected
            case "run out":
                self._real.run_out(move.who)
            case "die":
                self._unheard.pop(move.who, None)
                self._real.workers[move.who].begin()
            case _:
                self._call(move, answer)

    def _modelled(self, move):
        self._world, answer = make(self._scripts, self._world, move, next(self._tokens))
        return answer

    def _call(self, move, answer):
        self._unheard.pop(move.who, None)
        if not move.heard:
            self._unheard[move.who] = move
        told = self._real.workers[move.who].call(move)
        assert not move.heard or agrees(self._real.ids, told, move, answer), f"{move}: {told} for {answer}"

    def _reap(self):
        answers = [self._modelled(Move("expire", device)) for device in range(DEVICES)]
        assert self._real.reap() == {answer[1] for answer in answers if answer != ("live",)}

    def _all_end(self):
        for worker in range(WORKERS):
            self._make(Move("die", worker))
        for device, lease in enumerate(self._world.ledger.leases):
            if lease is not None:
                self._make(Move("run out", device))
        self._reap()
        while self._world.ledger.queue:
            self._make(Move("claim", 0, 0))
            self._make(Move("end", 0, Event.SUCCEED))
        self._make(Move("claim", 0, 0))
        self.both_say_the_same()
        assert all(record.done for record in self._world.ledger.jobs[: len(self._real.ids)])
        assert self._real.retain() == self._real.ids[::3], "only jobs with pending webhooks stay"

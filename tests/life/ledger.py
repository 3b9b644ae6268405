"""A model of the Lua scripts in plain Python: their effect on records, the queue and leases.

Both use the table of transitions in dyno/models/job.py. All else was written from the header comments of the scripts,
not from their code. The model leaves out what no rule of a job's life depends on:

- the contents of jobs (specs, progress, results);
- versions, events and indexes, which the stateful tests compare with the records;
- priorities, routing and devices that don't fit: there is one queue, in which two keys take turns;
- the expiry of records;
- crashes of Redis, which lose nothing.

Time is one bit of a lease: it has run out or it hasn't.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dyno.models.job import DONE, MAX_ATTEMPTS, TRANSITIONS, Event, Status

HAND_BACK = "hand back"  # requeue.lua where the attempt doesn't count; Event.REQUEUE is the one that does
REQUEUES = (Event.REQUEUE, HAND_BACK)

Answer = tuple[Any, ...]


class Record(NamedTuple):
    """One job. `last`: token and call that ended its last attempt. `ends`: how often it entered a state of DONE.
    `round`: its turn, which it keeps; jobs of one round follow each other by their numbers.
    """

    status: Status | None = None
    attempt: int = 0
    canceling: bool = False
    token: int | None = None
    last: tuple[int, str] | None = None
    ends: int = 0
    round: int = 0

    @property
    def done(self) -> bool:
        return self.status in DONE


class Lease(NamedTuple):
    """A lease of a device. `late`: it has run out."""

    job: int
    token: int
    late: bool = False


class Ledger(NamedTuple):
    """The state of Redis: jobs by number, the queue, and at most one lease per device.

    `reached`: the highest round that devices took.
    """

    jobs: tuple[Record, ...]
    queue: tuple[int, ...]
    leases: tuple[Lease | None, ...]
    reached: int = 0

    @classmethod
    def empty(cls, jobs: int, devices: int) -> Ledger:
        return cls((Record(),) * jobs, (), (None,) * devices)

    def with_job(self, job: int, **fields: Any) -> Ledger:
        jobs = list(self.jobs)
        jobs[job] = jobs[job]._replace(**fields)
        return self._replace(jobs=tuple(jobs))

    def with_lease(self, device: int, lease: Lease | None) -> Ledger:
        leases = list(self.leases)
        leases[device] = lease
        return self._replace(leases=tuple(leases))


class Scripts:
    """One method per script. Each returns the next ledger, and the first elements of the script's reply.

    `unchecked`: scripts that skip the check of the token (in a claim: of the lease), to test that the search finds
    this. `is_owned`: whether a job is of the second key.
    """

    def __init__(self, unchecked=(), is_owned=lambda job: False):
        self._unchecked, self._is_owned = frozenset(unchecked), is_owned

    def submit(self, ledger, job):
        ledger = self._with_turn(ledger, job)
        return _enqueued(_changed(ledger, job, Event.SUBMIT), job), ("submitted",)

    def claim(self, ledger, device, token):
        lease = ledger.leases[device]
        if lease is not None and "claim" not in self._unchecked:
            return ledger, ("claimed" if lease.token == token else "leased", lease.job)
        if not ledger.queue:
            return ledger, ("empty",)
        job = ledger.queue[0]
        reached = max(ledger.reached, ledger.jobs[job].round)
        ledger = _dequeued(ledger._replace(reached=reached), job).with_lease(device, Lease(job, token))
        attempt = ledger.jobs[job].attempt + 1
        return _changed(ledger, job, Event.CLAIM, token=token, attempt=attempt), ("claimed", job)

    def heartbeat(self, ledger, device, job, token):
        if not self._owns("heartbeat", ledger.jobs[job], token, Event.HEARTBEAT):
            return ledger, ("superseded",)
        beating = _changed(ledger, job, Event.HEARTBEAT).with_lease(device, Lease(job, token))
        return beating, ("beating", ledger.jobs[job].canceling)

    def finish(self, ledger, device, job, token, event):
        record = ledger.jobs[job]
        if not self._owns("finish", record, token, event):
            return ledger, ("already" if record.last == (token, event) else "superseded",)
        ended = _changed(ledger, job, event, token=None, last=(token, event))
        return _released(ended, device, token), ("finished",)

    def requeue(self, ledger, device, job, token, counts):
        record = ledger.jobs[job]
        if not self._owns("requeue", record, token, Event.REQUEUE):
            return ledger, ("already" if record.last == (token, Event.REQUEUE) else "superseded",)
        return self._attempt_ended(_released(ledger, device, token), job, token, Event.REQUEUE, counts)

    def cancel(self, ledger, job):
        record = ledger.jobs[job]
        if record.status is None:
            return ledger, ("unknown",)
        if (record.status, Event.CANCEL) not in TRANSITIONS:
            return ledger, ("finished",)
        if record.canceling:
            return ledger, ("already",)
        waiting = record.status is Status.QUEUED
        return _changed(_dequeued(ledger, job), job, Event.CANCEL, canceling=True), (
            "canceled" if waiting else "requested",
        )

    def expire(self, ledger, device):
        lease = ledger.leases[device]
        if lease is None or not lease.late:
            return ledger, ("live",)
        ledger, job = ledger.with_lease(device, None), lease.job
        if not self._owns("expire", ledger.jobs[job], lease.token, Event.EXPIRE):
            return ledger, ("orphan", job)
        ledger, (now,) = self._attempt_ended(ledger, job, lease.token, Event.EXPIRE, counts=True)
        return ledger, (now, job)

    def _with_turn(self, ledger, job):
        """The job is a round after the last waiting one of its key, or after the round that was reached."""
        head = ledger.jobs[ledger.queue[0]].round if ledger.queue else 0
        own = [ledger.jobs[each].round for each in ledger.queue if self._is_owned(each) == self._is_owned(job)]
        return ledger.with_job(job, round=1 + max(ledger.reached, head - 1, *own))

    def _owns(self, script, record, token, event):
        """Whether the holder of the token may apply the event to the job."""
        return (record.status, event) in TRANSITIONS and (record.token == token or script in self._unchecked)

    def _attempt_ended(self, ledger, job, token, event, counts):
        record = ledger.jobs[job]
        over: dict[str, Any] = {"token": None, "last": (token, event)}
        if record.canceling:
            return _changed(ledger, job, Event.STOP, **over), ("canceled",)
        if counts and record.attempt >= MAX_ATTEMPTS:
            return _changed(ledger, job, Event.EXHAUST, **over), ("failed",)
        attempt = record.attempt if counts else record.attempt - 1
        return _enqueued(_changed(ledger, job, event, **over, attempt=attempt), job), ("queued",)


def run_out(ledger, device):
    """Let the device's lease run out."""
    lease = ledger.leases[device]
    return ledger if lease is None else ledger.with_lease(device, lease._replace(late=True))


def _changed(ledger, job, event, **fields):
    before = ledger.jobs[job]
    after = TRANSITIONS[before.status, event]
    ended = after in DONE and before.status is not after
    return ledger.with_job(job, status=after, ends=before.ends + ended, **fields)


def _enqueued(ledger, job):
    queue = sorted((*ledger.queue, job), key=lambda each: (ledger.jobs[each].round, each))
    return ledger._replace(queue=tuple(queue))


def _dequeued(ledger, job):
    return ledger._replace(queue=tuple(each for each in ledger.queue if each != job))


def _released(ledger, device, token):
    lease = ledger.leases[device]
    return ledger if lease is None or lease.token != token else ledger.with_lease(device, None)

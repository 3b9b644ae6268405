"""Renames tokens, devices, workers and jobs, so that the search treats worlds that differ only in names as one."""

from __future__ import annotations

from typing import NamedTuple

from dyno.models.job import Status
from tests.life.ledger import Lease, Ledger, Record
from tests.life.world import Belief, World

_DONE = Record(Status.SUCCEEDED, attempt=1, ends=1)
_LAST = 99  # greater than all numbers in use


class _Names(NamedTuple):
    """Old number -> new one."""

    jobs: dict[int, int]
    devices: dict[int, int]
    tokens: dict[int, int]


def fresh(world):
    """A token that no worker holds."""
    tokens = [lease.token for lease in world.ledger.leases if lease is not None]
    tokens += [record.token for record in world.ledger.jobs if record.token is not None]
    tokens += [belief.token for belief in world.workers if belief is not None]
    return max(tokens, default=-1) + 1


def renamed(world):
    """The canonical form of worlds that differ only in the names of tokens, devices, workers and done jobs.

    It drops how a job ended, and whether a late call got "already" or "superseded", because neither affects later
    moves; and the rounds, because with one key the queue's order is that of the jobs' numbers.
    """
    names = _names(world.ledger)
    ledger = world.ledger
    records = [_record(ledger.jobs[job], names) for job in names.jobs]
    queue = tuple(names.jobs[job] for job in ledger.queue)
    leases = [_lease(ledger.leases[device], names) for device in names.devices]
    beliefs: list[Belief | None] = list(_beliefs(world, names))
    beliefs += [None] * (len(world.workers) - len(beliefs))
    return World(Ledger(tuple(records), queue, tuple(leases)), tuple(beliefs))


def _names(ledger):
    """Done jobs come first; the others keep their order, which is the queue's. Devices follow their jobs."""
    by_end = sorted(range(len(ledger.jobs)), key=lambda job: not ledger.jobs[job].done)
    jobs = {job: number for number, job in enumerate(by_end)}
    places = [_LAST if lease is None else jobs[lease.job] for lease in ledger.leases]
    devices = {device: number for number, device in enumerate(sorted(range(len(places)), key=places.__getitem__))}
    tokens: dict[int, int] = {}
    for device in devices:
        if (lease := ledger.leases[device]) is not None:
            tokens.setdefault(lease.token, len(tokens))
    for job in jobs:
        if (token := ledger.jobs[job].token) is not None:
            tokens.setdefault(token, len(tokens))
    return _Names(jobs, devices, tokens)


def _record(record, names):
    if record.done:
        return _DONE
    return record._replace(token=None if record.token is None else names.tokens[record.token], last=None, round=0)


def _lease(lease, names):
    return lease and Lease(names.jobs[lease.job], names.tokens[lease.token], lease.late)


def _beliefs(world, names):
    """Number the tokens in a fixed order; those that only a worker still knows come last."""
    believed = sorted(
        (
            names.devices[belief.device],
            _LAST if belief.job is None else names.jobs[belief.job],
            names.tokens.get(belief.token, _LAST),
            belief.token,
        )
        for belief in world.workers
        if belief is not None
    )
    for device, job, _, token in believed:
        yield Belief(device, names.tokens.setdefault(token, len(names.tokens)), None if job == _LAST else job)

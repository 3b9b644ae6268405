"""Telling the store how an attempt ended: until it has heard, or, what was spooled, when it is there again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import redis

from dyno.errors import StoreUnavailable
from dyno.store.leases import Claim, Leases
from workers.ending import Ending
from workers.log import event
from workers.spool import Spool
from workers.spooled import Spooled
from workers.stop import StopSwitch

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


def tell(
    ending: Ending,
    claim: Claim,
    leases: Leases,
    outbox: Spool,
    stop: StopSwitch,
    clock: Callable[[], float],
    tell_log: Callable[[], None] = lambda: None,
) -> bool:
    """Write the ending, again and again while Redis is away; False: it didn't count, or the worker had to end first.

    `tell_log` is called before each try: it writes what it can of the attempt's log.

    From the first failure on it is spooled too, so that a worker that dies meanwhile leaves it to its successor.
    """
    pause_s, kept = _FIRST_PAUSE_S, None
    while True:
        try:
            tell_log()
            counted = ending.write(leases, claim)
        except StoreUnavailable as error:
            event("ending-not-written", logging.WARNING, job=claim.job_id, why=error.detail, again_s=pause_s)
        except redis.RedisError:  # refused for good, by missing rights say: for whoever looks into that
            _keep(ending, claim, outbox)
            raise
        else:
            if kept is not None:
                outbox.drop(kept)
            return counted
        kept = kept or _keep(ending, claim, outbox)
        if clock() + pause_s >= stop.deadline_s:
            _leave(ending, claim, kept)
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def catch_up(outbox: Spool, leases: Leases) -> None:
    """Write all that waits in the outbox; what can't be written now goes on waiting."""
    for spooled in outbox.waiting():
        try:
            _write(spooled, outbox, leases)
        except StoreUnavailable as error:
            event("spool-not-written", logging.WARNING, why=error.detail)
            return
        except redis.RedisError as error:  # it refuses this one: the others may still be taken
            outbox.pass_over(spooled.path)
            event("spool-refused", logging.ERROR, file=spooled.path, why=repr(error))


def _write(spooled: Spooled, outbox: Spool, leases: Leases) -> None:
    claim = spooled.claim
    counted = spooled.ending.write(leases, claim)
    if not counted and not leases.knows(claim.job_id):
        outbox.pass_over(spooled.path)  # of another store with the same namespace, or this one has lost the job
        event("spool-foreign", logging.WARNING, job=claim.job_id, file=spooled.path)
        return
    outbox.drop(spooled.path)
    level = logging.INFO if counted else logging.WARNING  # not counted: another attempt owns the job, or ended it
    event("unspooled", level, job=claim.job_id, ending=type(spooled.ending).__name__, counted=counted)


def _keep(ending: Ending, claim: Claim, outbox: Spool) -> Path | None:
    try:
        return outbox.keep(ending, claim)
    except OSError as error:  # the disk is full: then there is still the next attempt to write it
        event("not-spooled", logging.ERROR, job=claim.job_id, why=str(error))
        return None


def _leave(ending: Ending, claim: Claim, kept: Path | None) -> None:
    if kept is not None:
        event("ending-spooled", logging.WARNING, job=claim.job_id, ending=type(ending).__name__, file=kept)
    else:
        event("ending-lost", logging.ERROR, job=claim.job_id, ending=type(ending).__name__)

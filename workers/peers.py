"""What devices of the same model gave for the same work, asked right before a result is written."""

from __future__ import annotations

import logging

import redis

from dyno.errors import StoreUnavailable
from dyno.measure.regression_band import headline, with_band_check
from dyno.models.result import Headline, Peer, Result, Verdict
from dyno.models.spec import Spec
from dyno.store.leases import Leases
from dyno.workloads.contract import Params
from workers.log import event


def against_peers(result: Result, spec: Spec, params: Params, leases: Leases) -> tuple[Result, Headline | None]:
    """The result with what its peers say of it, and the figure that later ones are held against, if it is to be.

    A Redis that is away costs this check and nothing else; it couldn't have taken the result meanwhile either.
    """
    own = headline(result, spec, params)
    if own is None:
        return result, None
    found = with_band_check(result, own.own, _peers(own.series, result.job, leases))
    return found, own if found.verdict is not Verdict.UNTRUSTED else None


def _peers(series: str, job_id: str, leases: Leases) -> list[Peer] | None:
    try:
        return leases.peers(series)
    except (StoreUnavailable, redis.RedisError) as error:
        event("peers-not-read", logging.WARNING, job=job_id, why=str(error))
        return None

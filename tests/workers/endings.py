"""Helpers for endings: one to write, one that couldn't be written, those in the outbox, and the log before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from dyno.bench.runner.monitor import StopSwitch
from dyno.models.result import Headline, Peer, RunSamples
from dyno.settings import Settings
from dyno.store.eta import ExpectedDuration
from dyno.store.jobs import read_log
from dyno.store.leases import Claim, Leases
from dyno.store.redis import async_client
from tests.results import a_result
from workers.outbox import Outbox, deliver_ending
from workers.outcome import Ending, Succeeded


def succeeded(claim: Claim) -> Succeeded:
    samples = RunSamples(run=0, warmup=[0.5], samples=[0.1, 0.2], sample_cpu_s=[(0.1, 0)], executions_per_sample=3)
    headline = Headline("series", Peer(job=claim.job_id, value=5.0))
    return Succeeded(
        a_result(claim.job_id), [samples], headline, ExpectedDuration("mnist_cnn:tensorflow:cpu/test/1", 2.5)
    )


def given_up(ending: Ending, claim: Claim, nowhere: Leases, spool: Outbox) -> bool:
    """The ending of a worker that must end at once, so that it goes to the outbox."""
    stop = StopSwitch()
    stop.stop(0)
    return deliver_ending(ending, claim, nowhere, spool, stop, time.monotonic)


def endings_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ending"))


def log_of(settings: Settings, job_id: str) -> str:
    """The whole output of the job's runners."""

    async def read() -> str:
        async with async_client(settings) as client:
            return (await read_log(client, settings, job_id)).text

    return asyncio.run(read())

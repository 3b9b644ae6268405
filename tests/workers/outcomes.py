"""Helpers for outcomes: make one, fail to write it, list those in the outbox, and read the log."""

import asyncio
import time

from dyno.bench.runner.monitor import StopSwitch
from dyno.models.result import Headline, Peer, RunSamples
from dyno.store.eta import ExpectedDuration
from dyno.store.jobs import read_log
from dyno.store.redis import async_client
from tests.results import a_result
from workers.outbox import deliver_outcome
from workers.outcome import Succeeded


def succeeded(claim):
    samples = RunSamples(run=0, warmup=[0.5], samples=[0.1, 0.2], sample_cpu_s=[(0.1, 0)], executions_per_sample=3)
    headline = Headline("series", Peer(job=claim.job_id, value=5.0, runs=1))
    return Succeeded(
        a_result(claim.job_id), [samples], headline, ExpectedDuration("mnist_cnn:tensorflow:cpu/test/1", 2.5, "work")
    )


def given_up(outcome, claim, nowhere, outbox):
    """Deliver the outcome of a worker that must end at once, so that it goes to the outbox."""
    stop = StopSwitch()
    stop.stop(0)
    return deliver_outcome(outcome, claim, nowhere, outbox, stop, time.monotonic)


def outcome_files(folder):
    return sorted(folder.glob("*.ending"))


def log_of(settings, job_id):
    """The whole output of the job's runners."""

    async def read():
        async with async_client(settings) as client:
            return (await read_log(client, settings, job_id)).text

    return asyncio.run(read())

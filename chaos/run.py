"""One chaos run: open the rig, inject faults while clients submit jobs, wait until it is idle, end it, and check it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from chaos import clients, leaks
from chaos.checks import QUEUED, RUNNING, Violation, ViolationKind, all_violations
from chaos.clients import JobView, Responses
from chaos.faults import FaultInjector
from chaos.plan import FaultKind, PlannedJob, plan_faults, plan_jobs
from chaos.rig import LEASE_S, READY_S, Rig, say
from chaos.snapshot import Streams, read
from dyno.settings import Durability, Settings
from dyno.store.redis import Keys

KEYS = Keys(Settings.model_fields["namespace"].default)
_AFTER_S = LEASE_S + 5  # a fault has an effect until the last lease has run out and was taken


@dataclass(frozen=True)
class RunConfig:
    """`patience_s`: after the faults, the time limit for responses, and for the next job to end."""

    seed: int
    minutes: float
    jobs: int
    durability: Durability
    patience_s: float
    kinds: Collection[FaultKind] = frozenset(FaultKind)


@dataclass(frozen=True)
class RunRecord:
    """The outcome of a run."""

    config: RunConfig
    responses: Responses
    faults: FaultInjector
    streams: Streams
    violations: Sequence[Violation]
    took_s: float


async def run(config: RunConfig, folder: Path) -> RunRecord:
    """Run with all files in `folder`. All processes of the rig are ended in any case."""
    rig, responses = Rig(folder, config.durability), Responses()
    jobs, faults = plan_jobs(config.seed, config.jobs, 60 * config.minutes, rig.cores), FaultInjector(rig)
    try:
        await rig.open()
        say(f"open; the output of the parts is in {rig.log}")
        begun_s = time.monotonic()
        found, views = await _shake(rig, config, jobs, faults, responses)
        took_s = time.monotonic() - begun_s
        await rig.close_parts()
        with redis.Redis.from_url(rig.server.url, decode_responses=True) as client:
            snapshot = read(client, KEYS)
        found += all_violations(snapshot, responses, views, jobs, faults.effects(_AFTER_S))
        found += [Violation(ViolationKind.HELD, f"{path.name} is locked") for path in leaks.locked(rig.run_dir)]
    finally:
        await rig.close_parts()
        rig.close()
        left = await leaks.in_the_end(rig)
    found += [*left, *(Violation(ViolationKind.ORPHAN, what) for what in faults.survivors)]
    found += [Violation(ViolationKind.DIED, what) for what in [*rig.died, *rig.stuck]]
    return RunRecord(config, responses, faults, snapshot.streams, found, took_s)


async def _shake(
    rig: Rig, config: RunConfig, jobs: Sequence[PlannedJob], faults: FaultInjector, responses: Responses
) -> tuple[list[Violation], dict[str, JobView]]:
    """Inject the faults while clients submit the jobs. Returns the violations at rest, and what the API says then."""
    begun_s, duration_s = time.monotonic(), 60 * config.minutes
    async with asyncio.TaskGroup() as group:
        restarting = group.create_task(rig.restart_dead_parts())
        planned = plan_faults(config.seed, duration_s, config.kinds)
        async with asyncio.TaskGroup() as shaking:
            shaking.create_task(faults.inject_all(planned, begun_s))
            shaking.create_task(_submit(rig, jobs, begun_s, duration_s + config.patience_s, responses))
        found = await _settle(rig, config.patience_s, begun_s)
        views = await clients.read_jobs(rig.url, responses.ids, config.patience_s)
        restarting.cancel()
    return found, views


async def _submit(rig: Rig, jobs: Sequence[PlannedJob], begun_s: float, within_s: float, responses: Responses) -> None:
    with redis.Redis.from_url(rig.server.url, decode_responses=True) as client:
        keys = clients.make_api_keys(client, KEYS)
    try:
        async with asyncio.timeout(within_s):
            await clients.submit_all(rig.url, jobs, begun_s, responses, keys)
    except TimeoutError:
        missing = len(jobs) - len(responses.accepted)
        responses.unexpected.append(f"a request had no response within {within_s:g} s; {missing} jobs aren't accepted")


async def _settle(rig: Rig, patience_s: float, begun_s: float) -> list[Violation]:
    """Wait for the jobs, then look for leftovers, unless jobs remain: these are lost, and parts may work on them."""

    def note(text: str) -> None:
        say(f"{time.monotonic() - begun_s:6.1f} s  {text}")

    unfinished, found = await _rest(rig, patience_s)
    if unfinished:
        note(f"{unfinished} jobs wait or run, and none has ended for {patience_s:g} s")
        return found
    note("no job waits or runs")
    found += await leaks.at_rest(rig, READY_S)
    note("looked for leftovers")
    return found


async def _rest(
    rig: Rig, patience_s: float, clock: Callable[[], float] = time.monotonic
) -> tuple[int, list[Violation]]:
    """Wait until no job waits or runs, as long as jobs still end: a slow machine needs time, a lost job never ends.

    Returns the number of jobs that wait or run after `patience_s` without an end, and the devices leased at rest.
    """
    least, since_s = math.inf, clock()
    with redis.Redis.from_url(rig.server.url, decode_responses=True) as client:
        while True:
            with client.pipeline() as pipeline:
                pipeline.zcard(KEYS.jobs_with_status(QUEUED))
                pipeline.zcard(KEYS.jobs_with_status(RUNNING))
                pipeline.zrange(KEYS.leases, 0, -1)
                queued, running, leased = pipeline.execute()
            unfinished = queued + running
            if not unfinished:
                return 0, [Violation(ViolationKind.HELD, f"{device} is leased at rest") for device in leased]
            if unfinished < least:
                least, since_s = unfinished, clock()
            elif clock() - since_s > patience_s:
                return unfinished, []
            await asyncio.sleep(0.1)

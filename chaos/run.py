"""One chaos run: open the rig, inject faults while clients submit jobs, wait until it is idle, end it, and check it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from chaos import api_keys, remains, views
from chaos.api_keys import ApiKey
from chaos.breach import Breach, Violation
from chaos.calls import Answers, Callers
from chaos.faults import Faults
from chaos.judge import Heard, judged
from chaos.orders import Order, orders, takers
from chaos.rig import LEASE_S, READY_S, Rig, say
from chaos.schedule import Kind, schedule
from chaos.spans import Span
from chaos.streams import Streams
from chaos.table import QUEUED, RUNNING
from dyno.settings import Durability, Settings
from dyno.store.redis import Keys

KEYS = Keys(Settings.model_fields["namespace"].default)
_LINGERS_S = LEASE_S + 5  # a fault has an effect until the last lease has run out and was taken


@dataclass(frozen=True)
class Asked:
    """`patience_s`: after the faults, the time limit for responses and for the jobs to end."""

    seed: int
    minutes: float
    jobs: int
    durability: Durability
    patience_s: float
    kinds: Collection[Kind] = frozenset(Kind)

    @property
    def duration_s(self) -> float:
        return 60 * self.minutes


@dataclass(frozen=True)
class Shaken:
    """The outcome of a run. `takers`: the workers that each job fits."""

    asked: Asked
    answers: Answers
    faults: Faults
    streams: Streams
    takers: Mapping[str, Collection[str]]
    violations: list[Violation]
    took_s: float


async def run(asked: Asked, folder: Path) -> Shaken:
    """Run with all files in `folder`. All processes of the rig are ended in any case."""
    rig, answers = Rig(folder, asked.durability), Answers()
    placed, faults = orders(asked.seed, asked.jobs, asked.duration_s, rig.cores), Faults(rig)
    try:
        await rig.open()
        callers = Callers(rig.url, answers, _made_keys(rig))
        say(f"open; what the parts say is in {rig.log}")
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            minding = group.create_task(rig.mind())
            await _shake(faults, asked, placed, callers, answers, begun_s)
            await rig.mend()
            broken = await _rest(rig, asked.patience_s)
            say(f"{time.monotonic() - begun_s:6.1f} s  no job waits or runs")
            broken += await remains.at_rest(rig, READY_S)
            say(f"{time.monotonic() - begun_s:6.1f} s  looked at what is left over")
            seen = await views.look(rig.url, answers.ids, asked.patience_s)
            minding.cancel()
        took_s = time.monotonic() - begun_s
        await rig.close_parts()
        with redis.Redis.from_url(rig.server.url, decode_responses=True) as client:
            found, more = judged(client, KEYS, Heard(answers, seen, placed, faults.kinds, _felt(faults)))
        more += [Violation(Breach.HELD, f"{path.name} is locked") for path in remains.locked(rig.run_dir)]
    finally:
        await rig.close_parts()
        rig.close()
        left = await remains.in_the_end(rig)
    told = [*broken, *more, *left]
    told += [Violation(Breach.ORPHAN, what) for what in faults.survivors]
    told += [Violation(Breach.DIED, what) for what in [*rig.died, *rig.stuck]]
    return Shaken(asked, answers, faults, found, takers(placed, answers.accepted, rig.devices), told, took_s)


def _made_keys(rig: Rig) -> list[ApiKey]:
    with redis.Redis.from_url(rig.server.url, decode_responses=True) as client:
        return api_keys.make(client, KEYS)


async def _shake(
    faults: Faults, asked: Asked, placed: Sequence[Order], callers: Callers, answers: Answers, begun_s: float
) -> None:
    planned = schedule(asked.seed, asked.duration_s, asked.kinds)
    try:
        async with asyncio.timeout(asked.duration_s + asked.patience_s), asyncio.TaskGroup() as group:
            group.create_task(faults.carry_out(planned, begun_s))
            group.create_task(callers.place(placed, begun_s))
    except TimeoutError:
        unanswered = len(placed) - len(answers.accepted)
        answers.strange.append(f"in the end {unanswered} callers were not answered, or faults were not over")


def _felt(faults: Faults) -> list[Span]:
    return [Span(span.from_s, span.to_s + _LINGERS_S) for _, span in faults.spans]


async def _rest(rig: Rig, within_s: float) -> list[Violation]:
    """Wait until no job waits or runs; jobs that still do at the timeout are lost. No device is leased then."""
    deadline_s = time.monotonic() + within_s
    with redis.Redis.from_url(rig.server.url, decode_responses=True) as client:
        while time.monotonic() < deadline_s:
            with client.pipeline() as pipeline:
                for status in (QUEUED, RUNNING):
                    pipeline.zcard(KEYS.jobs_with_status(status))
                pipeline.zrange(KEYS.leases, 0, -1)
                *unfinished, leased = pipeline.execute()
            if not any(unfinished):
                return [Violation(Breach.HELD, f"{device} was leased at rest") for device in leased]
            await asyncio.sleep(0.1)
    return []

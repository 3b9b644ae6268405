"""One chaos run: open the house, shake it while jobs flow, let it come to rest, end it, and judge what is left."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from chaos import indexes, kin, streams
from chaos.calls import Answers, Callers
from chaos.checker import Breach, Violation, violations
from chaos.faults import GONE_S, Faults
from chaos.house import House, say
from chaos.orders import orders
from chaos.schedule import schedule
from chaos.streams import Streams
from dyno.job import Status
from dyno.settings import Durability, Settings
from dyno.store.keys import Keys

KEYS = Keys(Settings.model_fields["namespace"].default)


@dataclass(frozen=True)
class Asked:
    """`patience_s`: for callers to be answered, and for jobs to end, once the faults are over."""

    seed: int
    minutes: float
    jobs: int
    durability: Durability
    patience_s: float

    @property
    def duration_s(self) -> float:
        return 60 * self.minutes


@dataclass(frozen=True)
class Shaken:
    """All that is known of a run that is over."""

    asked: Asked
    answers: Answers
    faults: Faults
    streams: Streams
    violations: list[Violation]
    took_s: float


async def run(asked: Asked, folder: Path) -> Shaken:
    """Everything is in `folder`. Whatever happens, no process of the house is left."""
    house, answers = House(folder, asked.durability), Answers()
    faults = Faults(house)
    try:
        await house.open()
        say(f"open; what the parts say is in {house.log}")
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            minding = group.create_task(house.mind())
            await _shake(house, faults, asked, answers, begun_s)
            await _rest(house, asked.patience_s)
            minding.cancel()
        took_s = time.monotonic() - begun_s
        await house.close_parts()
        found, broken = _judged(house, answers)
    finally:
        await house.close_parts()
        house.close()
        left = await left_behind(house.name)
    broken += [Violation(Breach.ORPHAN, what) for what in [*faults.survivors, *left]]
    broken += [Violation(Breach.DIED, what) for what in [*house.died, *house.stuck]]
    broken += [Violation(Breach.STRANGE, what) for what in answers.strange]
    return Shaken(asked, answers, faults, found, broken, took_s)


async def _shake(house: House, faults: Faults, asked: Asked, answers: Answers, begun_s: float) -> None:
    placed = orders(asked.seed, asked.jobs, asked.duration_s, house.cores)
    try:
        async with asyncio.timeout(asked.duration_s + asked.patience_s), asyncio.TaskGroup() as group:
            group.create_task(faults.carry_out(schedule(asked.seed, asked.duration_s), begun_s))
            group.create_task(Callers(house.url, answers).place(placed, begun_s))
    except TimeoutError:
        answers.strange.append(f"{len(placed) - len(answers.accepted)} callers were not answered in the end")


async def _rest(house: House, within_s: float) -> None:
    """Until no job waits or runs; whoever still does then is lost."""
    deadline_s = time.monotonic() + within_s
    with redis.Redis.from_url(house.server.url) as client:
        while time.monotonic() < deadline_s:
            unfinished = [client.zcard(KEYS.jobs_with_status(each)) for each in (Status.QUEUED, Status.RUNNING)]
            if not any(unfinished):
                return
            await asyncio.sleep(0.1)


def _judged(house: House, answers: Answers) -> tuple[Streams, list[Violation]]:
    with redis.Redis.from_url(house.server.url, decode_responses=True) as client:
        found, seen = streams.read(client, KEYS), indexes.look(client, KEYS)
    broken = violations(answers.accepted, answers.canceling, found)
    broken += [Violation(Breach.INDEX, what) for what in indexes.mismatches(seen)]
    broken += [
        Violation(Breach.HELD, f"{device} is leased for {lease['job']}") for device, lease in seen.leases.items()
    ]
    return found, broken + [Violation(Breach.HELD, f"{path.name} is locked") for path in locked(house.run_dir)]


def locked(run_dir: Path) -> Iterator[Path]:
    """The devices' locks that somebody still holds."""
    for path in sorted(run_dir.glob("*.lock")):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield path
        finally:
            os.close(descriptor)


async def left_behind(name: str) -> list[str]:
    """The processes of the house that outlived it by GONE_S. They are killed then."""
    deadline_s = time.monotonic() + GONE_S
    while (left := kin.marked(name)) and time.monotonic() < deadline_s:
        await asyncio.sleep(0.1)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return [f"{process.command} outlived the house" for process in left]

"""A real API process over a real Redis: quiet and abused stretches in turns, a steady load, and readers of events."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.load.abuses import ABUSES, connected, raise_file_limit
from benchmarks.load.clients import SUBMIT, Connection, Recorded, Streams, answer, ask, prepared, request
from benchmarks.pairs import percentile
from dyno.store.embedded import EmbeddedServer

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 60
PER_S = {"job": 50.0, "validate": 50.0, "list": 50.0}
CALM_WITHIN_S = 30.0
STEADY_PER_S = {"submit": 300.0, "poll": 500.0}
CONNECTIONS = 8  # for each of the two
READERS, OPENED_PER_S, SUBMITS_PER_S = 1000, 250.0, 4.0
HEARD_WITHIN_S = 10.0
_SUBMITTED = re.compile(rb'"job":"(\w+)".*"event":"submit"')


@dataclass(frozen=True)
class Api:
    process: subprocess.Popen[str]
    port: int

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """Resident, since the last `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def resident_bytes(self) -> int:
        return psutil.Process(self.process.pid).memory_info().rss

    def cpu_s(self) -> float:
        """User and system time so far."""
        return sum(psutil.Process(self.process.pid).cpu_times()[:2])


@contextmanager
def api(**settings: str) -> Iterator[Api]:
    """With the settings of production, but for those given."""
    raise_file_limit()
    foreign = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    with EmbeddedServer() as server:
        own = {"REDIS_URL": server.url, "PORT": "0", "HOST": "127.0.0.1"} | settings
        env = foreign | {f"DYNO_{name}": value for name, value in own.items()}
        command = [sys.executable, "-P", "-m", "service"]
        process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield Api(process, int(process.stdout.readline().rpartition(":")[2]))
            assert process.poll() is None, "the API ended"
        finally:
            process.terminate()
            try:
                process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass
class Measured:
    """Of one abuse: the ordinary clients' records in quiet stretches, and in the abused ones between them.

    `abuser`: what the abuser recorded, without times.
    """

    quiet: list[Recorded] = field(default_factory=list)
    abused: list[Recorded] = field(default_factory=list)
    abuser: Recorded = field(default_factory=Recorded)
    first_bytes: int = 0
    peak_bytes: int = 0
    cpu_share: float = 0.0

    def ratios(self) -> list[float]:
        """Of p99, one for each round, against the quiet on either side of it."""
        quiet = ([before, after] for before, after in itertools.pairwise(self.quiet))
        return [pooled(0.99, [a]) / pooled(0.99, q) for a, q in zip(self.abused, quiet, strict=True)]

    @property
    def ratio(self) -> float:
        return pooled(0.99, self.abused) / pooled(0.99, self.quiet)

    @property
    def asked(self) -> tuple[int, int]:
        """Requests in quiet stretches, and in abused ones."""
        return sum(len(q.all_seconds()) for q in self.quiet), sum(len(a.all_seconds()) for a in self.abused)

    @property
    def broken(self) -> int:
        """Of ordinary clients and abusers together."""
        return sum(one.broken for one in (self.abuser, *self.quiet, *self.abused))

    @property
    def failed(self) -> int:
        """Requests of ordinary clients without an answer of 2xx."""
        every = [*self.quiet, *self.abused]
        wrong = sum(count for one in every for status, count in one.statuses.items() if status >= 300)
        return wrong + sum(one.cut for one in every)


def pooled(share: float, stretches: Sequence[Recorded]) -> float:
    return percentile([each for one in stretches for each in one.all_seconds()], share)


async def measure(api: Api, name: str, rounds: int, stretch_s: float, scale: float = 1.0) -> Measured:
    """`scale`: of the abuse's full size."""
    questions, found = await prepared(api.port), Measured()
    await ask(api.port, questions, PER_S, 1.0)
    for _ in range(rounds):
        found.quiet.append(await ask(api.port, questions, PER_S, stretch_s))
        found.first_bytes = found.first_bytes or api.resident_bytes()
        api.forget_peak()
        with abused(api.port, name, scale, found.abuser):
            before_s = api.cpu_s()
            found.abused.append(await ask(api.port, questions, PER_S, stretch_s))
            found.cpu_share = max(found.cpu_share, (api.cpu_s() - before_s) / stretch_s)
        found.peak_bytes = max(found.peak_bytes, api.peak_bytes())
        await _calm(api)
    found.quiet.append(await ask(api.port, questions, PER_S, stretch_s))
    return found


@contextmanager
def abused(port: int, name: str, scale: float, into: Recorded) -> Iterator[None]:
    """A process of its own abuses the API while the block runs; its record is added to `into` at the end."""
    abuse = ABUSES[name]
    size = [str(max(1, round(abuse.count * scale))), str(max(1.0, abuse.per_s * scale))]
    command = [sys.executable, "-m", "benchmarks.load.abuses", name, str(port), *size]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield
        record = json.loads(process.communicate(timeout=CALM_WITHIN_S)[0])
        into.statuses.update({int(status): count for status, count in record["statuses"].items()})
        into.cut += record["cut"]
        into.broken += record["broken"]
    finally:
        process.kill()
        process.wait()


async def _calm(api: Api) -> None:
    """Until the API has cleared away what the abuser left."""
    deadline_s = time.monotonic() + CALM_WITHIN_S
    while time.monotonic() < deadline_s:
        before_s = api.cpu_s()
        await asyncio.sleep(0.5)
        if api.cpu_s() - before_s < 0.05:
            return


@dataclass(frozen=True)
class Steady:
    """As many submits and polls a second as one API is meant to bear, sent whether or not it keeps up."""

    recorded: Recorded
    for_s: float
    core_share: float

    def seconds(self, name: str) -> list[float]:
        return [each for line, took in self.recorded.seconds.items() if line.startswith(name) for each in took]


async def measure_steady(api: Api, for_s: float) -> Steady:
    asked = {"submit": SUBMIT, "poll": (await prepared(api.port))["job"]}
    every = {f"{name} {line}": asked[name] for name in asked for line in range(CONNECTIONS)}
    before_s = api.cpu_s()
    recorded = await ask(api.port, every, {name: STEADY_PER_S[name.split()[0]] / CONNECTIONS for name in every}, for_s)
    return Steady(recorded, for_s, (api.cpu_s() - before_s) / for_s)


@dataclass
class Fanout:
    """When each job was submitted, and when each reader of all events heard of it."""

    readers: int = 0
    sent_s: dict[str, float] = field(default_factory=dict)
    heard_s: dict[str, list[float]] = field(default_factory=dict)
    grown_bytes: int = 0

    @property
    def delays_s(self) -> list[float]:
        return [heard - sent for job, sent in self.sent_s.items() for heard in self.heard_s.get(job, [])]

    @property
    def missed(self) -> int:
        return self.readers * len(self.sent_s) - len(self.delays_s)


async def measure_fanout(api: Api, for_s: float, readers: int = READERS) -> Fanout:
    found, before_bytes = Fanout(), api.resident_bytes()
    api.forget_peak()
    async with connected(api.port, readers, OPENED_PER_S, request("GET", "/v1/events")) as lines:
        listening = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(_listen(line, listening, found)) for line in lines]
        for _ in tasks:
            await listening.acquire()
        found.readers = len(tasks)
        await _submit(api.port, for_s, found)
        until_s = time.perf_counter() + HEARD_WITHIN_S
        while found.missed and time.perf_counter() < until_s:
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
    found.grown_bytes = api.peak_bytes() - before_bytes
    return found


async def _listen(line: Streams, listening: asyncio.Semaphore, found: Fanout) -> None:
    reader, _ = line
    with contextlib.suppress(EOFError, OSError):
        opening = await answer(reader)
        assert opening.status == 200, opening
        await reader.readuntil(b"\n\n")  # the retry field
        listening.release()
        while event := await reader.readuntil(b"\n\n"):
            if job := _SUBMITTED.search(event):
                found.heard_s.setdefault(job[1].decode(), []).append(time.perf_counter())


async def _submit(port: int, for_s: float, found: Fanout) -> None:
    connection = Connection(port)
    until_s = time.perf_counter() + for_s
    while (sent_s := time.perf_counter()) < until_s:
        found.sent_s[json.loads((await connection.ask(SUBMIT)).body)["id"]] = sent_s
        await asyncio.sleep(1 / SUBMITS_PER_S)
    connection.close()

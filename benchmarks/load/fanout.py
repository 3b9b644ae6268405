"""A thousand readers of all events: how long after a submit was sent each has heard of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from dataclasses import dataclass, field

from benchmarks.load.abuses import Opened, connected
from benchmarks.load.callers import SPEC, percentile
from benchmarks.load.rig import Api
from benchmarks.load.wire import Line, answer, request

READERS, OPENED_PER_S, SUBMITS_PER_S = 1000, 250.0, 4.0
WITHIN_S, MOST_BYTES = 0.250, 100 * 2**20  # the aims: of p99, and of the memory that the readers take
HEARD_WITHIN_S = 10.0
_SUBMITTED = re.compile(rb'"job":"(\w+)".*"event":"submit"')


@dataclass
class Told:
    """`heard_s`: by job, when each reader heard of it."""

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

    def sentence(self) -> str:
        p50, p99 = (f"{1e3 * percentile(self.delays_s, share):.1f} ms" for share in (0.5, 0.99))
        return (
            f"{self.readers:,} readers of all events, {len(self.sent_s)} submits, {SUBMITS_PER_S:g} a second: from a "
            f"submit's sending to a reader's hearing of it p50 {p50}, p99 {p99} (aim: {1e3 * WITHIN_S:g} ms), n = "
            f"{len(self.delays_s):,}; {self.missed} were missed. With them the API's memory grew by "
            f"{self.grown_bytes / 2**20:.0f} MiB at most (aim: {MOST_BYTES / 2**20:.0f})."
        )


async def tell(api: Api, for_s: float, readers: int = READERS) -> Told:
    told, before_bytes = Told(), api.resident_bytes()
    api.forget_peak()
    async with connected(api.port, readers, OPENED_PER_S, request("GET", "/v1/events")) as lines:
        listening = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(_listen(line, listening, told)) for line in lines]
        for _ in tasks:
            await listening.acquire()
        told.readers = len(tasks)
        await _submit(api.port, for_s, told)
        await _all_heard(told)
        for task in tasks:
            task.cancel()
    told.grown_bytes = api.peak_bytes() - before_bytes
    return told


async def _listen(line: Opened, listening: asyncio.Semaphore, told: Told) -> None:
    reader, _ = line
    with contextlib.suppress(EOFError, OSError):
        opening = await answer(reader)
        assert opening.status == 200, opening
        await reader.readuntil(b"\n\n")  # how soon to come back
        listening.release()
        while event := await reader.readuntil(b"\n\n"):
            if found := _SUBMITTED.search(event):
                told.heard_s.setdefault(found[1].decode(), []).append(time.perf_counter())


async def _submit(port: int, for_s: float, told: Told) -> None:
    line, submit = Line(port), request("POST", "/v1/jobs", json.dumps(SPEC).encode())
    until_s = time.perf_counter() + for_s
    while (sent_s := time.perf_counter()) < until_s:
        told.sent_s[json.loads((await line.ask(submit)).body)["id"]] = sent_s
        await asyncio.sleep(1 / SUBMITS_PER_S)
    line.close()


async def _all_heard(told: Told) -> None:
    until_s = time.perf_counter() + HEARD_WITHIN_S
    while told.missed and time.perf_counter() < until_s:
        await asyncio.sleep(0.05)

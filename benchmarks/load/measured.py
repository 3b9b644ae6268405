"""Quiet and abused stretches in turns, so that what drifts meets both alike."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load import callers
from benchmarks.load.abuses import ABUSES, Abuse
from benchmarks.load.callers import Noted, percentile
from benchmarks.load.rig import ROOT, Api

PER_S = {"job": 50.0, "validate": 50.0, "list": 50.0}
CALM_WITHIN_S = 30.0


@dataclass
class Measured:
    """Of one abuse: what ordinary callers noted in quiet stretches, and in the abused ones between them.

    `theirs`: what the abuser was answered; `cut`: how often it was hung up on; `broke`: see `Noted.broken`.
    """

    quiet: list[Noted] = field(default_factory=list)
    abused: list[Noted] = field(default_factory=list)
    theirs: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    broke: int = 0
    first_bytes: int = 0
    peak_bytes: int = 0
    cpu_share: float = 0.0

    def pooled(self, share: float, stretches: list[Noted]) -> float:
        return percentile([each for one in stretches for each in one.all_seconds()], share)

    def ratios(self, share: float = 0.99) -> list[float]:
        """One for each round, against the quiet on either side of it."""
        quiet = [before.all_seconds() + after.all_seconds() for before, after in itertools.pairwise(self.quiet)]
        pairs = zip(self.abused, quiet, strict=True)
        return [percentile(a.all_seconds(), share) / percentile(q, share) for a, q in pairs]

    @property
    def ratio(self) -> float:
        return self.pooled(0.99, self.abused) / self.pooled(0.99, self.quiet)

    @property
    def asked(self) -> tuple[int, int]:
        """So many questions in quiet stretches, and in abused ones."""
        return sum(len(q.all_seconds()) for q in self.quiet), sum(len(a.all_seconds()) for a in self.abused)

    @property
    def broken(self) -> int:
        """Of ordinary callers and abusers together."""
        return self.broke + sum(one.broken for one in (*self.quiet, *self.abused))

    @property
    def failed(self) -> int:
        """What ordinary callers were not answered as they should be."""
        every = [*self.quiet, *self.abused]
        wrong = sum(count for one in every for status, count in one.statuses.items() if status >= 300)
        return wrong + sum(one.cut for one in every)


async def measure(api: Api, name: str, rounds: int, stretch_s: float, scale: float) -> Measured:
    """`scale`: of the full size."""
    questions = await callers.prepared(api.port)
    found, abuse = Measured(), ABUSES[name]
    await callers.ask(api.port, questions, PER_S, 1.0)
    for _ in range(rounds):
        found.quiet.append(await callers.ask(api.port, questions, PER_S, stretch_s))
        found.first_bytes = found.first_bytes or api.resident_bytes()
        api.forget_peak()
        with abused(api.port, name, abuse, scale) as abuser:
            before_s = api.cpu_s()
            found.abused.append(await callers.ask(api.port, questions, PER_S, stretch_s))
            found.cpu_share = max(found.cpu_share, (api.cpu_s() - before_s) / stretch_s)
        _add(found, json.loads(abuser.said))
        found.peak_bytes = max(found.peak_bytes, api.peak_bytes())
        await _calm(api)
    found.quiet.append(await callers.ask(api.port, questions, PER_S, stretch_s))
    return found


@dataclass
class Abuser:
    said: str = ""


@contextmanager
def abused(port: int, name: str, abuse: Abuse, scale: float) -> Iterator[Abuser]:
    """A process of its own abuses the API for as long as the block runs; what it says in the end is in `said` then."""
    size = [str(max(1, round(abuse.count * scale))), str(max(1.0, abuse.per_s * scale))]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.load.abuser", name, str(port), *size],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    abuser = Abuser()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield abuser
        abuser.said, _ = process.communicate(timeout=CALM_WITHIN_S)
    finally:
        process.kill()
        process.wait()


def _add(found: Measured, theirs: Mapping[str, Any]) -> None:
    found.theirs.update(theirs["statuses"])
    found.cut += theirs["cut"]
    found.broke += theirs["broken"]


async def _calm(api: Api) -> None:
    """Until the API has little to do: what the abuser left is cleared away."""
    deadline_s = time.monotonic() + CALM_WITHIN_S
    while time.monotonic() < deadline_s:
        before_s = api.cpu_s()
        await asyncio.sleep(0.5)
        if api.cpu_s() - before_s < 0.05:
            return

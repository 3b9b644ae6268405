"""As many submits and polls a second as one API is meant to bear: they are asked whether or not it keeps up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.load import callers
from benchmarks.load.callers import SPEC, Noted, percentile
from benchmarks.load.rig import Api
from benchmarks.load.wire import request

PER_S = {"submit": 300.0, "poll": 500.0}
WITHIN_S = {"submit": 0.050, "poll": 0.030}  # the aims for p99
LINES = 8  # connections for each of the two


@dataclass(frozen=True)
class Steady:
    noted: Noted
    for_s: float
    core_share: float

    def seconds(self, name: str) -> list[float]:
        return [each for line, took in self.noted.seconds.items() if line.startswith(name) for each in took]

    def rows(self) -> list[tuple[str, ...]]:
        return [self._row(name, rate) for name, rate in PER_S.items()]

    def _row(self, name: str, rate: float) -> tuple[str, ...]:
        took = self.seconds(name)
        answered = f"{len(took) / self.for_s:.0f}"
        shares = (f"{1e3 * percentile(took, share):.2f}" for share in (0.5, 0.99))
        return (name, f"{rate:g}", answered, *shares, f"{1e3 * WITHIN_S[name]:g}", f"{len(took):,}")


async def bear(api: Api, for_s: float) -> Steady:
    questions = await callers.prepared(api.port)
    asked = {"submit": request("POST", "/v1/jobs", json.dumps(SPEC).encode()), "poll": questions["job"]}
    every: Mapping[str, bytes] = {f"{name} {line}": asked[name] for name in asked for line in range(LINES)}
    before_s = api.cpu_s()
    noted = await callers.ask(api.port, every, {name: PER_S[name.split()[0]] / LINES for name in every}, for_s)
    return Steady(noted, for_s, (api.cpu_s() - before_s) / for_s)

"""When waiting jobs are likely to be claimed, from what past jobs took: looked at for all of them at once.

One look serves everybody for a second, so it costs the same however many ask. It reads the first jobs in line only,
in seven questions to Redis. Nothing rests on a forecast: where none can be made, it is empty.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import redis.asyncio

from dyno.devices.device import Device
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.fitting import profile
from dyno.store.fleet import takers
from dyno.store.keys import Keys
from dyno.store.line import InLine, Line, Running, read_line
from dyno.store.paces import KEPT, Reading, likely_s, readings_of, series_of
from dyno.store.queues import queues_served
from dyno.store.records import read_spec
from dyno.store.standing import Forecast, Serving
from dyno.store.turns import Waiting, play

FORECAST_FRESH_S = 1.0
MAX_FORECAST_JOBS = 300
_MOST_PAIRS = 5_000  # of a job and a device
FORECAST_TIMEOUT_S = 1.0  # whoever is told of a job is not to wait for its forecast

# Seconds that a job is to have the device by its workload's estimate; null where it can't run there.
Estimate = Callable[[Spec, Device], float | None]
Pair = tuple[str, str]  # a stored spec, and the full id of a device

log = logging.getLogger(__name__)


class _Need(NamedTuple):
    """What a job needs of a device, before anything learned."""

    series: str
    expected_s: float


class Forecasts:
    """One for an API process. `clock` in seconds."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        settings: Settings,
        estimate: Estimate,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._settings, self._keys = client, settings, Keys(settings.namespace)
        self._estimate, self._clock = estimate, clock
        self._needs: dict[tuple[str, str], _Need | None] = {}  # by spec and device, of the last look
        self._latest, self._looked_s, self._failing = Forecast(), -math.inf, False
        self._looking = asyncio.Lock()

    async def latest(self) -> Forecast:
        """At most FORECAST_FRESH_S old; empty where it can't be made."""
        if self._clock() - self._looked_s <= FORECAST_FRESH_S:
            return self._latest
        async with self._looking:
            if self._clock() - self._looked_s > FORECAST_FRESH_S:
                self._latest = await self._attempted()
                self._looked_s = self._clock()
        return self._latest

    async def _attempted(self) -> Forecast:
        try:
            async with asyncio.timeout(FORECAST_TIMEOUT_S):
                found = await self._look()
        except Exception as error:
            if not self._failing:
                log.warning("no forecast of when jobs are claimed: %s", error, exc_info=True)
            self._failing = True
            return Forecast()
        self._failing = False
        return found

    async def _look(self) -> Forecast:
        taking = await takers(self._client, self._settings)
        devices = {device.full_id: device for device, _ in taking}
        held = {device.full_id for device, is_held in taking if is_held}
        if not devices:
            return Forecast()
        serving: dict[str, list[str]] = defaultdict(list)
        for name, device in devices.items():
            for queue in queues_served(device):
                serving[queue].append(name)
        most = min(MAX_FORECAST_JOBS, max(1, _MOST_PAIRS // len(devices)))
        line = await read_line(self._client, self._keys, serving, most)
        pairs = [(job.spec, name) for job in line.jobs for name in serving[job.queue]]
        pairs += [(running.spec, name) for name, running in line.running.items() if name in devices]
        needs = await asyncio.to_thread(self._needed, pairs, devices)
        takes = await self._learned(needs)
        waiting = [Waiting(job.id, _of(job, serving[job.queue], takes)) for job in line.jobs]
        rests = {name: None if name in held else _rest_s(line.running.get(name), name, takes) for name in devices}
        starts_s, free_s = play(waiting, rests)
        of_devices = {name: Serving(profile(device), free_s[name]) for name, device in devices.items()}
        by_queue = {queue: [of_devices[name] for name in names] for queue, names in serving.items()}
        return Forecast(starts_s, _by_queue(line), by_queue, line.longer)

    def _needed(self, pairs: Sequence[Pair], devices: Mapping[str, Device]) -> dict[Pair, _Need | None]:
        """What was estimated for the last look isn't estimated again."""
        described = {name: device.model_dump_json(exclude={"id", "host"}) for name, device in devices.items()}
        found: dict[tuple[str, str], _Need | None] = {}
        for spec, name in set(pairs):
            known = (spec, described[name])
            if known not in found:
                found[known] = self._needs[known] if known in self._needs else self._need(spec, devices[name])
        self._needs = found
        return {(spec, name): found[spec, described[name]] for spec, name in pairs}

    def _need(self, text: str, device: Device) -> _Need | None:
        try:
            spec = read_spec(text)
            expected_s = self._estimate(spec, device)
        except Exception as error:  # noqa: BLE001 - of an unreadable spec, or a fault of its workload's
            log.warning("what a job that waits needs isn't known: %s: %s", type(error).__name__, error)
            return None
        return None if expected_s is None else _Need(series_of(spec, device), expected_s)

    async def _learned(self, needs: Mapping[Pair, _Need | None]) -> dict[Pair, float | None]:
        """What takes how long on which device, without what can't run there; null where too little is known."""
        names = sorted({need.series for need in needs.values() if need})
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.lrange(self._keys.paces(name), 0, KEPT - 1)
                texts: list[Any] = await pipeline.execute()
        readings: dict[str, list[Reading]] = {name: readings_of(t) for name, t in zip(names, texts, strict=True)}
        return {pair: likely_s(readings[need.series], need.expected_s) for pair, need in needs.items() if need}


def _of(job: InLine, serving: Sequence[str], takes: Mapping[Pair, float | None]) -> dict[str, float | None]:
    return {name: takes[job.spec, name] for name in serving if (job.spec, name) in takes}


def _rest_s(running: Running | None, device: str, takes: Mapping[Pair, float | None]) -> float | None:
    """Until the device is free. Of a job that takes longer than others did, its own progress tells."""
    if running is None:
        return 0.0
    takes_s = takes.get((running.spec, device))
    if takes_s is not None and takes_s > running.elapsed_s:
        return takes_s - running.elapsed_s
    return running.eta_s


def _by_queue(line: Line) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for job in line.jobs:
        found[job.queue].append(job.id)
    return found

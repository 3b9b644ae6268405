"""Queue positions and ETAs of waiting jobs, from the durations of past jobs and a simulation of the claims to come.

`finish.lua` records how long a job took beside its workload's estimate: one bounded series per workload and class of
device, of jobs that succeeded only. A forecast reads the first jobs of the queues in seven round trips, and plays
through in which order devices will claim them. It is shared by all requests for a second, so its cost doesn't grow
with their number. Nothing depends on a forecast: where none can be made, it is empty.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import redis.asyncio
from pydantic_core import from_json

from dyno.devices.device import Device
from dyno.errors import StoreUnavailable
from dyno.models.job import SCHEMA, Status
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.fleet import accepting_devices
from dyno.store.placement import model_slug, profile, queues_served
from dyno.store.records import QueueState, read_spec
from dyno.store.redis import Keys, store_errors

DURATIONS_KEPT = 20  # newest readings, `PACES_KEPT` of finish.lua: what a device was like long ago fades out
MIN_DURATIONS = 3  # readings that a median needs to withstand one that is far off
_SIMILAR_FACTOR = 2.0  # of about as much work: within this factor of each other's estimate


@dataclass(frozen=True)
class ExpectedDuration:
    """What a worker says of a job that succeeded: the series, and the seconds that were estimated for it there."""

    series: str
    expected_s: float


class DurationReading(NamedTuple):
    """One job: the estimate of its workload, and the time from its claim to its end."""

    expected_s: float
    took_s: float


def duration_series(spec: Spec, device: Device) -> str:
    """Devices of one model share it. CPUs only with as many cores: what isn't parallel takes its time on any number."""
    cores = f"/{len(device.cores)}" if device.driven_as == "cpu" else ""
    return f"{spec.workload}:{spec.framework}:{device.kind}/{model_slug(device.model)}{cores}"


def parse_durations(texts: Sequence[str]) -> list[DurationReading]:
    """Stored ones, without those that can't be read."""
    found = []
    for text in texts:
        try:
            expected_s, took_s = map(float, text.split(" "))
        except ValueError:
            continue
        if 0 < expected_s < math.inf and 0 <= took_s < math.inf:
            found.append(DurationReading(expected_s, took_s))
    return found


def likely_duration_s(readings: Sequence[DurationReading], expected_s: float) -> float | None:
    """How long a job takes of which its workload estimates `expected_s`; null below MIN_DURATIONS readings.

    The estimate times the median of how far the readings were off theirs: of those of about as much work, where there
    are MIN_DURATIONS of them, since a small job's start weighs more; else of all.
    """
    if len(readings) < MIN_DURATIONS:
        return None
    alike = [
        each for each in readings if expected_s / _SIMILAR_FACTOR <= each.expected_s <= expected_s * _SIMILAR_FACTOR
    ]
    chosen = alike if len(alike) >= MIN_DURATIONS else readings
    return expected_s * median(each.took_s / each.expected_s for each in chosen)


@dataclass(frozen=True)
class WaitingJob:
    """A job in line. `takes_s`: seconds on each device that would take it; null where they aren't known."""

    id: str
    takes_s: Mapping[str, float | None]


class SimulatedClaims(NamedTuple):
    """`starts_s`: until each job is claimed, by its id. `free_s`: until each device is free for one that comes now.

    Null where it isn't known: of a job that no device takes, and behind jobs of which nothing is known.
    """

    starts_s: dict[str, float | None]
    free_s: dict[str, float | None]


def simulate_claims(waiting: Iterable[WaitingJob], rests_s: Mapping[str, float | None]) -> SimulatedClaims:
    """Let each job, given in the order of claims, be claimed by the first device that is free for it.

    `rests_s`: until each device is free of what it runs, 0 where it is; null where that isn't known.
    """
    free_s = {device: math.inf if rest_s is None else rest_s for device, rest_s in rests_s.items()}
    found: dict[str, float | None] = {}
    for job in waiting:
        device = min(job.takes_s, key=free_s.__getitem__, default=None)
        if device is None:
            found[job.id] = None
            continue
        begins_s, takes_s = free_s[device], job.takes_s[device]
        found[job.id] = _finite(begins_s)
        free_s[device] = math.inf if takes_s is None else begins_s + takes_s
    return SimulatedClaims(found, {device: _finite(time_s) for device, time_s in free_s.items()})


def _finite(time_s: float) -> float | None:
    return time_s if math.isfinite(time_s) else None


class QueuedJob(NamedTuple):
    """A job that waits; `spec` as it is stored, empty where it is of a schema that no worker of this version takes."""

    id: str
    queue: str
    spec: str


class RunningJob(NamedTuple):
    """A job that has its device since `elapsed_s`; `eta_s` is what its own progress tells."""

    spec: str
    elapsed_s: float
    eta_s: float | None


@dataclass(frozen=True)
class QueueSnapshot:
    """`longer`: the queues that hold more jobs than are in `jobs`. `running` by device."""

    jobs: Sequence[QueuedJob]
    longer: Collection[str]
    running: Mapping[str, RunningJob]


async def read_queue_snapshot(
    client: redis.asyncio.Redis, keys: Keys, served: Collection[str], most: int
) -> QueueSnapshot:
    """The first `most` jobs over the queues that are `served`, and all that run. Raises StoreUnavailable."""
    with store_errors():
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.smembers(keys.queues)
            pipeline.zrange(keys.jobs_with_status(Status.RUNNING), 0, -1)
            named, running = await pipeline.execute()
        queues = sorted({str(name) for name in named} & set(served))
        async with client.pipeline(transaction=False) as pipeline:
            for queue in queues:
                pipeline.zrange(keys.queue(queue), 0, most - 1, withscores=True)
                pipeline.zcard(keys.queue(queue))
            for job_id in running:
                pipeline.hmget(keys.job(job_id), "device", "spec", "started_at", "progress")
            pipeline.time()
            *replies, (seconds, micros) = await pipeline.execute()
        fronts, lengths = replies[: 2 * len(queues) : 2], replies[1 : 2 * len(queues) : 2]
        line = sorted((score, job, queue) for queue, front in zip(queues, fronts, strict=True) for job, score in front)
        specs = await _specs(client, keys, [job for _, job, _ in line[:most]])
    jobs = [QueuedJob(job, queue, spec) for (_, job, queue), spec in zip(line[:most], specs, strict=True)]
    seen = [job.queue for job in jobs]
    longer = {queue for queue, length in zip(queues, lengths, strict=True) if length > seen.count(queue)}
    return QueueSnapshot(jobs, longer, dict(_running(replies[2 * len(queues) :], seconds + micros / 1e6)))


async def _specs(client: redis.asyncio.Redis, keys: Keys, job_ids: Sequence[str]) -> list[str]:
    async with client.pipeline(transaction=False) as pipeline:
        for job_id in job_ids:
            pipeline.hmget(keys.job(job_id), "spec", "schema")
        records: list[Any] = await pipeline.execute()
    return [spec if spec and int(schema or 0) <= SCHEMA else "" for spec, schema in records]


def _running(records: Sequence[Any], now_s: float) -> Iterator[tuple[str, RunningJob]]:
    for device, spec, started_at, progress in records:
        if device and spec and started_at:  # else it has ended since
            told = from_json(progress) if progress else {}
            yield device, RunningJob(spec, max(0.0, now_s - float(started_at)), told.get("eta_s"))


class ServingDevice(NamedTuple):
    """A device that serves a queue: its profile, and in how many seconds it is free for a job behind all others."""

    profile: str
    free_s: float | None


@dataclass(frozen=True)
class Forecast:
    """When waiting jobs are likely to be claimed; see `dyno.store.eta`. Empty where nothing is known.

    `starts_s`: by job, of those that were looked at. By queue, `line`: these jobs in their order; `serving`: the
    devices that take its jobs. `longer`: the queues with more jobs than were looked at.
    """

    starts_s: Mapping[str, float | None] = field(default_factory=dict)
    line: Mapping[str, Sequence[str]] = field(default_factory=dict)
    serving: Mapping[str, Sequence[ServingDevice]] = field(default_factory=dict)
    longer: Collection[str] = ()

    def eta_s(
        self, job_id: str, queue: str, position: int | None, running: Collection[str] = (), fits: str = ""
    ) -> float | None:
        """Seconds until a queued job starts; None if unknown. `fits`: of its record, see `dyno.store.placement`.

        A job queued after the forecast starts when the forecast's job at its position would, or the next one; jobs of
        the forecast that are `running` now are left out. Beyond the forecast's last job, the time grows in proportion
        to the position.
        """
        if job_id in self.starts_s:
            return self.starts_s[job_id]
        takers = [each for each in self.serving.get(queue, ()) if f"{each.profile}-" not in fits]
        if position is None or not takers:
            return None
        line = self.line.get(queue, ())
        turns_s = [self.starts_s[each] for each in line]
        position += len(set(line).intersection(running))
        if position < len(turns_s):
            return turns_s[position]
        if queue not in self.longer:
            return min((each.free_s for each in takers if each.free_s is not None), default=None)
        last_s = turns_s[-1] if turns_s else None
        return None if last_s is None else last_s * (position + 1) / len(turns_s)


GetForecast = Callable[[], Awaitable[Forecast]]


async def no_forecast() -> Forecast:
    return Forecast()


async def queue_states(
    client: redis.asyncio.Redis, keys: Keys, records: Sequence[Mapping[str, str]], foresee: GetForecast
) -> dict[str, QueueState]:
    """Of those records that wait, by job id, in one question and what `foresee` asks. Raises StoreUnavailable."""
    waiting = {
        record["id"]: record
        for record in records
        if record.get("status") == Status.QUEUED and {"id", "queue"} <= record.keys()
    }
    if not waiting:
        return {}
    queues = sorted({record["queue"] for record in waiting.values()})
    with store_errors():
        async with client.pipeline(transaction=False) as pipeline:
            for job_id, record in waiting.items():
                pipeline.zrank(keys.queue(record["queue"]), job_id)
                pipeline.zscore(keys.queue(record["queue"]), job_id)
            for queue in queues:
                pipeline.hvals(keys.passed(queue))
            _running_jobs(pipeline, keys)
            *replies, running = await pipeline.execute()
    forecast = await foresee()
    of_jobs, of_queues = replies[: 2 * len(waiting)], replies[2 * len(waiting) :]
    reached = {queue: max(map(float, scores), default=None) for queue, scores in zip(queues, of_queues, strict=True)}
    return {
        job_id: QueueState(
            position, _is_passed(score, reached[record["queue"]]), _eta_s(forecast, record, position, running)
        )
        for (job_id, record), position, score in zip(waiting.items(), of_jobs[::2], of_jobs[1::2], strict=True)
    }


async def new_queue_state(
    client: redis.asyncio.Redis, keys: Keys, record: Mapping[str, str], position: int | None, foresee: GetForecast
) -> QueueState:
    """Of a job that has just been queued at that place, null where it doesn't wait."""
    if position is None:
        return QueueState()
    try:
        with store_errors():
            running = await _running_jobs(client, keys)
    except StoreUnavailable:  # it is queued all the same, and its caller is to hear of that
        return QueueState(position)
    return QueueState(position, eta_s=_eta_s(await foresee(), record, position, running))


def _running_jobs(client: redis.asyncio.Redis, keys: Keys) -> Any:
    return client.zrange(keys.jobs_with_status(Status.RUNNING), 0, -1)


def _eta_s(
    forecast: Forecast, record: Mapping[str, str], position: int | None, running: Collection[str]
) -> float | None:
    return forecast.eta_s(record["id"], record["queue"], position, running, record.get("fits", ""))


def _is_passed(score: float | None, reached: float | None) -> bool:
    return score is not None and reached is not None and score <= reached


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
        taking = await accepting_devices(self._client, self._settings)
        devices = {device.full_id: device for device, _ in taking}
        held = {device.full_id for device, is_held in taking if is_held}
        if not devices:
            return Forecast()
        serving: dict[str, list[str]] = defaultdict(list)
        for name, device in devices.items():
            for queue in queues_served(device):
                serving[queue].append(name)
        most = min(MAX_FORECAST_JOBS, max(1, _MOST_PAIRS // len(devices)))
        line = await read_queue_snapshot(self._client, self._keys, serving, most)
        pairs = [(job.spec, name) for job in line.jobs for name in serving[job.queue]]
        pairs += [(running.spec, name) for name, running in line.running.items() if name in devices]
        needs = await asyncio.to_thread(self._needed, pairs, devices)
        takes = await self._learned(needs)
        waiting = [WaitingJob(job.id, _durations_by_device(job, serving[job.queue], takes)) for job in line.jobs]
        rests = {name: None if name in held else _remaining_s(line.running.get(name), name, takes) for name in devices}
        starts_s, free_s = simulate_claims(waiting, rests)
        of_devices = {name: ServingDevice(profile(device), free_s[name]) for name, device in devices.items()}
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
        return None if expected_s is None else _Need(duration_series(spec, device), expected_s)

    async def _learned(self, needs: Mapping[Pair, _Need | None]) -> dict[Pair, float | None]:
        """What takes how long on which device, without what can't run there; null where too little is known."""
        names = sorted({need.series for need in needs.values() if need})
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.lrange(self._keys.paces(name), 0, DURATIONS_KEPT - 1)
                texts: list[Any] = await pipeline.execute()
        readings: dict[str, list[DurationReading]] = {
            name: parse_durations(t) for name, t in zip(names, texts, strict=True)
        }
        return {pair: likely_duration_s(readings[need.series], need.expected_s) for pair, need in needs.items() if need}


def _durations_by_device(
    job: QueuedJob, serving: Sequence[str], takes: Mapping[Pair, float | None]
) -> dict[str, float | None]:
    return {name: takes[job.spec, name] for name in serving if (job.spec, name) in takes}


def _remaining_s(running: RunningJob | None, device: str, takes: Mapping[Pair, float | None]) -> float | None:
    """Until the device is free. Of a job that takes longer than others did, its own progress tells."""
    if running is None:
        return 0.0
    takes_s = takes.get((running.spec, device))
    if takes_s is not None and takes_s > running.elapsed_s:
        return takes_s - running.elapsed_s
    return running.eta_s


def _by_queue(line: QueueSnapshot) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for job in line.jobs:
        found[job.queue].append(job.id)
    return found

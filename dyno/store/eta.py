"""Queue positions and ETAs of waiting jobs, from the durations of past jobs and a simulation of future claims.

For each job that succeeds, `finish.lua` records its duration and its workload's estimate, in one bounded series per
workload, framework and device class. A forecast reads the first jobs of the queues in seven round trips and simulates
the order in which devices will claim them. All requests share one forecast for a second, or until a job runs that the
forecast lacks, so more requests don't cost more forecasts. If a forecast can't be made, it is empty.
"""

import asyncio
import hashlib
import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple

import redis.asyncio
from pydantic_core import from_json, to_json

from dyno.models.device import Device, model_slug
from dyno.models.job import SCHEMA, Status
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.fleet import accepting_devices
from dyno.store.placement import profile, queues_served
from dyno.store.records import QueueState, read_spec
from dyno.store.redis import Keys, pipelined, store_errors

DURATIONS_KEPT = 60  # newest readings, as `PACES_KEPT` of finish.lua; old readings of a device drop out
MIN_DURATIONS = 3  # readings; with fewer, one outlier would decide the median
_EQUAL_KEPT = 5  # newest readings of equal work
_WORK_DIGITS = 12
_OVERDUE_S = 0.5  # assumed remaining time of a running job that should have ended already
PRIORITY_STEP = 2**50  # distance between the scores of priority classes, as in _ledger.lua
_SIMILAR = math.log(2)  # jobs are of similar size if their estimates are within a factor of 2 of each other


@dataclass(frozen=True)
class ExpectedDuration:
    """The series of a job's duration, the workload's estimate of the duration, and a digest of the work
    (`work_digest`)."""

    series: str
    expected_s: float
    work: str

    @property
    def reading(self) -> str:
        """The first part of the stored reading; `finish.lua` adds the actual duration."""
        return f"{self.work} {self.expected_s}"


class DurationReading(NamedTuple):
    """The estimated and actual duration of one job; the actual one is the time from its claim to its end."""

    expected_s: float
    took_s: float
    work: str


def duration_series(spec: Spec, device: Device) -> str:
    """The name of the series. Devices of one model share a series. CPUs share it only if they also have the same number
    of cores, since serial work isn't faster with more cores."""
    cores = f"/{len(device.cores)}" if device.driven_as == "cpu" else ""
    return f"{spec.workload}:{spec.framework}:{device.kind}/{model_slug(device.model)}{cores}"


def work_digest(spec: Spec) -> str:
    """A digest of what determines a job's duration within a series: params, replicas and settings of each arm."""
    arms = [(arm.workload, arm.framework, arm.replicas, sorted(arm.params.items()), arm.measure) for arm in spec.arms]
    return hashlib.sha256(to_json(arms)).hexdigest()[:_WORK_DIGITS]


def parse_durations(texts: Sequence[str]) -> list[DurationReading]:
    """Parse stored readings and skip invalid ones."""
    readings = []
    for text in texts:
        try:
            work, expected, took = text.split(" ")
            expected_s, took_s = float(expected), float(took)
        except ValueError:
            continue
        if 0 < expected_s < math.inf and 0 <= took_s < math.inf:
            readings.append(DurationReading(expected_s, took_s, work))
    return readings


def likely_duration_s(readings: Sequence[DurationReading], expected_s: float, work: str) -> float | None:
    """The likely duration of a job whose workload estimates `expected_s`. `readings`: newest first.

    It is the median duration of the last jobs of equal work, if there are any. Otherwise it is the estimate times the
    median ratio of actual to estimated duration over the readings of similar size, because startup takes a larger share
    of small jobs. If fewer than MIN_DURATIONS readings are similar, the readings with the nearest estimates are used.
    None if there are fewer readings in all.
    """
    equal = [reading.took_s for reading in readings if reading.work == work][:_EQUAL_KEPT]
    if equal:
        return median(equal)
    if len(readings) < MIN_DURATIONS:
        return None
    apart = [
        (abs(math.log(reading.expected_s / expected_s)), reading.took_s / reading.expected_s) for reading in readings
    ]
    apart.sort(key=lambda pair: pair[0])
    alike = sum(distance <= _SIMILAR for distance, _ in apart)
    return expected_s * median(ratio for _, ratio in apart[: max(alike, MIN_DURATIONS)])


def read_likely_duration_s(client: redis.Redis, keys: Keys, expected: ExpectedDuration) -> float | None:
    """`likely_duration_s` for a worker. Raises StoreUnavailable or redis.ResponseError."""
    with store_errors():
        texts: Any = client.lrange(keys.paces(expected.series), 0, DURATIONS_KEPT - 1)
    return likely_duration_s(parse_durations(texts), expected.expected_s, expected.work)


@dataclass(frozen=True)
class WaitingJob:
    """A queued job. `takes_s`: its duration in seconds on each device that it fits; None if unknown."""

    id: str
    takes_s: Mapping[str, float | None]


class SimulatedClaims(NamedTuple):
    """`starts_s`: seconds until each job is claimed, by job id. `free_s`: seconds until each device is free for a new
    job. `ends_s`: seconds until each job is done.

    A time is None if it is unknown: for jobs that fit no device, and after jobs of unknown duration.
    """

    starts_s: dict[str, float | None]
    free_s: dict[str, float | None]
    ends_s: dict[str, float | None]


def simulate_claims(waiting: Iterable[WaitingJob], rests_s: Mapping[str, float | None]) -> SimulatedClaims:
    """Assign each job, in claim order, to the first free device that it fits.

    `rests_s`: seconds until each device has finished its current job; 0 if it is idle, None if unknown.
    """
    free_s = {device: math.inf if rest_s is None else rest_s for device, rest_s in rests_s.items()}
    starts_s: dict[str, float | None] = {}
    ends_s: dict[str, float | None] = {}
    for job in waiting:
        device = min(job.takes_s, key=free_s.__getitem__, default=None)
        if device is None:
            starts_s[job.id] = ends_s[job.id] = None
            continue
        begins_s, takes_s = free_s[device], job.takes_s[device]
        starts_s[job.id] = _finite(begins_s)
        free_s[device] = math.inf if takes_s is None else begins_s + takes_s
        ends_s[job.id] = _finite(free_s[device])
    return SimulatedClaims(starts_s, {device: _finite(time_s) for device, time_s in free_s.items()}, ends_s)


def _finite(time_s: float) -> float | None:
    return time_s if math.isfinite(time_s) else None


class QueuedJob(NamedTuple):
    """A waiting job. `spec`: as stored; empty if its schema is newer than this version supports."""

    id: str
    queue: str
    spec: str


class RunningJob(NamedTuple):
    """A job that has had its device for `elapsed_s` seconds.

    `eta_s`: the remaining time by the last progress report, which was made `reported_s` after the start. None before
    the first report, and while the remaining time is unknown.
    """

    spec: str
    elapsed_s: float
    eta_s: float | None = None
    reported_s: float | None = None

    @property
    def rest_s(self) -> float | None:
        """The remaining time from now, by the job's progress report."""
        if self.eta_s is None or self.reported_s is None:
            return None
        return max(self.eta_s - (self.elapsed_s - self.reported_s), _OVERDUE_S)


@dataclass(frozen=True)
class QueueSnapshot:
    """`longer`: queues with more jobs than `jobs` has. `running`: by device. `running_ids`: of all running jobs."""

    jobs: Sequence[QueuedJob]
    longer: Collection[str]
    running: Mapping[str, RunningJob]
    running_ids: Collection[str]


async def read_queue_snapshot(
    client: redis.asyncio.Redis, keys: Keys, served: Collection[str], most: int
) -> QueueSnapshot:
    """The first `most` jobs over all `served` queues, and all running jobs. Raises StoreUnavailable."""
    with store_errors():
        lists = [("smembers", keys.queues), ("zrange", keys.jobs_with_status(Status.RUNNING), 0, -1)]
        queue_names, running = await pipelined(client, lists)
        queues = sorted({str(name) for name in queue_names} & set(served))
        async with client.pipeline(transaction=False) as pipeline:
            for queue in queues:
                pipeline.zrange(keys.queue(queue), 0, most - 1, withscores=True)
                pipeline.zcard(keys.queue(queue))
            for job_id in running:
                pipeline.hmget(keys.job(job_id), "device", "spec", "started_at", "progress")
            pipeline.time()
            *replies, (seconds, micros) = await pipeline.execute()
        fronts, lengths = (replies[part : 2 * len(queues) : 2] for part in range(2))
        line = _merged(dict(zip(queues, fronts, strict=True)))[:most]
        records = await pipelined(client, [("hmget", keys.job(job), "spec", "schema") for job, _ in line])
    specs = [spec if spec and int(schema or 0) <= SCHEMA else "" for spec, schema in records]
    jobs = [QueuedJob(job, queue, spec) for (job, queue), spec in zip(line, specs, strict=True)]
    seen = [job.queue for job in jobs]
    longer = {queue for queue, length in zip(queues, lengths, strict=True) if length > seen.count(queue)}
    running_jobs = dict(_running(replies[2 * len(queues) :], seconds + micros / 1e6))
    return QueueSnapshot(jobs, longer, running_jobs, frozenset(running))


def _merged(fronts: Mapping[str, Sequence[tuple[str, float]]]) -> list[tuple[str, str]]:
    """The jobs with their queues, in claim order: by priority, then by age. Jobs of one queue keep its order.

    claim.lua also lets keys take turns over queues, which changes the order only within a priority.
    """
    lines = {queue: deque(front) for queue, front in fronts.items() if front}
    jobs = list[tuple[str, str]]()
    while lines:
        queue = min(lines, key=lambda name: (lines[name][0][1] // PRIORITY_STEP, lines[name][0][0]))
        jobs.append((lines[queue].popleft()[0], queue))
        if not lines[queue]:
            del lines[queue]
    return jobs


def _running(records: Sequence[Any], now_s: float) -> Iterator[tuple[str, RunningJob]]:
    for device, spec, started_at, progress in records:
        if device and spec and started_at:  # else the job has ended since
            reported = from_json(progress) if progress else {}
            elapsed_s = max(0.0, now_s - float(started_at))
            yield device, RunningJob(spec, elapsed_s, reported.get("eta_s"), reported.get("elapsed_s"))


class ServingDevice(NamedTuple):
    """A device that serves a queue: its profile, and the seconds until it has done its jobs of the snapshot."""

    profile: str
    free_s: float | None


@dataclass(frozen=True)
class Forecast:
    """When waiting jobs are likely to be claimed; see `dyno.store.eta`. Empty if no forecast could be made.

    `starts_s`: seconds until the start of each job in the snapshot, by job id. `line`: these jobs in claim order, by
    queue. `serving`: the devices that serve each queue. `longer`: the queues with jobs beyond the snapshot. `running`:
    the running jobs of the snapshot. `ends_s`: seconds until the end of each queued job in the snapshot.
    """

    starts_s: Mapping[str, float | None] = field(default_factory=dict)
    line: Mapping[str, Sequence[str]] = field(default_factory=dict)
    serving: Mapping[str, Sequence[ServingDevice]] = field(default_factory=dict)
    longer: Collection[str] = ()
    running: Collection[str] = frozenset()
    ends_s: Mapping[str, float | None] = field(default_factory=dict)

    def knows(self, running: Collection[str]) -> bool:
        """Whether the forecast accounts for all jobs that run now."""
        return all(job_id in self.running or job_id in self.starts_s for job_id in running)

    @cached_property
    def _turns_s(self) -> Mapping[str, Sequence[float | None]]:
        return {queue: [self.starts_s[job_id] for job_id in line] for queue, line in self.line.items()}

    def eta_s(
        self, job_id: str, queue: str, position: int | None, running: Collection[str] = (), fits: str = ""
    ) -> float | None:
        """Seconds until a queued job starts; None if unknown. `fits`: the field of its record, see
        `dyno.store.placement`.

        A job queued after the forecast gets the start of the forecast's job at the same position, not counting jobs
        that are `running` now. After the last job of its queue, a job starts when the first device is free. If the
        snapshot lacks jobs of the queue, the time is extrapolated in proportion to the position. If a device was free
        but a running job is missing from the forecast, that job may have taken the device: then the time is unknown.
        """
        eta_s = self._eta_s(job_id, queue, position, running, fits)
        return None if eta_s == 0 and not self.knows(running) else eta_s

    def _eta_s(
        self, job_id: str, queue: str, position: int | None, running: Collection[str], fits: str
    ) -> float | None:
        if job_id in self.starts_s:
            return self.starts_s[job_id]
        takers = [device for device in self.serving.get(queue, ()) if f"{device.profile}-" not in fits]
        if position is None or not takers:
            return None
        line = self.line.get(queue, ())
        turns_s = self._turns_s.get(queue, ())
        position += len(running and set(line).intersection(running))
        if position < len(turns_s):
            return turns_s[position]
        if queue not in self.longer:
            return min((device.free_s for device in takers if device.free_s is not None), default=None)
        last_s = turns_s[-1] if turns_s else None
        return None if last_s is None else last_s * (position + 1) / len(turns_s)


GetForecast = Callable[[Collection[str]], Awaitable[Forecast]]  # given the ids of the jobs that run now


async def no_forecast(running: Collection[str]) -> Forecast:
    return Forecast()


class Place(NamedTuple):
    """A waiting job's rank and score in its queue, and the highest score that a device of the queue passed over."""

    rank: int | None
    score: str | None
    reached: str | None


async def queue_states(
    records: Sequence[Mapping[str, str]], places: Sequence[Place], running: Collection[str], foresee: GetForecast
) -> list[QueueState]:
    """The queue state of each record, from the reply of read.lua. Costs the round trips of `foresee` if a job waits."""
    waits = [record.get("status") == Status.QUEUED and {"id", "queue"} <= record.keys() for record in records]
    forecast = await foresee(running) if any(waits) else Forecast()
    return [
        QueueState(place.rank, _is_passed(place), _eta_s(forecast, record, place.rank, running))
        if is_waiting
        else QueueState()
        for record, place, is_waiting in zip(records, places, waits, strict=True)
    ]


async def new_queue_state(
    record: Mapping[str, str], position: int | None, running: Collection[str], foresee: GetForecast
) -> QueueState:
    """The queue state of a job that was just submitted. `position`: None if the job doesn't wait."""
    if position is None:
        return QueueState()
    return QueueState(position, eta_s=_eta_s(await foresee(running), record, position, running))


def _eta_s(
    forecast: Forecast, record: Mapping[str, str], position: int | None, running: Collection[str]
) -> float | None:
    return forecast.eta_s(record["id"], record["queue"], position, running, record.get("fits", ""))


def _is_passed(place: Place) -> bool:
    return place.score is not None and place.reached is not None and float(place.score) <= float(place.reached)


FORECAST_FRESH_S = 1.0
MAX_FORECAST_JOBS = 300
_MOST_PAIRS = 5_000  # (job, device) pairs in one forecast
FORECAST_TIMEOUT_S = 1.0  # bounds the delay that a forecast adds to a response
_REST = 9  # the pause after a forecast is this multiple of its duration, so forecasts take at most 10 % of the time

# The workload's estimate, in seconds, of a job's duration on the device; None if it can't run there.
Estimate = Callable[[Spec, Device], float | None]
Pair = tuple[str, str]  # a stored spec, and the full id of a device

log = logging.getLogger(__name__)


class Forecasts:
    """The forecast that all requests of an API process share. `clock` returns seconds."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        settings: Settings,
        estimate: Estimate,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._settings, self._keys = client, settings, Keys(settings.namespace)
        self._estimate, self._clock = estimate, clock
        self._needs: dict[tuple[str, str], ExpectedDuration | None] = {}  # from the last forecast, by spec and device
        self._latest, self._looked_s, self._took_s, self._failing = Forecast(), -math.inf, 0.0, False
        self._looking = asyncio.Lock()

    async def latest(self, running: Collection[str] = ()) -> Forecast:
        """A forecast at most FORECAST_FRESH_S old that includes the `running` jobs; empty if none can be made.

        If making a forecast takes long, the returned forecast may lack some of these jobs: see `Forecast.eta_s`.
        """
        if self._is_fresh(running):
            return self._latest
        async with self._looking:
            if not self._is_fresh(running):
                began_s = self._clock()
                self._latest = await self._attempted()
                self._looked_s = self._clock()
                self._took_s = self._looked_s - began_s
        return self._latest

    def _is_fresh(self, running: Collection[str]) -> bool:
        age_s = self._clock() - self._looked_s
        rests = age_s < min(_REST * self._took_s, FORECAST_FRESH_S)
        return rests or (age_s <= FORECAST_FRESH_S and self._latest.knows(running))

    async def _attempted(self) -> Forecast:
        try:
            async with asyncio.timeout(FORECAST_TIMEOUT_S):
                forecast = await self._look()
        except Exception as error:
            if not self._failing:
                log.warning("ETAs of queued jobs are unavailable: %s", error, exc_info=True)
            self._failing = True
            return Forecast()
        self._failing = False
        return forecast

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
        waiting = [
            WaitingJob(
                job.id, {name: takes[pair] for name in serving[job.queue] if (pair := (job.spec, name)) in takes}
            )
            for job in line.jobs
        ]
        rests = {name: None if name in held else _remaining_s(line.running.get(name), name, takes) for name in devices}
        starts_s, free_s, ends_s = simulate_claims(waiting, rests)
        of_devices = {name: ServingDevice(profile(device), free_s[name]) for name, device in devices.items()}
        by_queue = {queue: [of_devices[name] for name in names] for queue, names in serving.items()}
        return Forecast(starts_s, _by_queue(line), by_queue, line.longer, line.running_ids, ends_s)

    def _needed(self, pairs: Sequence[Pair], devices: Mapping[str, Device]) -> dict[Pair, ExpectedDuration | None]:
        """The expected duration of each pair. Reuses the estimates of the previous forecast."""
        described = {name: device.model_dump_json(exclude={"id", "host"}) for name, device in devices.items()}
        all_needs: dict[tuple[str, str], ExpectedDuration | None] = {}
        for spec, name in set(pairs):
            pair = (spec, described[name])
            if pair not in all_needs:
                all_needs[pair] = self._needs[pair] if pair in self._needs else self._need(spec, devices[name])
        self._needs = all_needs
        return {(spec, name): all_needs[spec, described[name]] for spec, name in pairs}

    def _need(self, text: str, device: Device) -> ExpectedDuration | None:
        try:
            spec = read_spec(text)
            expected_s = self._estimate(spec, device)
        except Exception as error:  # noqa: BLE001 - an unreadable spec, or a bug in its workload
            log.warning("can't estimate the duration of a queued job: %s: %s", type(error).__name__, error)
            return None
        if expected_s is None:
            return None
        return ExpectedDuration(duration_series(spec, device), expected_s, work_digest(spec))

    async def _learned(self, needs: Mapping[Pair, ExpectedDuration | None]) -> dict[Pair, float | None]:
        """The likely duration of each pair whose device can run the job; None if there are too few readings."""
        names = sorted({need.series for need in needs.values() if need})
        commands = [("lrange", self._keys.paces(name), 0, DURATIONS_KEPT - 1) for name in names]
        readings = dict(zip(names, map(parse_durations, await pipelined(self._client, commands)), strict=True))
        return {
            pair: likely_duration_s(readings[need.series], need.expected_s, need.work)
            for pair, need in needs.items()
            if need
        }


def _remaining_s(running: RunningJob | None, device: str, takes: Mapping[Pair, float | None]) -> float | None:
    """Seconds until the device is free: by the job's progress report, or else by earlier jobs' durations."""
    if running is None:
        return 0.0
    if running.rest_s is not None:
        return running.rest_s
    takes_s = takes.get((running.spec, device))
    return takes_s - running.elapsed_s if takes_s is not None and takes_s > running.elapsed_s else None


def _by_queue(line: QueueSnapshot) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = defaultdict(list)
    for job in line.jobs:
        lines[job.queue].append(job.id)
    return lines

"""How far off are `queue.eta_s` and `progress.eta_s`? Read from waiting and running jobs of mixed length.

`replay` draws jobs that really ran, and passes them through the real store and its forecasts in simulated time. `watch`
reads the same figures from a real Dyno.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import redis

from benchmarks.files import Files
from benchmarks.jobs import own_dyno
from benchmarks.pairs import percentile
from benchmarks.recorded import FOLDER
from benchmarks.report import prose, table, write
from dyno.bench.measure.statistics import median
from dyno.bench.registry import registry, resolve
from dyno.bench.runner.progress import JobProgress, RunTimes
from dyno.client import Client
from dyno.models.device import Device
from dyno.models.inventory import WorkerRecord
from dyno.models.job import Job, Progress, WorkerRef
from dyno.models.result import Phases
from dyno.models.runner_protocol import ProgressFrame
from dyno.models.spec import Processes, Spec
from dyno.settings import Settings
from dyno.store import eta, fleet
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.placement import DYNO_VERSION, queues_served
from dyno.store.redis import Keys, async_client, sync_client
from service.admission import expected_s
from workers.heartbeat import FIRST_BEAT

JOBS, REAL_JOBS, EARLIER, WAITING, LOOKS, SEED = 200, 10, 6, 4, 3, 17
AIM = 0.25
JOB_SCATTER, RUN_SCATTER = 0.10, 0.05  # standard deviations of the logarithms of drawn times
POLL_S = 0.5
PHASES = ("import", "device", "data", "build", "compile", "first_execution", "training", "warmup", "steady", "overhead")
METHOD = """{jobs} jobs wait for one device, {waiting} at a time. While a job runs, its `progress.eta_s` and the
    `queue.eta_s` of the waiting jobs are read three times, at random. The error is the difference from the time that
    was left, as a share of this time. A missing ETA counts as an infinite error. The jobs are drawn from those of
    [reproduction.md](reproduction.md) and from the real ones below. Each has 1 to 5 runs, so many have no equal job in
    the past. Times scatter by {job:.0%} from job to job and {run:.0%} from run to run. The store is empty at first.
    Worker, store and forecasts are the real ones; only time is simulated (seed {seed}). Aim: a median error of at most
    {aim:.0%}."""
REAL = """Jobs of {least:.1f} to {most:.1f} s on one worker of this machine, {waiting} in its queue at a time; all of
    them are read from the API every {poll} s. {earlier} jobs ran before."""


class Reading(NamedTuple):
    """The ETA that the API returned, and the time that was left."""

    said_s: float | None
    left_s: float

    @property
    def error(self) -> float:
        return math.inf if self.said_s is None else abs(self.said_s - self.left_s) / self.left_s


@dataclass
class Readings:
    """Readings by figure. `zeros`: how often a waiting job had an ETA of 0 while another job ran."""

    queue: list[Reading] = field(default_factory=list)
    progress: list[Reading] = field(default_factory=list)
    zeros: int = 0


@dataclass(frozen=True)
class PastJob:
    """A job that really ran: the seconds of each phase of each run."""

    spec: Spec
    device: Device
    runs: Sequence[Mapping[str, float]]

    @property
    def took_s(self) -> float:
        return sum(sum(run.values()) for run in self.runs)

    def drawn(self, rng: random.Random) -> PastJob:
        """The same job with another number of runs, and times that scatter."""
        count, factor = rng.randint(1, 5), rng.lognormvariate(0, JOB_SCATTER)
        further = [{**run, "training": 0.0} for run in self.runs[1:] or self.runs]
        runs = [self.runs[0], *rng.choices(further, k=count - 1)]
        factors = [factor * rng.lognormvariate(0, RUN_SCATTER) for _ in runs]
        scattered = [{name: by * s for name, s in run.items()} for run, by in zip(runs, factors, strict=True)]
        processes = Processes(min=count, max=count)
        measure = self.spec.measure.model_copy(update={"processes": processes})
        return PastJob(self.spec.model_copy(update={"measure": measure}), self.device, scattered)

    def at(self, elapsed_s: float) -> tuple[int, ProgressFrame]:
        """The index of the run at that time, and the frame that its runner last wrote."""
        for number, run in enumerate(self.runs):
            for name in PHASES:
                taken_s = run.get(name, 0.0)
                if elapsed_s < taken_s:
                    return number, _frame(name, elapsed_s / taken_s)
                elapsed_s -= taken_s
        return len(self.runs) - 1, ProgressFrame(phase="verify")


def _frame(phase: str, share: float) -> ProgressFrame:
    if phase in ("steady", "training"):
        shown = "sampling" if phase == "steady" else phase
        return ProgressFrame(phase=shown, completed=int(100 * share), total=100)
    return ProgressFrame(phase={"overhead": "verify"}.get(phase, phase))


def past_job(spec: Mapping[str, Any], took_s: float, result: Mapping[str, Any]) -> PastJob:
    """Time outside all phases counts as training of the first run: older results don't report this phase."""
    runs = [{name: run["phases"].get(f"{name}_s") or 0.0 for name in PHASES} for run in result["runs"]]
    if not any(run["training"] for run in runs):
        runs[0]["training"] = max(0.0, took_s - sum(sum(run.values()) for run in runs))
    return PastJob(resolve(Spec.model_validate(spec)).spec, Device.model_validate(result["device"]), runs)


def past_jobs(folder: Path = FOLDER) -> list[PastJob]:
    """All recorded jobs by name, without `quantized`: older results don't time its cases."""
    paths = sorted((folder / "reproduction").glob("*.json"))
    found = [json.loads(path.read_text()) for path in paths if path.stem != "quantized"]
    kept = folder / "eta.json"
    found += json.loads(kept.read_text())["jobs"] if kept.exists() else []
    return [past_job(each["spec"], each["took_s"], each["result"]) for each in found]


def drawn(past: Sequence[PastJob], count: int, seed: int = SEED) -> list[PastJob]:
    rng = random.Random(seed)
    return [rng.choice(past).drawn(rng) for _ in range(count)]


class Beats:
    """The heartbeats of a job's attempt: each updates its progress."""

    def __init__(self, job: PastJob, progress: JobProgress, every_s: float) -> None:
        self._job, self._progress, self._every_s = job, progress, every_s
        self._ends_s = [*accumulate(sum(run.values()) for run in job.runs)]
        self._next_s, self._ended = every_s * FIRST_BEAT, 0
        self._last: Progress | None = None

    def until(self, elapsed_s: float) -> Progress | None:
        """The progress of the last heartbeat before that time; None before the first."""
        while self._next_s <= elapsed_s:
            beat_s, self._next_s = self._next_s, self._next_s + self._every_s
            while self._ended < len(self._ends_s) - 1 and self._ends_s[self._ended] <= beat_s:
                run, is_first = self._job.runs[self._ended], self._ended == 0
                once_s = run["build"] + run["overhead"] if is_first else 0.0
                self._progress.run_ended(self._ends_s[self._ended], run["training"], once_s)
                self._ended += 1
            number, frame = self._job.at(beat_s)
            self._last = self._progress.of(frame, number, beat_s)
        return self._last


class Replay:
    """One device that runs jobs one after the other. `now_s`: the simulated time."""

    def __init__(self, settings: Settings, jobs: Jobs, client: redis.Redis, device: Device) -> None:
        self._settings, self._jobs, self._client, self._device = settings, jobs, client, device
        self._leases, self._keys = Leases(client, settings), Keys(settings.namespace)
        self._said: dict[str, list[tuple[float, float | None]]] = {}  # by waiting job: when, and its ETA
        self.now_s, self.found = 0.0, Readings()

    async def run(self, jobs: Sequence[PastJob], rng: random.Random) -> Readings:
        """Run all jobs, and look at them at random times."""
        waiting: dict[str, PastJob] = {}
        ahead = iter(jobs)
        while True:
            while len(waiting) < WAITING + 1 and (job := next(ahead, None)):
                submitted = await self._jobs.submit(job.spec)
                waiting[submitted.stored.id] = job
            if not waiting:
                return self.found
            ref = WorkerRef(id="replay", device=self._device.id, host=self._device.host)
            claim = self._leases.claim(self._device.full_id, queues_served(self._device), ref)
            assert claim is not None
            for at_s, said_s in self._said.pop(claim.job_id, ()):
                self.found.queue.append(Reading(said_s, self.now_s - at_s))
            await self._run_one(claim, waiting.pop(claim.job_id), list(waiting), rng)

    async def _run_one(self, claim: Claim, job: PastJob, waiting: Sequence[str], rng: random.Random) -> None:
        expected, progress = self._expected(job.spec)
        beats, began_s = Beats(job, progress, self._settings.heartbeat_s), self.now_s
        for look_s in sorted(rng.uniform(0, job.took_s) for _ in range(LOOKS)):
            self._leases.heartbeat(claim, beats.until(look_s))
            self._elapse(claim.job_id, look_s)
            self.now_s = began_s + look_s
            shown = (await self._jobs.get(claim.job_id)).progress
            self.found.progress.append(Reading(shown.eta_s if shown else None, job.took_s - look_s))
            for job_id in waiting:
                place = (await self._jobs.get(job_id)).queue
                self._said.setdefault(job_id, []).append((self.now_s, place.eta_s))
                self.found.zeros += place.eta_s == 0
        self._elapse(claim.job_id, job.took_s)
        self.now_s = began_s + job.took_s
        assert self._leases.finish(claim, "succeed", pace=expected)

    def _expected(self, spec: Spec) -> tuple[eta.ExpectedDuration, JobProgress]:
        """The duration and the progress that a worker expects when it begins the job."""
        one = resolve(spec).estimate(self._device)
        count = one.runs(spec.measure)
        run_s = one.run_s(spec.measure)
        series = eta.duration_series(spec, self._device)
        expected = eta.ExpectedDuration(series, one.in_all_s(spec.measure), eta.work_digest(spec))
        plan = [RunTimes(run_s, one.train_s), *[RunTimes(run_s)] * (count - 1)]
        return expected, JobProgress(plan, self._leases.likely_duration_s(expected))

    def _elapse(self, job_id: str, elapsed_s: float) -> None:
        """Set the start of the job to `elapsed_s` ago, by Redis' clock."""
        seconds, micros = self._client.time()
        self._client.hset(self._keys.job(job_id), "started_at", f"{seconds + micros / 1e6 - elapsed_s:.6f}")


async def replay(
    past: Sequence[PastJob], count: int, redis_url: str, namespace: str = "eta", seed: int = SEED
) -> Readings:
    """Draw `count` jobs and replay them on the device that the first of them ran on."""
    settings = Settings(redis_url=redis_url, namespace=namespace, lease_s=3600, device_ttl_s=3600)
    device = past[0].device
    seen = {"id": device.id, "host": device.host, "pid": 1, "device": device.full_id, "version": DYNO_VERSION}
    record = WorkerRecord.model_validate(seen | {"state": "idle", "started_at": datetime.now(UTC)})
    with sync_client(settings) as client:
        async with async_client(settings) as asynchronous:
            fleet.publish(client, settings, device, record)
            estimate = partial(expected_s, registry())
            forecasts = eta.Forecasts(asynchronous, settings, estimate, lambda: one.now_s)
            one = Replay(settings, Jobs(asynchronous, settings, forecasts.latest), client, device)
            return await one.run(drawn(past, count, seed), random.Random(seed))


def real_specs(count: int, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Random specs: some occur several times, others once."""
    rng = random.Random(seed)
    for _ in range(count):
        n = rng.choice((128, 512, rng.randint(64, 1024)))
        params: dict[str, Any] = {"n": n, "repeats": 10}
        measure = {"processes": rng.choice((1, 2, 3, 5)), "max_s": rng.choice((0.3, 1, 2))}
        workload = rng.choice(("matmul", "matmul", "matmul", "mnist_cnn"))
        if workload == "mnist_cnn":
            params = {"train_samples": 8 * n, "batch_size": 64, "epochs": 1, "data": "synthetic", "jit_compile": False}
        yield {"workload": workload, "params": params, "device": "cpu", "measure": measure}


def watch(client: Client, specs: Sequence[Mapping[str, Any]]) -> tuple[Readings, list[dict[str, Any]]]:
    """Run the jobs on a real Dyno. Returns the readings, and a record of each job."""
    said: list[tuple[datetime, Job]] = []
    ahead, live, ended = list(specs), set[str](), dict[str, Job]()
    while ahead or live:
        while ahead and len(live) < WAITING + 1:
            live.add(client.submit(ahead.pop(0)).id)
        time.sleep(POLL_S)
        for job_id in list(live):
            said.append((datetime.now(UTC), client.job(job_id)))
            if said[-1][1].done:
                ended[job_id] = said[-1][1]
                print(f"{len(ended)} of {len(specs)}: {ended[job_id].status}", flush=True)
                live.remove(job_id)
    found = Readings()
    for at, job in said:
        _note(found, at, job, ended)
    return found, [_record(client, job) for job in ended.values() if job.status == "succeeded"]


def _note(found: Readings, at: datetime, job: Job, ended: Mapping[str, Job]) -> None:
    starts, ends = ended[job.id].started_at, ended[job.id].finished_at
    if job.status == "queued" and starts and starts > at:
        found.queue.append(Reading(job.queue.eta_s, (starts - at).total_seconds()))
        found.zeros += job.queue.eta_s == 0 and any(_ran(each, at) for each in ended.values())
    if job.status == "running" and ends and ends > at:
        said_s = job.progress.eta_s if job.progress else None
        found.progress.append(Reading(said_s, (ends - at).total_seconds()))


def _ran(job: Job, at: datetime) -> bool:
    return bool(job.started_at and job.finished_at and job.started_at <= at < job.finished_at)


def _record(client: Client, job: Job) -> dict[str, Any]:
    assert job.started_at is not None
    assert job.finished_at is not None
    result = client.result(job.id)
    fields = {f"{name}_s" for name in PHASES} & set(Phases.model_fields)
    runs = [{"phases": run.phases.model_dump(include=fields, exclude_none=True)} for run in result.runs]
    device = {**result.device, "peak": {}, "isa": []}
    took_s = (job.finished_at - job.started_at).total_seconds()
    spec = job.spec.model_dump(mode="json", include={"workload", "params", "measure", "device"})
    return {"spec": spec, "took_s": took_s, "result": {"device": device, "runs": runs}}


def main(jobs: int = JOBS, real_jobs: int = REAL_JOBS, folder: Path = FOLDER) -> None:
    specs = list(real_specs(real_jobs))
    with own_dyno() as client:
        watch(client, list(real_specs(EARLIER, SEED + 1)))
        real, records = watch(client, specs)
    Files(folder).put("eta", {"jobs": real_jobs, "seed": SEED}, {"jobs": records})
    with EmbeddedServer() as server:
        found = asyncio.run(replay(past_jobs(folder), jobs, server.url))
    text = METHOD.format(jobs=jobs, waiting=WAITING, looks=LOOKS, job=JOB_SCATTER, run=RUN_SCATTER, seed=SEED, aim=AIM)
    took_s = [each["took_s"] for each in records]
    about = REAL.format(least=min(took_s), most=max(took_s), waiting=WAITING, poll=POLL_S, earlier=EARLIER)
    heading = f"## {len(records)} real jobs"
    write("eta", "How far off ETAs are", [*prose(text), *lines(found), heading, "", *prose(about), *lines(real)])


def lines(found: Readings) -> list[str]:
    """A row for each figure."""
    head = ("figure", "readings", "without a figure", "median error", f"within {AIM:.0%}", "90 % are within")
    by_name = {"`queue.eta_s`": found.queue, "`progress.eta_s`": found.progress}
    rows = [[name, *_row([each.error for each in readings])] for name, readings in by_name.items() if readings]
    zeros = f"`queue.eta_s` was 0 in {found.zeros} of {len(found.queue)} readings beside a busy device."
    return [*table(head, rows), zeros, ""]


def _row(errors: Sequence[float]) -> list[object]:
    silent, near = sum(map(math.isinf, errors)), sum(error <= AIM for error in errors)
    shares = (median(errors), near / len(errors), percentile(errors, 0.9))
    return [len(errors), silent, *(f"{share:.0%}" if math.isfinite(share) else "none" for share in shares)]

"""Whatever befalls a job's runner, the job gets the right status and the device is free for the next one."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from dyno.devices.device import Device
from dyno.devices.locks import lock_paths
from dyno.job import FailureClass, Job, Status, WorkerRef
from dyno.settings import Settings
from dyno.spec import Spec
from dyno.store.connect import async_client, sync_client
from dyno.store.jobs import Jobs
from dyno.store.keys import Keys
from dyno.store.leases import Leases
from dyno.store.server import EmbeddedServer
from dyno.workloads import registry
from tests.workers.conftest import Misbehaving, eventually, tiny
from workers.equipment import Equipment
from workers.launcher import Launcher
from workers.supervisor import Supervisor

LONG = {"min_samples": 200, "min_s": 600, "max_s": 600}  # 200 samples of 0.1 s are the most: 20 s


class Store:
    """What a caller of the API does, one call at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def submit(self, spec: Spec) -> str:
        return self._do(lambda jobs: jobs.submit(spec)).job.id

    def job(self, job_id: str) -> Job:
        return self._do(lambda jobs: jobs.get(job_id))

    def cancel(self, job_id: str) -> None:
        self._do(lambda jobs: jobs.cancel(job_id))

    def result(self, job_id: str) -> Any:
        return self._do(lambda jobs: jobs.result(job_id))

    def _do(self, call: Callable[[Jobs], Any]) -> Any:
        async def done() -> Any:
            async with async_client(self.settings) as client:
                return await call(Jobs(client, self.settings))

        return asyncio.run(done())


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"heartbeat_s": 0.2, "term_grace_s": 1.0})


@pytest.fixture
def store(quick: Settings) -> Store:
    return Store(quick)


@pytest.fixture
def supervisor_of(here: Device) -> Iterator[Callable[..., Supervisor]]:
    """A supervisor over a launcher; at the end it hands back what it runs."""
    made: list[Supervisor] = []

    def supervisor(settings: Settings, launcher: Launcher, **changes: Any) -> Supervisor:
        leases = Leases(sync_client(settings), settings)
        equipment = Equipment(here, leases, launcher, settings, changes.pop("workloads", registry()))
        worker = WorkerRef(id="w", device=here.full_id, host=here.host)
        made.append(Supervisor(equipment, worker, changes.pop("wake", lambda queue: None), **changes))
        return made[-1]

    yield supervisor
    for one in made:
        one.stop(0)


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def runner_of(here: Device, settings: Settings, not_in: Sequence[int] = ()) -> int:
    """The process that holds the device's lock, once there is a new one."""
    [path] = [Path(name) for name in lock_paths(here, settings)]
    found: list[int] = []

    def held() -> bool:
        if not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found[:] = [int(file.read() or 0)]
        return bool(found) and found[0] not in (0, *not_in)

    eventually(held)
    return found[0]


def device_is_free(client: redis.Redis, settings: Settings, here: Device) -> bool:
    return not client.exists(Keys(settings.namespace).lease(here.full_id))


def test_a_job_runs_in_as_many_fresh_processes_as_asked_for(
    quick: Settings, store: Store, supervisor_of: Callable[..., Supervisor], forking: Launcher
) -> None:
    job_id = store.submit(tiny(measure={"processes": 3}))
    assert supervisor_of(quick, forking).serve() == 1
    result = store.result(job_id)
    assert store.job(job_id).status is Status.SUCCEEDED
    assert len({run.pid for run in result.runs}) == 3
    assert {run.process_start for run in result.runs} == {"forked"}


def test_progress_of_a_running_job_is_seen_in_its_record(
    quick: Settings,
    store: Store,
    supervisor_of: Callable[..., Supervisor],
    forking: Launcher,
    background: ThreadPoolExecutor,
) -> None:
    job_id = store.submit(tiny(measure=LONG))
    supervisor = supervisor_of(quick, forking)
    background.submit(supervisor.serve)
    eventually(lambda: (seen := store.job(job_id).progress) is not None and seen.phase == "sampling")
    supervisor.stop(0)


def test_a_canceled_job_is_stopped_in_mid_run(
    quick: Settings,
    store: Store,
    client: redis.Redis,
    supervisor_of: Callable[..., Supervisor],
    forking: Launcher,
    here: Device,
    background: ThreadPoolExecutor,
) -> None:
    job_id = store.submit(tiny(measure=LONG))
    serving = background.submit(supervisor_of(quick, forking).serve)
    runner_of(here, quick)
    store.cancel(job_id)
    serving.result(5)
    assert store.job(job_id).status is Status.CANCELED
    assert device_is_free(client, quick, here)


def test_a_job_beyond_its_timeout_fails_as_such(
    quick: Settings, store: Store, supervisor_of: Callable[..., Supervisor], forking: Launcher
) -> None:
    job_id = store.submit(tiny(measure=LONG, timeout_s=1))
    supervisor_of(quick, forking).serve()
    job = store.job(job_id)
    assert job.status is Status.FAILED
    assert job.status_reason == "timeout"
    assert job.failure is not None
    assert job.failure.failure_class is FailureClass.TIMEOUT


def test_a_killed_runner_is_tried_once_more_and_then_fails(
    quick: Settings,
    store: Store,
    client: redis.Redis,
    supervisor_of: Callable[..., Supervisor],
    forking: Launcher,
    here: Device,
    background: ThreadPoolExecutor,
) -> None:
    job_id = store.submit(tiny(measure=LONG))
    after = store.submit(tiny())
    serving = background.submit(supervisor_of(quick, forking).serve)
    first = runner_of(here, quick)
    os.kill(first, signal.SIGKILL)
    os.kill(runner_of(here, quick, not_in=[first]), signal.SIGKILL)
    assert serving.result(20) == 3
    job = store.job(job_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.FAILED, "runner_killed", 2)
    assert job.failure is not None
    assert job.failure.failure_class is FailureClass.INFRASTRUCTURE
    assert store.job(after).status is Status.SUCCEEDED
    assert device_is_free(client, quick, here)


def test_a_segfault_is_the_benchmarks_own_and_not_repeated(
    quick: Settings,
    store: Store,
    supervisor_of: Callable[..., Supervisor],
    forking: Launcher,
    here: Device,
    background: ThreadPoolExecutor,
) -> None:
    job_id = store.submit(tiny(measure=LONG))
    after = store.submit(tiny())
    serving = background.submit(supervisor_of(quick, forking).serve)
    os.kill(runner_of(here, quick), signal.SIGSEGV)
    assert serving.result(20) == 2
    job = store.job(job_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.FAILED, "runner_crashed", 1)
    assert job.failure is not None
    assert job.failure.signal == signal.SIGSEGV
    assert "Fatal Python error" in (job.failure.log_tail or "")
    assert store.job(after).status is Status.SUCCEEDED


def test_a_stop_hands_the_job_back_without_an_attempt(
    quick: Settings,
    store: Store,
    client: redis.Redis,
    supervisor_of: Callable[..., Supervisor],
    forking: Launcher,
    here: Device,
    background: ThreadPoolExecutor,
) -> None:
    job_id = store.submit(tiny(measure=LONG))
    supervisor = supervisor_of(quick, forking)
    serving = background.submit(supervisor.serve)
    runner_of(here, quick)
    supervisor.stop(0.2)
    serving.result(5)
    job = store.job(job_id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)
    assert device_is_free(client, quick, here)


def test_a_superseded_attempt_is_killed_and_says_nothing_more(
    quick: Settings,
    store: Store,
    client: redis.Redis,
    supervisor_of: Callable[..., Supervisor],
    forking: Launcher,
    here: Device,
    background: ThreadPoolExecutor,
) -> None:
    job_id = store.submit(tiny(measure=LONG))
    supervisor = supervisor_of(quick, forking)
    serving = background.submit(supervisor.serve)
    first = runner_of(here, quick)
    client.hset(Keys(quick.namespace).job(job_id), "token", "somebody-else's")
    eventually(lambda: not Path(f"/proc/{first}").exists(), within_s=5)
    supervisor.stop(0)
    serving.result(5)
    assert store.job(job_id).status is Status.RUNNING


def test_a_claim_that_leaves_jobs_behind_wakes_the_next_worker(
    quick: Settings, store: Store, supervisor_of: Callable[..., Supervisor], forking: Launcher
) -> None:
    woken: list[str] = []
    for _ in range(3):
        store.submit(tiny())
    assert supervisor_of(quick, forking, wake=woken.append).serve() == 3
    assert woken == ["cpu", "cpu"]


def test_a_job_that_this_worker_does_not_know_is_refused(
    quick: Settings, store: Store, supervisor_of: Callable[..., Supervisor], forking: Launcher
) -> None:
    job_id = store.submit(tiny())
    supervisor_of(quick, forking, workloads={}).serve()
    job = store.job(job_id)
    assert (job.status, job.status_reason) == (Status.FAILED, "unknown_workload")


def test_a_busy_device_costs_the_job_nothing(
    quick: Settings,
    store: Store,
    supervisor_of: Callable[..., Supervisor],
    misbehaving: Callable[[str], Misbehaving],
) -> None:
    frame = '{"frame": "failed", "failure_class": "infrastructure", "reason": "device_busy", "message": "held"}'
    job_id = store.submit(tiny())
    launcher = misbehaving(f"import os; os.write(3, {frame.encode()!r} + b'\\n')")
    assert supervisor_of(quick, launcher).serve() == 1
    job = store.job(job_id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


def test_a_fault_of_the_workers_own_is_told_and_retried(
    quick: Settings, store: Store, supervisor_of: Callable[..., Supervisor]
) -> None:
    class Broken(Launcher):
        def start(self, request: object) -> Any:
            raise OSError("no descriptors left")

    launcher = Broken("fork", [0])
    job_id = store.submit(tiny())
    assert supervisor_of(quick, launcher).serve() == 2
    launcher.close()
    job = store.job(job_id)
    assert (job.status, job.status_reason) == (Status.FAILED, "worker_error")


def test_a_run_outlasts_a_store_that_takes_no_writes_and_its_result_is_written_later(
    quick: Settings,
    supervisor_of: Callable[..., Supervisor],
    forking: Launcher,
    here: Device,
    background: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "dyno.worker")
    with EmbeddedServer() as server:
        settings = quick.model_copy(update={"redis_url": server.url})
        store, client = Store(settings), sync_client(settings)
        job_id = store.submit(tiny(measure={"min_samples": 10, "min_s": 1, "max_s": 2}))
        serving = background.submit(supervisor_of(settings, forking).serve)
        runner_of(here, settings)
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        eventually(lambda: "ending-not-written" in caplog.text)
        client.execute_command("REPLICAOF", "NO", "ONE")
        serving.result(10)
        assert "heartbeat-missed" in caplog.text
        job = store.job(job_id)
    assert (job.status, job.attempt) == (Status.SUCCEEDED, 1)


def test_two_calls_to_serve_never_overlap(
    quick: Settings, store: Store, supervisor_of: Callable[..., Supervisor], forking: Launcher
) -> None:
    ids = [store.submit(tiny()) for _ in range(4)]
    supervisor = supervisor_of(quick, forking)
    threads = [threading.Thread(target=supervisor.serve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {store.job(job_id).status for job_id in ids} == {Status.SUCCEEDED}

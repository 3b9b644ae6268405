"""Whole worker processes: killed, interrupted, and two at the same time."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from dyno.bench.devices.discovery import discover
from dyno.bench.devices.locks import hold_locks, lock_paths
from dyno.models.job import Status
from dyno.store.embedded import EmbeddedServer
from tests.cores import CORE, HERE, THERE, two_cores
from tests.servers import kill_once_written
from tests.waiting import eventually
from tests.workers.conftest import LONG, tiny, until_gone
from tests.workers.looking import device_is_free
from tests.workers.whole.looking import (
    SHORT,
    events_of,
    family_of,
    jobs_of,
    offered,
    submit,
    until_idle,
    until_measuring,
    until_status,
)


@two_cores
@pytest.mark.verify
@pytest.mark.timeout(400)
def test_two_workers_run_many_jobs_once_each(start_worker, settings):
    for device in (HERE, THERE):
        start_worker(device, settings)
    until_idle(settings, 2)
    ids = submit(settings, *[tiny()] * 200)
    eventually(lambda: jobs_of(settings, ids[-1])[0].done, within_s=300)
    eventually(lambda: all(job.done for job in jobs_of(settings, *ids)))
    jobs = jobs_of(settings, *ids)
    assert {(job.status, job.attempt) for job in jobs} == {(Status.SUCCEEDED, 1)}
    assert {job.worker.device.partition("@")[0] for job in jobs if job.worker} == {HERE, THERE}


def test_a_worker_beside_another_dyno_names_the_holder_and_measures_its_peaks_later(start_worker, settings, capfd):
    here = discover(HERE, settings)
    with hold_locks(lock_paths(here, settings), 0):
        start_worker(HERE, settings)
        until_idle(settings, 1)
        assert offered(settings)[0].peak == {}
        [job_id] = submit(settings, tiny())
        eventually(lambda: jobs_of(settings, job_id)[0].status_reason == "device_busy")
        eventually(lambda: offered(settings)[0].held_by is not None)
        device = offered(settings)[0]
        assert (device.state, device.held_by) == ("busy", jobs_of(settings, job_id)[0].queue.held_by)
    job = until_status(settings, job_id, Status.SUCCEEDED)
    assert (job.attempt, events_of(settings, job_id)) == (1, ["submit", "pass_over", "claim", "succeed"])
    until_idle(settings, 1)
    assert is_measured(offered(settings)[0].peak)
    said = capfd.readouterr().err
    assert f"{here.full_id} is held by process {os.getpid()}" in said
    assert "non-zero exit status" not in said


@pytest.mark.verify
def test_no_process_of_a_cpu_worker_that_loads_a_framework_may_see_an_accelerator(start_worker, settings):
    worker = start_worker(HERE, settings, env={"CUDA_VISIBLE_DEVICES": "0", "JAX_PLATFORMS": "tpu,cpu"})
    until_idle(settings, 1)
    zygotes = [
        pid for pid in family_of(worker.pid) if b"dyno.bench.runner.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert zygotes
    for pid in zygotes:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert {b"CUDA_VISIBLE_DEVICES=-1", b"JAX_PLATFORMS=cpu"} <= set(environment)


ON_TENSORFLOW = [pytest.mark.on_tensorflow, pytest.mark.verify]


@two_cores
@pytest.mark.parametrize("runners", ["numpy", pytest.param("tensorflow", marks=ON_TENSORFLOW)])
def test_the_job_of_a_killed_worker_is_run_by_another_and_its_device_by_a_successor(
    start_worker, short_lease, client, runners
):
    workers = {device: start_worker(device, short_lease) for device in (HERE, THERE)}
    until_idle(short_lease, 2)
    [job_id] = submit(short_lease, tiny(measure=SHORT))
    first = until_measuring(short_lease, job_id).worker
    victim = workers[first.id]
    family = family_of(victim.pid)
    victim.kill()
    assert [pid for pid in family if not until_gone(pid)] == []
    job = until_status(short_lease, job_id, Status.SUCCEEDED)
    assert job.attempt == 2
    assert job.worker.id != first.id
    assert device_is_free(client, short_lease, discover(first.id, short_lease))
    other = next(worker for device, worker in workers.items() if device != first.id)
    other.terminate()
    assert other.wait(60) == 0
    start_worker(first.id, short_lease)
    [next_id] = submit(short_lease, tiny(device=first.id))
    assert until_status(short_lease, next_id, Status.SUCCEEDED).attempt == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.verify)])
def test_a_signal_in_mid_run_hands_the_job_back_and_leaves_no_process(start_worker, short_lease, number):
    worker = start_worker(HERE, short_lease)
    until_idle(short_lease, 1)
    [job_id] = submit(short_lease, tiny(measure=LONG))
    until_measuring(short_lease, job_id)
    family = family_of(worker.pid)
    worker.send_signal(number)
    assert worker.wait(60) == 0
    assert [pid for pid in family if not until_gone(pid)] == []
    [job] = jobs_of(short_lease, job_id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)
    assert offered(short_lease) == []


@pytest.mark.verify
def test_a_term_to_every_process_of_a_worker_costs_the_job_no_attempt(start_worker, short_lease):
    worker = start_worker(HERE, short_lease)
    until_idle(short_lease, 1)
    [job_id] = submit(short_lease, tiny(measure=LONG))
    until_measuring(short_lease, job_id)
    for pid in [*family_of(worker.pid), worker.pid]:
        with suppress(ProcessLookupError):  # a runner goes with its zygote
            os.kill(pid, signal.SIGTERM)
    assert worker.wait(60) == 0
    [job] = jobs_of(short_lease, job_id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


@pytest.mark.verify
def test_a_job_that_is_nearly_done_is_finished_before_the_end(start_worker, settings):
    quick = settings.model_copy(update={"heartbeat_s": 0.2})  # so that it is seen sampling before it is over
    worker = start_worker(HERE, quick)
    until_idle(quick, 1)
    [job_id] = submit(quick, tiny(measure=SHORT))
    until_measuring(quick, job_id)
    worker.terminate()
    assert worker.wait(60) == 0
    assert jobs_of(quick, job_id)[0].status is Status.SUCCEEDED


@pytest.mark.verify
def test_a_second_signal_does_not_wait(start_worker, settings):
    worker = start_worker(HERE, settings)
    until_idle(settings, 1)
    [job_id] = submit(settings, tiny(measure=LONG))
    until_measuring(settings, job_id)
    for number in (signal.SIGINT, signal.SIGTERM):  # two of a kind may reach Python as one
        worker.send_signal(number)
    assert worker.wait(60) == 0
    assert jobs_of(settings, job_id)[0].status is Status.QUEUED


def is_measured(peaks):
    """Not every processor has a loop that measures its peak."""
    return bool(peaks["float32"].value or peaks["float32"].reason)


@two_cores
def test_a_worker_runs_waiting_jobs_publishes_its_device_and_keeps_off_its_cores(start_worker, settings):
    apart = settings.model_copy(update={"reserved_cores": str(CORE)})
    [job_id] = submit(apart, tiny())
    worker = start_worker(THERE, apart)
    eventually(lambda: jobs_of(apart, job_id)[0].done, within_s=60)
    [device] = offered(apart)
    assert device.started_with == "fork"
    assert is_measured(device.peak)
    assert device.frameworks["tensorflow"]
    allowed = [status.read_text() for status in Path(f"/proc/{worker.pid}/task").glob("*/status")]
    assert all(f"Cpus_allowed_list:\t{CORE}\n" in text for text in allowed)


def listens(server):
    with redis.Redis.from_url(server.url) as client:
        return any(each["cmd"] == "brpop" for each in client.client_list())


@pytest.mark.verify
def test_a_worker_wakes_itself_after_each_crash_of_redis(start_worker, settings):
    with EmbeddedServer() as server:
        there = settings.model_copy(update={"redis_url": server.url, "reap_every_s": 600.0})
        worker = start_worker(HERE, there)
        until_idle(there, 1)
        for _ in range(2):
            eventually(lambda: listens(server), what="the worker waits for a wake-up")
            [job_id] = submit(there, tiny(), call=lambda *_: None)  # its wake-up gets lost
            kill_once_written(server)
            server.revive()
            eventually(lambda job_id=job_id: jobs_of(there, job_id)[0].done)
        assert worker.poll() is None
        worker.terminate()
        assert worker.wait(60) == 0

"""A worker that is stopped and continued after another worker has taken its job."""

import signal

import pytest

from dyno.bench.devices.discovery import discover
from dyno.models.job import Status
from tests.cores import HERE, THERE, two_cores
from tests.waiting import eventually
from tests.workers.conftest import LONG, tiny, until_gone
from tests.workers.looking import runner_of
from tests.workers.whole.looking import (
    SHORT,
    events_of,
    family_of,
    jobs_of,
    submit,
    until_idle,
    until_measuring,
    until_status,
)


@two_cores
@pytest.mark.verify
def test_late_calls_of_a_stopped_worker_do_not_count(start_worker, short_lease):
    workers = {device: start_worker(device, short_lease) for device in (HERE, THERE)}
    until_idle(short_lease, 2)
    [job_id] = submit(short_lease, tiny(measure=SHORT))
    first = until_measuring(short_lease, job_id).worker
    workers[first.id].send_signal(signal.SIGSTOP)
    job = until_status(short_lease, job_id, Status.SUCCEEDED)
    assert job.attempt == 2
    assert job.worker.id != first.id
    workers[first.id].send_signal(signal.SIGCONT)
    until_idle(short_lease, 2)
    [again] = jobs_of(short_lease, job_id)
    assert (again.status, again.attempt, again.version) == (Status.SUCCEEDED, 2, job.version)
    assert events_of(short_lease, job_id) == ["submit", "claim", "expire", "claim", "succeed"]


@pytest.mark.verify
def test_the_live_runner_of_a_stopped_worker_keeps_its_successor_off_the_device(start_worker, short_lease):
    stopped = start_worker(HERE, short_lease, "first")
    until_idle(short_lease, 1)
    [job_id] = submit(short_lease, tiny(measure=LONG))
    until_measuring(short_lease, job_id)
    runner = runner_of(discover(HERE, short_lease), short_lease)
    assert runner in family_of(stopped.pid)  # a lock held by the worker would end with it

    def is_measured_by_the_second():
        [job] = jobs_of(short_lease, job_id)
        at_second = job.worker is not None and job.worker.id == "second"
        return at_second and job.progress is not None and job.progress.phase in ("warmup", "sampling")

    def waits_for_the_device():
        assert not is_measured_by_the_second(), "beside the first one's runner"
        held_by = jobs_of(short_lease, job_id)[0].queue.held_by
        return held_by is not None and (held_by.pid, held_by.job) == (stopped.pid, job_id)

    stopped.send_signal(signal.SIGSTOP)
    spawns = short_lease.model_copy(update={"worker_start": "spawn"})  # so that it needn't prove that it can fork
    start_worker(HERE, spawns, "second")
    eventually(waits_for_the_device, what="the job says who has its device")
    assert not until_gone(runner, 0)
    assert jobs_of(short_lease, job_id)[0].attempt <= 1
    stopped.kill()
    assert until_gone(runner)
    eventually(is_measured_by_the_second)

"""A worker's host vanishes during a run: its job runs elsewhere in time, and a host that returns can't affect it.

DYNO_TEST_LEASE_S=30 tests this with the lease, heartbeat and reaper of production; each test then takes a minute.
"""

import os
import signal
import time

import pytest

from dyno.models.job import Status
from dyno.settings import Settings
from tests.cores import HERE, THERE, two_cores
from tests.waiting import promised
from tests.workers.conftest import tiny
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

OF_PRODUCTION = {name: Settings.model_fields[name].default for name in ("lease_s", "heartbeat_s", "reap_every_s")}
LEASE_S = float(os.environ.get("DYNO_TEST_LEASE_S", "6"))
SCALE = LEASE_S / OF_PRODUCTION["lease_s"]
ELSEWHERE_WITHIN_S = promised(50 * SCALE)


def lost(pids):
    """A power failure: all processes are stopped before the first is killed, so none can hand anything back."""
    frozen(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return lambda: None


def frozen(pids):
    """The host, or its virtual machine, is suspended and resumed later."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def resume():
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    return resume


@two_cores
@pytest.mark.timeout(300 + 5 * LEASE_S)
@pytest.mark.verify
@pytest.mark.parametrize("vanish", [lost, frozen])
def test_the_job_of_a_host_that_vanishes_runs_elsewhere_in_time(vanish, start_worker, settings, record_property):
    there = settings.model_copy(update={name: SCALE * value for name, value in OF_PRODUCTION.items()})
    workers = {device: start_worker(device, there) for device in (HERE, THERE)}
    until_idle(there, 2)
    [job_id] = submit(there, tiny(measure=SHORT))
    first = until_measuring(there, job_id).worker
    victim = workers[first.id]
    came_back = vanish([victim.pid, *family_of(victim.pid)])
    vanished_s = time.time()
    try:
        job = until_status(there, job_id, Status.SUCCEEDED, 30 + 2 * ELSEWHERE_WITHIN_S)
    finally:
        came_back()
    assert job.worker.id != first.id
    elsewhere_s = job.started_at.timestamp() - vanished_s
    record_property("elsewhere_s", f"{elsewhere_s:.1f}")
    assert elsewhere_s <= ELSEWHERE_WITHIN_S
    if vanish is frozen:
        until_idle(there, 2)
    assert jobs_of(there, job_id) == [job]
    assert events_of(there, job_id) == ["submit", "claim", "expire", "claim", "succeed"]

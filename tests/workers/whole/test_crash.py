"""How soon a device runs the next job after its runner was killed, with production settings."""

import os
import signal
import time

import pytest

from dyno.bench.devices.discovery import discover
from dyno.models.job import Status
from tests.cores import HERE
from tests.waiting import promised
from tests.workers.conftest import LONG, tiny
from tests.workers.looking import runner_of
from tests.workers.whole.looking import jobs_of, submit, until_idle, until_measuring, until_status

AGAIN_WITHIN_S = promised(5.0)  # much shorter than the lease of 30 s, after which other processes would notice


@pytest.mark.verify
@pytest.mark.parametrize("number", [pytest.param(signal.SIGSEGV, marks=pytest.mark.verify), signal.SIGKILL])
def test_the_device_is_free_and_runs_the_next_job_within_seconds_of_a_runners_crash(
    number, start_worker, settings, record_property
):
    start_worker(HERE, settings)
    until_idle(settings, 1)
    crashed, after = submit(settings, tiny(measure=LONG), tiny(measure=LONG))
    until_measuring(settings, crashed)
    here = discover(HERE, settings)
    runner = runner_of(here, settings)
    os.kill(runner, number)
    crashed_s = time.time()
    runner_of(here, settings, not_in=[runner])  # it has the device, and measures
    again_s = time.time() - crashed_s
    record_property("again_s", f"{again_s:.2f}")
    assert again_s < AGAIN_WITHIN_S
    # A run that was killed from outside is retried first; a crash counts as the benchmark's fault.
    again = crashed if number is signal.SIGKILL else after
    job = until_status(settings, again, Status.RUNNING)
    assert 0 <= job.started_at.timestamp() - crashed_s < AGAIN_WITHIN_S
    assert jobs_of(settings, crashed)[0].status is (Status.RUNNING if again == crashed else Status.FAILED)

"""A whole worker whose device disappears hands its job over and exits with a code of its own."""

import os
import subprocess
import sys

import pytest

from dyno.models.job import Status
from tests.cores import HERE, THERE
from tests.workers.conftest import tiny
from tests.workers.whole.looking import (
    environment_of,
    events_of,
    jobs_of,
    offered,
    submit,
    until_idle,
    until_status,
)

# A regular worker whose runners get a nonexistent core.
ON_LOST_CORES = f"""
import sys
import workers.attempt as module
from workers.__main__ import main
given = module.WorkerContext
module.WorkerContext = lambda device, *rest, **more: given(device.model_copy(update={{"cores": [4095]}}), *rest, **more)
sys.argv = ["workers", "--device", "{HERE}", "--name", "lost"]
main()
"""


@pytest.mark.verify
def test_a_worker_without_its_device_hands_over_its_job_and_ends(start_worker, settings):
    env = os.environ | environment_of(settings)
    with subprocess.Popen([sys.executable, "-P", "-c", ON_LOST_CORES], env=env) as lost:
        try:
            until_idle(settings, 1)
            [job_id] = submit(settings, tiny())
            assert lost.wait(60) == 4
        finally:
            lost.kill()
    [job] = jobs_of(settings, job_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.QUEUED, "no_such_device", 1)
    assert offered(settings) == []
    start_worker(THERE, settings)
    assert until_status(settings, job_id, Status.SUCCEEDED).attempt == 2
    assert events_of(settings, job_id) == ["submit", "claim", "requeue", "claim", "succeed"]

"""A job that lasts many leases: its lease never runs out, it isn't requeued, and no data grows with its duration.

A job of twelve hours takes 1440 leases of 30 s. DYNO_TEST_LEASES sets how many are tested.
"""

import os

import pytest

from dyno.celery_app import key_prefix
from dyno.models.job import Status
from tests.cores import HERE, THERE, two_cores
from tests.waiting import eventually
from tests.workers.conftest import tiny
from tests.workers.whole.looking import (
    events_of,
    jobs_of,
    submit,
    until_idle,
    until_measuring,
)

LEASES = int(os.environ.get("DYNO_TEST_LEASES", "3"))
LEASE_S = 5.0  # a busy machine may keep a worker from its heartbeat for seconds


@two_cores
@pytest.mark.timeout(120 + 2 * LEASES * LEASE_S)
@pytest.mark.verify
def test_a_job_of_many_leases_is_one_attempt_while_every_reaper_looks(start_worker, settings, client):
    brief = {"lease_s": LEASE_S, "heartbeat_s": LEASE_S / 15, "reap_every_s": LEASE_S / 15}
    there = settings.model_copy(update=brief)
    for device in (HERE, THERE):
        start_worker(device, there)
    until_idle(there, 2)
    long_s = LEASES * LEASE_S
    [job_id] = submit(there, tiny(measure={"min_samples": 20, "min_s": long_s, "max_s": long_s}))
    until_measuring(there, job_id)
    # Celery would redeliver an unacknowledged wake-up every 12 h.
    assert [key for key in client.scan_iter(f"{key_prefix(there)}*") if "unacked" in key] == []
    eventually(lambda: jobs_of(there, job_id)[0].done, 60 + 2 * long_s)
    [job] = jobs_of(there, job_id)
    assert (job.status, job.attempt) == (Status.SUCCEEDED, 1)
    assert events_of(there, job_id) == ["submit", "claim", "succeed"]

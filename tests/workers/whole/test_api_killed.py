"""If the API is killed between writing a job and responding, the job runs, and a retry makes no second job."""

from contextlib import suppress

import httpx
import pytest

from dyno.models.job import Status
from dyno.store.redis import Keys
from tests.builders import TINY
from tests.cores import HERE
from tests.workers.whole.looking import (
    api,
    events_of,
    jobs_of,
    until_idle,
    until_status,
)

MOMENTS = ("before the answer", "before the wake-up", "after the wake-up")
# The API, killed with SIGKILL. It may have answered when it sends the wake-up.
DOOMED = """
import os, signal, sys
from dyno import celery_app
from dyno.store.jobs import Jobs
def end(): os.kill(os.getpid(), signal.SIGKILL)
submit, send = Jobs.submit, celery_app.send_wake_up
async def doomed_submit(*args, **options):
    await submit(*args, **options)
    end()
def doomed_wake_up(settings, queue):
    if sys.argv[1] == "after the wake-up":
        send(settings, queue)
    end()
if sys.argv[1] == "before the answer":
    Jobs.submit = doomed_submit
celery_app.send_wake_up = doomed_wake_up
from service.__main__ import main
sys.exit(main([]))
"""


@pytest.mark.verify
def test_a_job_runs_without_a_retry_and_a_retry_finds_it(start_worker, settings, client, record_property):
    start_worker(HERE, settings)
    until_idle(settings, 1)
    ids = {}
    for moment in MOMENTS:
        answers = pytest.raises(httpx.TransportError) if moment == MOMENTS[0] else suppress(httpx.TransportError)
        with api(settings, "-c", DOOMED, moment) as http, answers:
            assert http.post("/v1/jobs", json=TINY, headers={"Idempotency-Key": moment}).status_code == 202
        [ids[moment]] = set(client.zrange(Keys(settings.namespace).jobs, 0, -1)) - set(ids.values())
        job = until_status(settings, ids[moment], Status.SUCCEEDED)
        assert job.started_at is not None
        record_property(f"waited_s {moment}", f"{(job.started_at - job.queued_at).total_seconds():.2f}")
    with api(settings, "-m", "service") as http:
        for moment, job_id in ids.items():
            again = http.post("/v1/jobs", json=TINY, headers={"Idempotency-Key": moment})
            assert (again.status_code, again.json()["id"]) == (202, job_id)
            assert again.headers["idempotent-replayed"] == "true"
    assert client.zcard(Keys(settings.namespace).jobs) == len(MOMENTS)
    for job in jobs_of(settings, *ids.values()):
        assert job.attempt == 1
        assert events_of(settings, job.id) == ["submit", "claim", "succeed"]

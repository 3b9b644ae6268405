"""A long job's events: twelve hours make 21,600 heartbeats, but the number of events stays bounded."""

import pytest

from dyno.models.job import Progress, Status
from dyno.settings import Settings
from tests.results import a_result

pytestmark = pytest.mark.anyio

BEATS_IN_AN_HOUR = round(3600 / Settings.model_fields["heartbeat_s"].default)
KEPT_BYTES = 2**20


@pytest.mark.parametrize("hours", [3, pytest.param(12, marks=pytest.mark.verify)])
async def test_hours_of_heartbeats_use_no_more_memory_than_the_first_minutes(
    jobs, a_spec, claim, leases, client, keys, hours
):
    beats = hours * BEATS_IN_AN_HOUR
    job_id = (await jobs.submit(a_spec())).job.id
    attempt = claim()
    for number in range(beats):
        beat = leases.heartbeat(attempt, Progress(phase="sampling", run=1, runs=1, completed=number))
        assert not beat.superseded
    assert (await jobs.get(job_id)).version == beats + 2
    for stream in (keys.job_events(job_id), keys.events):
        assert client.memory_usage(stream, samples=0) < 8 * KEPT_BYTES  # 10,000 entries of up to 690 bytes
    assert client.xlen(keys.job_events(job_id)) < beats / 4
    assert leases.finish(attempt, "succeed", result=a_result(job_id))
    assert (await jobs.get(job_id)).status is Status.SUCCEEDED

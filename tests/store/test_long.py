"""What a job of twelve hours says while it runs: 21,600 heartbeats, and their events stay few."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from dyno.job import Progress, Status
from dyno.settings import Settings
from dyno.spec import Spec
from dyno.store.jobs import Jobs
from dyno.store.keys import Keys
from dyno.store.leases import Leases
from tests.results import a_result

pytestmark = pytest.mark.anyio

BEATS = round(12 * 3600 / Settings.model_fields["heartbeat_s"].default)
KEPT_BYTES = 2**20


async def test_twelve_hours_of_heartbeats_take_no_more_room_than_the_first_minutes(
    jobs: Jobs, a_spec: Callable[..., Spec], claim: Callable, leases: Leases, client: redis.Redis, keys: Keys
) -> None:
    job_id = (await jobs.submit(a_spec())).job.id
    attempt = claim()
    for number in range(BEATS):
        beat = leases.heartbeat(attempt, Progress(phase="sampling", run=1, runs=1, completed=number))
        assert not beat.superseded
    assert (await jobs.get(job_id)).version == BEATS + 2
    for stream in (keys.job_events(job_id), keys.events):
        assert client.memory_usage(stream, samples=0) < 4 * KEPT_BYTES
    assert client.xlen(keys.job_events(job_id)) < BEATS / 10
    assert leases.finish(attempt, "succeed", result=a_result(job_id))
    assert (await jobs.get(job_id)).status is Status.SUCCEEDED

"""Records of alarms: written once, and one look at a time."""

import asyncio

import pytest

from dyno.models.history import AlarmRecord
from dyno.models.spec import MAX_EXPIRES_IN_S
from dyno.store.alarms import AlarmRecords, Look
from tests.comparisons import of_metrics

pytestmark = pytest.mark.anyio
SERIES, JOB = "ser_1", "job_1"


@pytest.fixture
def records(async_redis, settings):
    return AlarmRecords(async_redis, settings)


async def test_what_was_recorded_first_stays(records):
    assert await records.add_rerun(SERIES, JOB, "job_2")
    assert not await records.add_rerun(SERIES, JOB, "job_3")
    assert await records.acknowledge(SERIES, JOB, "key_1")
    [before] = await records.read([SERIES])
    assert not await records.acknowledge(SERIES, JOB, None)
    assert await records.read([SERIES, "ser_none"]) == [before, {}]
    assert (before[JOB].rerun, before[JOB].acknowledged_by) == ("job_2", "key_1")


async def test_an_alarm_is_acknowledged_without_a_key(records):
    await records.acknowledge(SERIES, "job_9", None)
    [found] = await records.read([SERIES])
    assert found["job_9"].acknowledged_at is not None
    assert found["job_9"].acknowledged_by is None


async def test_of_many_only_one_records_a_rerun(records):
    outcomes = await asyncio.gather(*(records.add_rerun("ser_many", JOB, f"job_{at}") for at in range(20)))
    assert sum(outcomes) == 1
    [found] = await records.read(["ser_many"])
    assert found == {JOB: AlarmRecord(rerun=f"job_{outcomes.index(True)}")}


async def test_the_records_of_a_series_live_as_long_as_any_result(records, client, keys):
    await records.add_rerun("ser_ttl", JOB, "job_2")
    client.expire(keys.alarms("ser_ttl"), 60)
    await records.acknowledge("ser_ttl", JOB, None)
    assert MAX_EXPIRES_IN_S - 60 < client.ttl(keys.alarms("ser_ttl")) <= MAX_EXPIRES_IN_S


async def test_one_of_many_takes_a_turn(records, client, keys):
    assert sum(await asyncio.gather(*(records.take_turn(60) for _ in range(20)))) == 1
    client.delete(keys.alarms_checked)
    assert await records.take_turn(60)


async def test_a_look_knows_when_the_last_one_was_and_how_many_jobs_had_succeeded(records, jobs, a_spec, claim, leases):
    spec = a_spec()
    last, now = await records.looks(spec.workload)
    assert (last, now.succeeded) == (Look(0, 0.0), 0)
    await jobs.submit(spec)
    assert leases.finish(claim(), "succeed", result=of_metrics([]))
    _, later = await records.looks(spec.workload)
    assert (later.succeeded, later.at_s > now.at_s) == (1, True)
    await records.end_look(spec.workload, later)
    last, again = await records.looks(spec.workload)
    assert (last.succeeded, last.at_s) == (1, pytest.approx(later.at_s, abs=1e-5))
    assert again.succeeded == 1


async def test_fields_of_a_newer_version_are_ignored(records, client, keys):
    client.hset(keys.alarms("ser_new"), mapping={f"{JOB} rerun": "job_2", f"{JOB} since_then": "x"})
    assert await records.read(["ser_new"]) == [{JOB: AlarmRecord(rerun="job_2")}]

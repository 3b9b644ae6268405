"""Workers and APIs of two versions on one store: records are read or refused with a reason, but never damaged."""

import json

import pytest

from dyno.errors import RecordUnreadable
from dyno.models.job import SCHEMA, Progress, Status
from dyno.store.maintenance import expire_leases
from dyno.store.stored_results import compress, decompress, execute_raw
from tests.results import a_result

pytestmark = pytest.mark.anyio

LATER = {"later": "x", "later_still": '{"deep": [1]}'}


async def test_whatever_happens_to_a_job_the_fields_of_a_newer_version_stay_what_they_are(
    jobs, a_spec, claim, run_out, leases, client, keys, trusting
):
    spec = json.loads(a_spec().model_dump_json()) | {"later": 1}
    job_id = (await jobs.submit(a_spec())).job.id
    client.hset(keys.job(job_id), mapping=LATER | {"spec": json.dumps(spec)})
    lost = claim()
    leases.heartbeat(lost, Progress(phase="sampling", run=1, runs=5))
    run_out()
    assert expire_leases(client, trusting) == [job_id]
    handed_back = claim()
    assert leases.requeue(handed_back, reason="shutdown", counts_attempt=False)
    last = claim()
    await jobs.cancel(job_id)
    assert leases.finish(last, "succeed", result=a_result(job_id))
    record = client.hgetall(keys.job(job_id))
    assert {name: record[name] for name in LATER} == LATER
    assert json.loads(record["spec"]) == spec
    assert (await jobs.get(job_id)).status is Status.SUCCEEDED


async def test_a_job_of_a_newer_schema_waits_for_a_worker_that_knows_it_and_says_so(
    jobs, a_spec, claim, leases, client, keys, monkeypatch
):
    newer, plain = [(await jobs.submit(a_spec())).job for _ in range(2)]
    client.hset(keys.job(newer.id), "schema", SCHEMA + 1)
    assert claim().job_id == plain.id
    waiting = await jobs.get(newer.id)
    assert (waiting.status, waiting.status_reason, waiting.attempt) == (Status.QUEUED, "newer_schema", 0)
    assert waiting.queue.passed_over
    assert waiting.version == newer.version + 1, "whoever waits for news is told"
    assert claim("cpu:2@alpha") is None
    assert (await jobs.get(newer.id)).version == waiting.version, "once"

    monkeypatch.setattr("dyno.store.leases.SCHEMA", SCHEMA + 1)
    attempt = claim("cpu:2@alpha")
    assert (attempt.job_id, attempt.attempt) == (newer.id, 1)
    assert (await jobs.get(newer.id)).status_reason is None
    assert leases.finish(attempt, "succeed", result=a_result(newer.id))


async def test_a_job_that_no_worker_knows_yet_can_be_canceled(jobs, a_spec, claim, client, keys):
    job_id = (await jobs.submit(a_spec())).job.id
    client.hset(keys.job(job_id), "schema", SCHEMA + 1)
    assert claim() is None
    assert (await jobs.cancel(job_id)).job.status is Status.CANCELED
    assert client.exists(keys.passed("cpu"), keys.resting, keys.queues) == 0


async def test_a_result_of_a_newer_version_is_shown_without_what_is_not_known_of_it(
    jobs, a_spec, claim, leases, client, keys
):
    job_id = (await jobs.submit(a_spec())).job.id
    assert leases.finish(claim(), "succeed", result=a_result(job_id))
    kept = json.loads(decompress(execute_raw(client, "GET", keys.result(job_id))))
    newer = kept | {"later": 1, "phases": kept["phases"] | {"later_s": 1.0}}
    client.set(keys.result(job_id), compress(json.dumps(newer).encode()))
    assert await jobs.result(job_id) == a_result(job_id)
    client.set(keys.result(job_id), compress(json.dumps(newer | {"verdict": "superb"}).encode()))
    with pytest.raises(RecordUnreadable, match="another version"):
        await jobs.result(job_id)

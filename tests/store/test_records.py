import json

import pytest

from dyno.errors import RecordUnreadable
from dyno.models.spec import InterleavedSpec
from dyno.store.records import read_spec

pytestmark = pytest.mark.anyio


async def test_fields_of_a_newer_version_are_kept_out_and_nothing_else_is_lost(jobs, a_spec, client, keys):
    before = (await jobs.submit(a_spec(params={"unknown_to_the_envelope": 1}, measure={"processes": 5}))).job
    spec = json.loads(client.hget(keys.job(before.id), "spec"))
    spec |= {"from_the_future": {"deep": [1]}}
    spec["measure"]["from_the_future"] = 1
    spec["measure"]["processes"]["from_the_future"] = 1
    spec["device"]["from_the_future"] = None
    changes = {"spec": json.dumps(spec), "from_the_future": "x", "schema": "2"}
    client.hset(keys.job(before.id), mapping=changes)

    after = await jobs.get(before.id)

    assert after.schema_version == 2
    assert after.model_copy(update={"schema_version": before.schema_version}) == before


async def test_a_value_this_version_does_not_know_is_refused_with_a_reason(jobs, a_spec, client, keys):
    job = (await jobs.submit(a_spec())).job
    client.hset(keys.job(job.id), "spec", '{"workload": "matmul", "framework": "abacus"}')
    with pytest.raises(RecordUnreadable, match="another version"):
        await jobs.get(job.id)


@pytest.mark.parametrize(
    ("field", "value"),
    [("status", "dreaming"), ("warnings", "{broken"), ("worker", "1"), ("attempt", "x"), ("created_at", "today")],
)
async def test_a_broken_record_is_reported_and_hides_no_other(jobs, a_spec, client, keys, field, value):
    broken, sound = [(await jobs.submit(a_spec())).job for _ in range(2)]
    client.hset(keys.job(broken.id), field, value)
    with pytest.raises(RecordUnreadable, match=broken.id):
        await jobs.get(broken.id)
    assert [job.id for job in (await jobs.list()).data] == [sound.id]


@pytest.mark.parametrize("field", ["id", "queue", "spec", "version"])
async def test_a_record_that_lacks_a_field_is_broken_too(jobs, a_spec, client, keys, field):
    job = (await jobs.submit(a_spec())).job
    client.hdel(keys.job(job.id), field)
    with pytest.raises(RecordUnreadable):
        await jobs.get(job.id)
    assert (await jobs.list()).data == []


async def test_the_attempts_token_is_never_returned(jobs, a_spec, claim):
    await jobs.submit(a_spec())
    attempt = claim()
    assert attempt.token not in (await jobs.get(attempt.job_id)).model_dump_json()


def test_two_specs_in_turns_survive_their_storage_without_fields_of_a_later_version(a_spec):
    spec = InterleavedSpec(**dict(a_spec()), against=a_spec(seed=7), pairs=4, control=True, metric="throughput")
    stored = spec.model_dump(mode="json")
    stored["against"] |= {"later": 1}
    stored["against"]["measure"] |= {"later": 1}
    assert read_spec(json.dumps(stored | {"later": 1})) == spec


def test_every_spec_survives_its_storage(a_spec):
    spec = a_spec(
        device={"kind": "gpu", "model": "NVIDIA H200"},
        measure={"processes": {"min": 2, "max": 9}, "cold_start": True},
        params={"n": 1, "nested": {"list": [1, None, "x"]}},
        timeout_s=12.5,
    )
    assert read_spec(spec.model_dump_json()) == spec

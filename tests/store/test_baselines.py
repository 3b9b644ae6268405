"""Baselines in the store, and the jobs that name one."""

import json
from datetime import UTC, datetime

import pytest

from dyno.errors import LimitReached, RecordUnreadable, UnknownBaseline
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.baseline import Baseline
from dyno.models.job import BaselineOutcome
from dyno.store.named_documents import MOST_BASELINES, Baselines
from tests.comparisons import of_metrics

pytestmark = pytest.mark.anyio

ONE, OTHER, ADMIN = Viewer("key_1", sees_all=False), Viewer("key_2", sees_all=False), Viewer("key_3")


def a_limit(name="main", at_least=1.0, owner=None):
    now = datetime(2026, 11, 23, tzinfo=UTC)
    return Baseline(
        name=name, metric="throughput", margin=0, job=None, at_least=at_least, saved_at=now, owner=owner, schema=1
    )


@pytest.fixture
def of(async_redis, settings):
    return lambda viewer: Baselines(async_redis, settings, viewer)


async def test_a_baseline_is_saved_replaced_and_deleted(of):
    store = of(EVERYBODY)
    assert await store.put(a_limit())
    assert not await store.put(a_limit(at_least=2.0))
    assert await store.get("main") == a_limit(at_least=2.0)
    await store.put(a_limit("a"))
    assert [each.name for each in await store.list()] == ["a", "main"]
    await store.delete("main")
    for ask in (store.get, store.delete):
        with pytest.raises(UnknownBaseline):
            await ask("main")


async def test_keys_have_their_own_names_and_an_admin_reads_all(of):
    for viewer, limit in ((ONE, 1.0), (OTHER, 2.0), (EVERYBODY, 3.0)):
        await of(viewer).put(a_limit(at_least=limit, owner=viewer.owner))
    assert (await of(ONE).get("main")).at_least == 1.0
    assert [each.at_least for each in await of(OTHER).list()] == [2.0]
    assert [each.at_least for each in await of(ADMIN).list()] == [3.0, 1.0, 2.0]
    assert (await of(ADMIN).get("main")).at_least == 3.0
    await of(ADMIN).put(a_limit(at_least=4.0))
    assert (await of(ADMIN).get("main")).at_least == 4.0
    assert (await of(ADMIN).own("main")).at_least == 4.0
    await of(ADMIN).delete("main")
    await of(EVERYBODY).delete("main")
    assert (await of(ADMIN).get("main")).at_least == 1.0


async def test_an_admin_without_a_baseline_of_the_name_neither_uses_nor_deletes_that_of_another_key(of):
    await of(ONE).put(a_limit("theirs"))
    for ask in (of(ADMIN).own, of(ADMIN).delete):
        with pytest.raises(UnknownBaseline):
            await ask("theirs")
    assert await of(ONE).own("theirs") == await of(ADMIN).get("theirs")


async def test_a_key_has_so_many_baselines_at_most(of):
    for number in range(MOST_BASELINES):
        await of(ONE).put(a_limit(f"b{number}"))
    with pytest.raises(LimitReached) as refused:
        await of(ONE).put(a_limit("one-too-many"))
    assert (refused.value.policy, refused.value.quota) == ("baselines", MOST_BASELINES)
    assert len(await of(ONE).list()) == MOST_BASELINES
    assert not await of(ONE).put(a_limit("b0", at_least=5.0))
    assert await of(OTHER).put(a_limit())


async def test_a_damaged_baseline_is_reported(of, client, keys):
    await of(ONE).put(a_limit())
    client.hset(keys.baselines("key_1"), "main", "{")
    with pytest.raises(RecordUnreadable):
        await of(ONE).get("main")


async def test_a_job_keeps_a_copy_of_its_baseline_until_it_is_judged(jobs, leases, a_spec, claim, client, keys):
    submitted = await jobs.submit(a_spec(baseline="main"), baseline=a_limit())
    assert (submitted.job.spec.baseline, submitted.job.baseline) == ("main", None)
    taken = claim()
    assert leases.baseline(taken) == a_limit()
    outcome = BaselineOutcome(name="main", outcome="pass", metric="throughput", ratio=2.0, low=1.5, high=2.5)
    result = of_metrics([]).model_copy(update={"job": taken.job_id, "baseline": outcome})
    assert leases.finish(taken, "succeed", result=result)
    stored = await jobs.read(taken.job_id)
    assert stored.job().baseline == outcome
    assert json.loads(stored.document) == stored.job().model_dump(mode="json", by_alias=True)
    assert (await jobs.result(taken.job_id)).baseline == outcome
    assert not client.hexists(keys.job(taken.job_id), "baseline")


async def test_a_job_that_is_handed_back_keeps_its_baseline(jobs, leases, a_spec, claim):
    await jobs.submit(a_spec(baseline="main"), baseline=a_limit())
    assert leases.requeue(claim(), reason="worker_shutdown", counts_attempt=False)
    assert leases.baseline(claim()) == a_limit()


async def test_a_job_without_a_baseline_has_none(jobs, leases, a_spec, claim):
    submitted = await jobs.submit(a_spec())
    assert '"baseline":null' in submitted.stored.document.replace(" ", "")
    assert leases.baseline(claim()) is None

"""Results that leave as lines, and come into another namespace, which is another Dyno."""

from datetime import UTC, datetime, timedelta

import pytest

from dyno.errors import StoreUnavailable
from dyno.models.api_key import Viewer
from dyno.models.job import Status, imported_job_id, new_job_id
from dyno.models.result import RunSamples
from dyno.models.result_export import ExportedResult
from dyno.store.jobs import Jobs
from dyno.store.redis import JOB_ID, Keys
from dyno.store.result_transfer import NumberedLine, ResultImports, exported_lines
from dyno.store.retention import drop_oldest
from tests.results import a_result

pytestmark = pytest.mark.anyio

SAMPLES = [RunSamples(run=0, warmup=[0.3], samples=[0.25], sample_cpu_s=[(0.2, 0.1)], executions_per_sample=4)]
DEVICE = "cpu:0-1@alpha"
OWNERS = ("key_aaaaaaaaaaaaaaaa", "key_bbbbbbbbbbbbbbbb")


@pytest.fixture
def there(settings):
    """Another Dyno on the same server."""
    return settings.model_copy(update={"namespace": f"{settings.namespace}-there"})


@pytest.fixture
def ran(jobs, leases, a_spec, worker):
    async def one(**fields):
        job_id = (await jobs.submit(a_spec(labels={"commit": "abc"}, **fields))).job.id
        claim = leases.claim(DEVICE, ["cpu"], worker)
        assert claim is not None
        assert leases.finish(claim, "succeed", result=a_result(job_id), samples=SAMPLES)
        return job_id

    return one


async def lines_of(jobs, settings):
    page = await jobs.browse(status=Status.SUCCEEDED)
    texts = [text async for text in exported_lines(jobs._client, settings, page.data, "http://alpha:8000")]
    return [NumberedLine(number, ExportedResult.model_validate_json(text)) for number, text in enumerate(texts, 1)]


def imports(there, jobs, viewer=None):
    seen = Jobs(jobs._client, there)
    if viewer is not None:
        seen = seen.seen_by(viewer)
    return seen, ResultImports(jobs._client, there, seen)


async def test_an_imported_job_has_all_of_the_original_and_says_where_it_ran(jobs, settings, there, ran):
    original = await ran()
    here, importing = imports(there, jobs)
    report = await importing.store(await lines_of(jobs, settings))
    [line] = report.lines
    assert (report.imported, report.already, line.original, line.new) == (1, 0, original, True)
    found, before = await here.get(line.job), await jobs.get(original)
    assert found.imported is not None
    assert (found.imported.source, found.imported.job) == ("http://alpha:8000", original)
    assert datetime.now(UTC) - found.imported.at < timedelta(minutes=1)
    changed = {"id", "imported", "urls", "version", "queue"}
    assert found.model_dump(exclude=changed) == before.model_dump(exclude=changed)
    assert (await here.result(line.job)).model_dump() == (await jobs.result(original)).model_dump() | {"job": line.job}
    assert await here.samples(line.job) == SAMPLES
    assert JOB_ID.fullmatch(line.job)


async def test_imports_of_one_key_cost_no_other_key_a_result(jobs, settings, there, ran, client):
    for _ in range(4):
        await ran()
    lines = await lines_of(jobs, settings)
    (theirs, one), (mine, another) = (imports(there, jobs, Viewer(owner, sees_all=False)) for owner in OWNERS)
    await one.store(lines[:2])
    kept = {line.job for line in (await one.store(lines[:2])).lines}
    await another.store(lines)
    client.delete(Keys(there.namespace).owners)  # as after damage
    assert drop_oldest(client, there.model_copy(update={"max_done": 4})) == {"max_done": 2}
    assert {job.id for job in (await theirs.list()).data} == kept
    assert drop_oldest(client, there.model_copy(update={"key_stored_jobs": 1})) == {"key_stored_jobs": 2}
    assert [len((await each.list()).data) for each in (mine, theirs)] == [1, 1]
    client.zadd(Keys(there.namespace).api_keys, {OWNERS[0]: 1})
    client.hset(Keys(there.namespace).api_key(OWNERS[0]), "stored_jobs", 5)
    await one.store(lines)
    assert drop_oldest(client, there.model_copy(update={"key_stored_jobs": 1})) == {}


async def test_the_age_of_an_imported_job_counts_from_its_import(jobs, settings, there, ran, client):
    for _ in range(4):
        await ran()
    lines = await lines_of(jobs, settings)
    long_ago = dict.fromkeys(("created_at", "queued_at", "started_at", "finished_at"), datetime(2001, 1, 1, tzinfo=UTC))
    old = [
        line._replace(content=line.content.model_copy(update={"job": line.content.job.model_copy(update=long_ago)}))
        for line in lines[2:]
    ]
    here, importing = imports(there, jobs)
    await importing.store(lines[:2])
    last = {line.job for line in (await importing.store(old)).lines}
    assert drop_oldest(client, there.model_copy(update={"max_done": 2})) == {"max_done": 2}
    assert {job.id for job in (await here.list()).data} == last


async def test_importing_it_again_finds_it_and_so_does_the_dyno_that_ran_it(jobs, settings, there, ran):
    original = await ran()
    lines = await lines_of(jobs, settings)
    here, importing = imports(there, jobs)
    first = await importing.store([*lines, *lines])
    again = await importing.store(lines)
    assert (first.imported, first.already) == (1, 1)
    assert (again.imported, again.already, again.lines[0].job) == (0, 1, first.lines[0].job)
    back = await lines_of(here, there)
    _, at_home = imports(settings, jobs)
    assert [(line.job, line.original, line.new) for line in (await at_home.store(back)).lines] == [
        (original, original, False)
    ]
    third, elsewhere = imports(there.model_copy(update={"namespace": f"{there.namespace}-third"}), jobs)
    [moved] = (await elsewhere.store(back)).lines
    assert (await third.get(moved.job)).imported.job == original


async def test_it_is_listed_filtered_and_deleted_and_can_then_be_imported_again(jobs, settings, there, ran, client):
    await ran()
    lines = await lines_of(jobs, settings)
    here, importing = imports(there, jobs)
    job_id = (await importing.store(lines)).lines[0].job

    async def listed(**wanted):
        return [job.id for job in (await here.browse(**wanted)).data]

    fits = [{}, {"workload": "matmul"}, {"status": Status.SUCCEEDED}, {"label": "commit=abc"}, {"label": "commit"}]
    for wanted in [*fits, {"device": "cpu:0-1@alpha"}, {"imported": True}]:
        assert await listed(**wanted) == [job_id], wanted
    assert await listed(imported=False) == []
    assert [job.id for job in (await jobs.browse(imported=False)).data] == [lines[0].content.job.id]
    assert 0 < client.ttl(Keys(there.namespace).result(job_id)) <= lines[0].content.job.spec.expires_in_s
    await here.delete(job_id)
    left = [name for name in client.scan_iter(f"{there.namespace}:*") if job_id in str(client.dump(name))]
    assert [str(name).removeprefix(f"{there.namespace}:") for name in left] in ([], ["events"])
    [again] = (await importing.store(lines)).lines
    assert (again.job, again.new) == (job_id, True)


async def test_it_is_never_counted_as_a_job_that_ran_here(jobs, settings, there, ran, client):
    await ran()
    _, importing = imports(there, jobs)
    await importing.store(await lines_of(jobs, settings))
    keys = Keys(there.namespace)
    assert client.hgetall(keys.counts) == {}
    assert [*client.scan_iter(f"{there.namespace}:paces:*"), *client.scan_iter(f"{there.namespace}:peers:*")] == []


async def test_each_key_has_its_own_copy_and_learns_nothing_of_others_jobs(jobs, settings, there, ran, client):
    await ran()
    lines = await lines_of(jobs, settings)
    found = []
    for owner in ("key_1", "key_2"):
        limits = Viewer(owner, sees_all=False, high_priority=False, expires_in_s=3600)
        here, importing = imports(there, jobs, limits)
        [line] = (await importing.store(lines)).lines
        assert line.new
        assert (await here.get(line.job)).owner == owner
        assert client.ttl(Keys(there.namespace).job(line.job)) <= 3600
        found.append(line.job)
    assert len(set(found)) == 2
    assert found == [imported_job_id(lines[0].content.job.id, owner) for owner in ("key_1", "key_2")]
    limits = Viewer("key_3", sees_all=False, high_priority=False)
    _, at_home = imports(settings, jobs, limits)
    assert (await at_home.store(lines)).imported == 1  # the job itself is another owner's


async def test_a_full_redis_takes_all_lines_or_none(jobs, settings, there, ran, client):
    for _ in range(2):
        await ran()
    lines = await lines_of(jobs, settings)
    here, importing = imports(there, jobs)
    before = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable):
            await importing.store(lines)
    finally:
        client.config_set("maxmemory", before)
    assert (await here.browse()).data == []
    assert (await importing.store(lines)).imported == 2


async def test_a_result_without_a_readable_record_is_left_out_of_the_export(jobs, settings, ran, client):
    gone, damaged, without_samples = [await ran() for _ in range(3)]
    keys = Keys(settings.namespace)
    client.delete(keys.result(gone))
    client.set(keys.result(damaged), "{}")
    client.delete(keys.samples(without_samples))
    [line] = await lines_of(jobs, settings)
    assert (line.content.job.id, line.content.samples) == (without_samples, None)


def test_ids_of_imported_jobs_keep_the_time():
    original = new_job_id()
    ids = [imported_job_id(original, owner) for owner in (None, "key_1")]
    assert all(JOB_ID.fullmatch(each) and each[:14] == original[:14] for each in ids)
    assert len({original, *ids}) == 3

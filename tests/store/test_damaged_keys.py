"""Values of a wrong type in any key: no answer with an error has stored a job, and after the repair all jobs run."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

from chaos.checks import ViolationKind, state_violations
from chaos.snapshot import read
from dyno.errors import StoreUnavailable
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.job import Progress
from dyno.models.sweep import new_sweep_id
from dyno.store import fleet, maintenance, retention
from dyno.store.damage import repair_damage
from dyno.store.leases import Claim, LogPiece
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script
from dyno.store.schedules import Schedules
from dyno.store.sweeps import Sweeps
from dyno.store.webhooks import Deliveries, DeliveryQuery
from tests.deliveries import OWNER, URL
from tests.results import a_result
from tests.store.fleets import CPU, a_worker
from tests.store.test_schedules import a_job, daily, fired, saved
from tests.store.test_sweeps import planned

pytestmark = pytest.mark.anyio

# The parts that vary are those of the jobs below: {done}, {running}, {queued}, {day}, {label}, {class}.
DAMAGED = [
    *("jobs:done", f"jobs:done:{OWNER}", "jobs:served:cpu:1@alpha"),
    *("jobs", "jobs:status:queued", "jobs:status:running", "jobs:status:succeeded", "jobs:workload:matmul"),
    *(f"jobs:owner:{OWNER}", f"jobs:queued:{OWNER}", "jobs:label:{label}", "jobs:audit", "jobs:damaged"),
    *(
        "jobs:webhooks",
        "jobs:webhooks:due",
        "jobs:webhooks:ready",
        f"jobs:webhooks:owner:{OWNER}",
        "jobs:webhooks:clock",
    ),
    *("queue:cpu", "queues", "classes:cpu", "class:cpu:{class}", "passed:cpu", "resting", "woken:cpu"),
    *("jobs:turns:cpu", f"jobs:waiting:cpu:{OWNER}"),
    *("lease:cpu:0@alpha", "lease:cpu:1@alpha", "leases", "cordoned", "workers", "expiring", "events", "counts"),
    *("sequence", "artifacts", f"spent:{OWNER}:{{day}}", "job:{done}:webhook"),
    *("job:{running}:events", "job:{running}:log", "job:{running}:partial"),
]


JOB = "job_01M8GBVH5PYK5J9VQT1Z4NHWCW"
# The keys whose values nothing else has. A key that leaves this list loses its damaged values.
KEPT = {
    *("job:<job>", "job:<job>:result", "job:<job>:samples", "keys", "key:<key>", "key:opened", "session:<digest>"),
    *("idempotency:<digest>", "comparison:<comparison>", "sweep:<sweep>", "schedules:<owner>"),
    *("baselines", "baselines:<owner>", "peers:<series>", "paces:<series>"),
    *("alarms:<series>", "alarms:checked", "alarms:looked"),
    *("worker:<worker>", "worker:<worker>:heartbeat", "worker:<host>:host"),
}


def names_of(keys, kind):
    """A name for each row of `Keys` whose damaged values scripts delete, or refuse."""
    names = [row.name for row in Keys.rows().values() if (row.origin == "record") is (kind == "refused")]
    given = [name.replace("<job>", JOB).replace("<owner>", owner) for owner in (OWNER, "") for name in names]
    return {f"{keys.namespace}:{re.sub('<.+?>', '0', name)}" for name in given}


def test_no_damaged_value_is_deleted_that_nothing_else_has():
    assert {row.name for row in Keys.rows().values() if row.origin == "record"} == KEPT


async def test_every_key_of_a_store_in_use_has_its_row(lives, async_redis, mine, spec, client, keys, settings, outbox):
    await lives()
    await Sweeps(async_redis, settings, mine).submit(new_sweep_id(), *planned(spec))
    await Schedules(async_redis, settings, EVERYBODY).put(daily())
    await outbox.take()
    maintenance.audit_indexes(client, settings)
    rows = Keys.rows().values()
    for name in map(str, client.scan_iter(f"{keys.namespace}:*")):
        inner = name.removeprefix(f"{keys.namespace}:")
        assert client.type(name) in {row.type for row in rows if re.match(row.pattern, inner)}, name


@pytest.mark.parametrize("kind", ["derived", "refused"])
@pytest.mark.parametrize("command", ["'ZADD', KEYS[1], 1, 'a'", "'HGET', KEYS[1], 'a'"], ids=["write", "read"])
def test_scripts_delete_no_value_that_nothing_else_has(client, keys, command, kind):
    ledger = SCRIPT_SOURCES[Script.EXPIRE].rpartition("-- KEYS[1]")[0]
    for name in names_of(keys, kind):
        client.delete(name, keys.damaged)
        client.rpush(name, "truth")
        with suppress(redis.ResponseError):
            client.eval(f"{ledger}\nreturn redis.call({command})", 1, name, keys.namespace)
        assert (client.type(name) == "list") is (kind == "refused"), name


def test_maintenance_deletes_no_value_that_nothing_else_has(client, keys, settings):
    names = names_of(keys, "refused") | names_of(keys, "derived")
    for name in names:
        client.rpush(name, "truth")
    repair_damage(client, settings)
    assert {name for name in names if client.type(name) == "list"} == names_of(keys, "refused")
    assert client.smembers(keys.damaged) == set()


@pytest.mark.parametrize("damaged", ["sweep", "schedules"])
async def test_a_damaged_record_keeps_no_index_from_being_made_again(jobs, client, keys, settings, a_spec, damaged):
    client.rpush(keys.sweep(new_sweep_id()) if damaged == "sweep" else keys.schedules(None), "no record at all")
    job_id = (await jobs.submit(a_spec())).job.id
    damage(client, keys.jobs)
    damage(client, keys.artifacts)
    repair_damage(client, settings)
    assert client.smembers(keys.damaged) == set()
    assert client.zrange(keys.jobs, 0, -1) == client.zrange(keys.artifacts, 0, -1) == [job_id]


@pytest.fixture
def mine(jobs):
    return jobs.seen_by(Viewer(OWNER, sees_all=False))


@pytest.fixture
def spec(a_spec):
    return a_spec(webhook={"url": URL}, labels={"a": "b"})


Lives = Callable[[], Awaitable[tuple[dict[str, str], Claim]]]


@pytest.fixture
def lives(mine, spec, claim, leases):
    """A done job, a running one and a queued one, by status, and the attempt of the running one."""

    async def one():
        ids = [(await mine.submit(spec)).job.id for _ in range(3)]
        leases.finish(claim("cpu:1@alpha"), "succeed", result=a_result(ids[0]), samples=[])
        running = claim("cpu:0@alpha")
        assert not leases.heartbeat(running, Progress(phase="sampling", run=1, runs=1), LogPiece(0, "one")).superseded
        return dict(zip(("done", "running", "queued"), ids, strict=True)), running

    return one


def damage(client, name):
    is_string = client.type(name) == "string" or Keys(name.split(":")[0]).deletable_type(name) == "string"
    client.delete(name)
    if is_string:
        client.lpush(name, "a list")
    else:
        client.set(name, "a string")


def records(client, keys):
    return {str(name) for name in client.scan_iter(f"{keys.job('job_')}*") if str(name).count(":") == 2}


def wrong_indexes(client, keys):
    found = [each.what for each in state_violations(read(client, keys)) if each.kind is ViolationKind.INDEX]
    return [what for what in found if not what.startswith("the audit had to repair")]


@pytest.mark.parametrize("name", DAMAGED)
async def test_a_value_of_a_wrong_type_stops_no_job_and_is_made_again(
    lives, mine, jobs, spec, claim, leases, client, keys, settings, outbox, name
):
    ids, running = await lives()
    label = next(iter(client.scan_iter(f"{keys.namespace}:jobs:label:*"))).rpartition(":")[2]
    [of_class] = client.hkeys(keys.classes("cpu"))
    parts = {"day": client.time()[0] // 86400, "label": label, "class": of_class}
    damaged = f"{keys.namespace}:{name.format(**ids, **parts)}"
    damage(client, damaged)

    new = [(await mine.submit(spec, idempotency_key="one", body_sha256="b")).job.id]
    assert (await mine.submit(spec, idempotency_key="one", body_sha256="b")).job.id == new[0]
    claimed = [claim("cpu:1@alpha").job_id]
    assert not leases.heartbeat(running, Progress(phase="sampling", run=1, runs=1), LogPiece(1, "two")).superseded
    assert leases.finish(running, "succeed", result=a_result(ids["running"]), samples=[])
    delivered = {taken.job_id for taken in [await outbox.take()] if taken}
    canceled = (await mine.submit(spec)).job.id
    await mine.cancel(canceled)

    repair_damage(client, settings)
    soon = settings.model_copy(update={"reap_every_s": 0.0})
    for _ in range(3):
        failed = [repair for repair in maintenance.audit_indexes(client, soon) if repair.kind.startswith("failed")]
        assert failed == []
    maintenance.queues_to_wake(client, settings)
    maintenance.drop_expired(client, settings)
    maintenance.expire_leases(client, settings)
    assert client.type(damaged) in ("none", keys.deletable_type(damaged))
    assert repair_damage(client, settings) == []
    assert wrong_indexes(client, keys) == []
    while taken := await outbox.take():
        delivered.add(taken.job_id)
    assert delivered == {ids["done"], ids["running"], canceled}
    assert {job.id for job in (await mine.list(label="a=b")).data} == {*ids.values(), *new, canceled}
    new.append((await mine.submit(spec)).job.id)
    claimed += [claim(f"cpu:{device}@beta").job_id for device in range(2)]
    assert sorted(claimed) == sorted([ids["queued"], *new])


@pytest.mark.parametrize("damaged", ["the record", "the idempotency key", "the API key"])
async def test_what_can_not_be_made_again_is_refused_before_anything_is_stored(
    lives, mine, spec, claim, client, keys, settings, damaged
):
    ids, _ = await lives()
    names = {"the record": keys.job(ids["queued"]), "the idempotency key": keys.idempotency(OWNER, "one")}
    damage(client, names.get(damaged, keys.api_key(OWNER)))
    before = records(client, keys)
    with nullcontext() if damaged == "the record" else pytest.raises(redis.ResponseError):
        new = (await mine.submit(spec, idempotency_key="one", body_sha256="b")).job.id
    if damaged == "the record":
        assert claim("cpu:1@alpha").job_id == new, "the queue goes on behind the damaged job"
        assert ids["queued"] not in client.zrange(keys.queue("cpu"), 0, -1)
    else:
        assert records(client, keys) == before


@pytest.mark.parametrize("name", ["passed:cpu", "sequence", f"spent:{OWNER}:{{day}}"])
async def test_damaged_figures_stop_no_submit(lives, mine, spec, claim, leases, client, keys, settings, name):
    ids, running = await lives()
    name = f"{keys.namespace}:{name.format(day=client.time()[0] // 86400)}"
    if name == f"{keys.namespace}:sequence":
        client.set(name, "junk")
    else:
        client.hset(name, mapping=dict.fromkeys(("profile", "device_ms"), "junk"))
    before = records(client, keys)
    new = (await mine.submit(spec)).job
    assert records(client, keys) - before == {keys.job(new.id)}
    assert [job.id for job in (await mine.list(limit=1)).data] == [new.id]
    assert leases.finish(running, "succeed", result=a_result(ids["running"]), samples=[])
    for device in ("cpu:1@alpha", "cpu:2@alpha"):
        job_id = claim(device).job_id
    assert job_id == new.id


async def test_a_list_with_a_damaged_index_is_refused_until_it_is_made_again(
    lives, mine, spec, async_redis, client, keys, settings
):
    ids, _ = await lives()
    sweeps = Sweeps(async_redis, settings, mine)
    first = new_sweep_id()
    await sweeps.submit(first, *planned(spec))
    deliveries = Deliveries(async_redis, settings, mine.viewer)
    [label] = [name for name in client.scan_iter(keys.jobs_with_label("*")) if client.zscore(name, ids["done"])]
    lists: list[tuple[str, Callable[[], Awaitable[Any]], str]] = [
        (keys.jobs_of_owner(OWNER), partial(mine.list, label="a=b"), ids["done"]),
        (keys.jobs_of_workload("matmul"), partial(mine.list, workload="matmul"), ids["done"]),
        (label, partial(mine.list, label="a=b"), ids["done"]),
        (keys.sweeps_of_owner(OWNER), partial(sweeps.page, None, 10), first),
        (keys.webhooks_of_owner(OWNER), partial(deliveries.page, DeliveryQuery(), None, 10), f"msg_{ids['done'][4:]}"),
    ]
    for index, listed, expected in lists:
        assert expected in {each.id for each in (await listed()).data}, index
        damage(client, index)
        with pytest.raises(StoreUnavailable):
            await listed()
        assert index in repair_damage(client, settings)
        assert expected in {each.id for each in (await listed()).data}, index


async def test_a_damaged_sweep_or_schedule_is_met_once_and_hides_no_other(
    lives, mine, spec, async_redis, client, keys, settings
):
    await lives()
    sweeps, schedules = Sweeps(async_redis, settings, mine), Schedules(async_redis, settings, EVERYBODY)
    ids = [new_sweep_id() for _ in range(3)]
    for sweep_id in ids:
        await sweeps.submit(sweep_id, *planned(spec))
    await schedules.put(daily("other"))
    client.hset(keys.schedules(None), "junk", "[]")
    client.hset(keys.sweep(ids[0]), "created_at", "junk")
    damage(client, keys.sweep(ids[1]))
    damage(client, keys.schedules(OWNER))
    damage(client, keys.schedules_due)
    damage(client, keys.sweeps_of_owner(OWNER))
    client.set(keys.repairing, client.time()[0] * 1000, px=60_000)
    assert repair_damage(client, settings) == [], "another process is at it"
    client.delete(keys.repairing)
    assert {keys.schedules_due, keys.sweeps_of_owner(OWNER)} <= set(repair_damage(client, settings))
    assert repair_damage(client, settings) == []
    assert [each.id for each in (await sweeps.page(None, 10)).data] == [ids[2]]
    assert [name for name, _ in client.zscan_iter(keys.schedules_due)] == [":other"]


async def test_the_repair_charges_no_uncharged_job(mine, spec, client, keys, settings):
    charged, _ = [(await mine.submit(spec, uncharged=uncharged)).job.id for uncharged in (False, True)]
    damage(client, keys.queued_of_owner(OWNER))
    client.sadd(keys.damaged, keys.jobs)
    repair_damage(client, settings)
    assert client.zrange(keys.queued_of_owner(OWNER), 0, -1) == [charged]


async def test_the_repair_deletes_no_key_that_was_made_again_meanwhile(lives, client, keys, settings):
    """Another process makes the key again just before this one deletes it."""
    await lives()
    made: list[str] = []
    damage(client, keys.expiring)

    class Late(redis.Redis):
        def execute_command(self, *args, **options):
            if args[0] in ("DEL", "EVALSHA") and not made:
                made.append("kept")
                client.delete(keys.expiring)
                client.zadd(keys.expiring, {"kept": 1})
            return super().execute_command(*args, **options)

    repair_damage(Late(connection_pool=client.connection_pool), settings)
    assert client.zscore(keys.expiring, *made) == 1


async def test_retention_goes_on_behind_a_damaged_index(jobs, mine, a_spec, client, keys, settings):
    for viewer in (jobs, mine):
        await viewer.cancel((await viewer.submit(a_spec())).job.id)
    damage(client, keys.done_of_owner(OWNER))
    damage(client, keys.api_key("key_b"))
    client.zadd(keys.api_keys, {"key_b": 1})
    assert retention.drop_oldest(client, settings.model_copy(update={"max_done": 0})) == {"max_done": 2}


async def test_retention_goes_on_behind_a_damaged_record(mine, a_spec, client, keys, settings):
    damaged, other = [(await mine.submit(a_spec())).job.id for _ in range(2)]
    for job_id in (damaged, other):
        await mine.cancel(job_id)
    damage(client, keys.job(damaged))
    assert retention.drop_oldest(client, settings.model_copy(update={"max_done": 0})) == {"max_done": 1}


@pytest.mark.parametrize("name", ["sweeps", "sweeps:due", "sweeps:watched", f"sweeps:owner:{OWNER}"])
async def test_a_sweep_is_submitted_once_and_listed_whatever_index_is_damaged(
    async_redis, mine, spec, client, settings, name
):
    sweeps = Sweeps(async_redis, settings, mine)
    record, new = planned(spec)
    first = new_sweep_id()
    await sweeps.submit(first, record, new)
    damage(client, f"{settings.namespace}:{name}")
    record, new = planned(spec)
    second = new_sweep_id()
    for _ in range(2):
        assert await sweeps.submit(second, record.model_copy(update={"stop_hopeless": True}), new) == (second, False)
    repair_damage(client, settings)
    assert {each.id for each in (await sweeps.page(None, 10)).data} == {first, second}
    assert len((await mine.list()).data) == 6
    assert second in {each.id for each in await sweeps.watched()}


@pytest.mark.parametrize("name", ["schedules", "schedules:due"])
async def test_a_firing_makes_one_job_whatever_index_of_schedules_is_damaged(async_redis, jobs, client, settings, name):
    schedules = Schedules(async_redis, settings, EVERYBODY)
    await schedules.put(daily("other"))
    before = await saved(schedules, daily())
    damage(client, f"{settings.namespace}:{name}")
    job = a_job()
    for _ in range(2):
        await schedules.fire(before, fired(daily(), job.id), job, jobs)
    assert [each.id for each in (await jobs.list()).data] == [job.id]
    repair_damage(client, settings)
    assert [each.name for each in await schedules.list()] == ["nightly", "other"]
    assert {each.name for each in (await schedules.due())[1]} == {"nightly", "other"}


async def test_a_live_worker_is_listed_again_after_a_heartbeat(async_redis, client, keys, settings):
    device, worker = CPU, a_worker("w")
    fleet.publish(client, settings, device, worker)
    damage(client, keys.workers)
    with pytest.raises(redis.ResponseError):
        fleet.extend(client, settings, worker)
    repair_damage(client, settings)
    assert fleet.extend(client, settings, worker)
    assert [each.id for each in await fleet.workers(async_redis, settings)] == ["w"]

"""Records, leases, queues and indexes agree: a script that fails changes nothing, and the audit repairs the rest."""

import pytest
import redis

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.models.api_key import Viewer
from dyno.models.job import Progress, Status
from dyno.store import maintenance
from dyno.store.jobs import Jobs
from dyno.store.leases import Leases
from dyno.store.maintenance import REPAIRS, Maintenance, Repair, audit_indexes, expire_leases
from dyno.store.redis import async_client, sync_client
from tests.results import a_result
from tests.store.contents import contents
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

DEVICE = "cpu:0-1@alpha"
DENIED = pytest.mark.parametrize("command", ["xadd", "zadd", "zrem", "hdel", "del", "hincrby"])


class Rights:
    """A user of Redis who may do everything, until the test denies a command. `settings`: to connect as this user."""

    def __init__(self, client, settings):
        self._client, self._user = client, settings.namespace
        url = str(settings.redis_url).replace("unix://", f"unix://{self._user}:any@")
        self.settings = settings.model_copy(update={"redis_url": url})
        self._set("on", "nopass", "~*", "+@all")

    def deny(self, command):
        self._set(f"-{command}")

    def end(self):
        self._client.execute_command("ACL", "DELUSER", self._user)

    def _set(self, *rules):
        self._client.execute_command("ACL", "SETUSER", self._user, *rules)


@pytest.fixture
def rights(client, settings):
    rights = Rights(client, settings)
    yield rights
    rights.end()


@pytest.fixture
def audit(client, settings):
    """Audit now, however short ago the last audit was."""
    return lambda: audit_indexes(client, settings.model_copy(update={"reap_every_s": 0.0}))


@DENIED
async def test_a_claim_that_lacks_a_right_leaves_the_job_in_its_queue(
    jobs, a_spec, claim, worker, client, rights, command
):
    job_id = (await jobs.submit(a_spec())).job.id
    before = contents(client, rights.settings.namespace)
    rights.deny(command)
    with (
        sync_client(rights.settings) as poor,
        pytest.raises(redis.exceptions.NoPermissionError, match=f"may not {command.upper()} "),
    ):
        Leases(poor, rights.settings).claim(DEVICE, ["cpu"], worker)
    assert contents(client, rights.settings.namespace) == before
    attempt = claim()
    assert (attempt.job_id, attempt.attempt) == (job_id, 1)


@DENIED
async def test_a_lease_that_can_not_be_ended_for_lack_of_a_right_is_ended_later(
    jobs, a_spec, claim, run_out, client, rights, trusting, caplog, command
):
    job_id = (await jobs.submit(a_spec())).job.id
    claim()
    run_out()
    before = contents(client, trusting.namespace)
    rights.deny(command)
    with sync_client(rights.settings) as poor:
        assert expire_leases(poor, trusting) == []
    assert f"the lease of {DEVICE} ran out and can't be ended" in caplog.text
    assert f"may not {command.upper()} " in caplog.text
    assert contents(client, trusting.namespace) == before
    assert expire_leases(client, trusting) == [job_id]
    assert claim().attempt == 2


@DENIED
@pytest.mark.parametrize("how", ["succeed", "requeue"])
async def test_an_attempt_that_can_not_end_for_lack_of_a_right_ends_later(
    jobs, a_spec, claim, client, rights, leases, command, how
):
    def end(of):
        if how == "requeue":
            return of.requeue(attempt, reason="tested", counts_attempt=True)
        return of.finish(attempt, "succeed", samples=[1])

    job_id = (await jobs.submit(a_spec())).job.id
    attempt = claim()
    before = contents(client, rights.settings.namespace)
    rights.deny(command)
    with sync_client(rights.settings) as poor, pytest.raises(redis.exceptions.NoPermissionError):
        end(Leases(poor, rights.settings))
    assert contents(client, rights.settings.namespace) == before
    assert end(leases)
    assert (await jobs.get(job_id)).status is (Status.QUEUED if how == "requeue" else Status.SUCCEEDED)
    assert not client.exists(f"{rights.settings.namespace}:lease:{DEVICE}")


async def test_a_cancel_that_lacks_a_right_leaves_the_job_in_its_queue(jobs, a_spec, claim, client, rights):
    job_id = (await jobs.submit(a_spec())).job.id
    before = contents(client, rights.settings.namespace)
    rights.deny("xadd")
    async with async_client(rights.settings) as poor:
        with pytest.raises(redis.exceptions.NoPermissionError):
            await Jobs(poor, rights.settings).cancel(job_id)
    assert contents(client, rights.settings.namespace) == before
    assert claim().job_id == job_id


async def test_a_value_of_another_type_in_the_place_of_a_jobs_events_does_not_keep_it_from_ending(
    jobs, a_spec, claim, run_out, leases, client, keys, trusting
):
    job_id = (await jobs.submit(a_spec())).job.id
    claim()
    client.set(keys.job_events(job_id), "not a stream")
    run_out()
    assert expire_leases(client, trusting) == [job_id]
    assert leases.finish(claim(), "succeed")
    assert [fields["event"] for _, fields in client.xrange(keys.job_events(job_id))] == ["expire", "claim", "succeed"]
    assert client.hget(keys.counts, "repaired stream") == "1"


OWNER = "key_aaaaaaaaaaaaaaaa"
ENDS = ["jobs:webhooks", "jobs:webhooks:due", f"jobs:webhooks:owner:{OWNER}", "expiring", "job:{job}:webhook"]
MOVES = {
    "claim": ["jobs:status:queued", "jobs:status:running", f"jobs:queued:{OWNER}", "leases"],
    "expire": [
        *("jobs:status:running", "jobs:status:queued", f"jobs:queued:{OWNER}", f"spent:{OWNER}:{{today}}"),
        *("queue:cpu", "class:cpu:{class}"),
    ],
    "succeed": ["jobs:status:running", "jobs:status:succeeded", f"spent:{OWNER}:{{today}}", *ENDS],
    "cancel": ["jobs:status:queued", "jobs:status:canceled", f"jobs:queued:{OWNER}", *ENDS],
}


@pytest.mark.parametrize(("move", "name"), [(move, name) for move, names in MOVES.items() for name in names])
async def test_a_value_of_another_type_in_the_place_of_an_index_leaves_no_job_half_moved(
    jobs, a_spec, claim, run_out, leases, client, keys, trusting, move, name
):
    mine = jobs.seen_by(Viewer(OWNER, sees_all=False))
    job_id = (await mine.submit(a_spec(webhook="https://hooks.example.org/x"))).job.id
    [of_class] = client.hkeys(f"{keys.namespace}:classes:cpu")
    if move in ("expire", "succeed"):
        attempt = claim()
    if move == "expire":
        run_out()
    today = client.time()[0] // 86400
    damaged = f"{keys.namespace}:{name.format(**{'job': job_id, 'today': today, 'class': of_class})}"
    client.delete(damaged)
    client.set(damaged, "neither a sorted set nor a hash")
    if move == "claim":
        assert claim().job_id == job_id
    elif move == "expire":
        assert expire_leases(client, trusting) == [job_id]
    elif move == "succeed":
        assert leases.finish(attempt, "succeed", result=a_result(job_id), samples=[])
    else:
        await mine.cancel(job_id)
    audited = [violation.what for violation in state_violations(read(client, keys))]
    assert [what for what in audited if not what.startswith("the audit had to repair 1 times: index")] == []
    assert client.xrevrange(keys.job_events(job_id), count=1)[0][1]["event"] == move


@pytest.mark.parametrize(
    "name",
    [
        *("jobs", "jobs:workload:matmul", f"jobs:owner:{OWNER}", "jobs:label:{label}"),
        *("queue:cpu", "class:cpu:{class}"),
    ],
)
async def test_a_value_of_another_type_in_the_place_of_an_index_keeps_no_job_from_being_queued(
    jobs, a_spec, claim, client, keys, name
):
    mine = jobs.seen_by(Viewer(OWNER, sees_all=False))
    await mine.submit(a_spec(labels={"a": "b"}))
    [of_class] = client.hkeys(f"{keys.namespace}:classes:cpu")
    [label] = [key.rpartition(":")[2] for key in client.scan_iter(keys.jobs_with_label("*"))]
    damaged = f"{keys.namespace}:{name.format(**{'label': label, 'class': of_class})}"
    for key in client.scan_iter(f"{keys.namespace}:*"):
        client.delete(key)
    client.set(damaged, "no sorted set")
    job_id = (await mine.submit(a_spec(labels={"a": "b"}))).job.id
    audited = [violation.what for violation in state_violations(read(client, keys))]
    assert audited == ["the audit had to repair 1 times: index"]
    assert claim().job_id == job_id


async def test_a_heartbeat_that_lacks_a_right_leaves_the_events_alone(jobs, a_spec, claim, client, keys, rights):
    await jobs.submit(a_spec())
    attempt = claim()
    before = client.xrange(keys.job_events(attempt.job_id)), client.xrange(keys.events)
    rights.deny("xadd")
    with sync_client(rights.settings) as poor, pytest.raises(redis.exceptions.ResponseError):
        Leases(poor, rights.settings).heartbeat(attempt, Progress(phase="sampling", run=1, runs=1))
    assert (client.xrange(keys.job_events(attempt.job_id)), client.xrange(keys.events)) == before


async def test_a_lease_that_can_not_be_read_does_not_block_the_others(
    jobs, a_spec, claim, run_out, client, keys, trusting
):
    job_id = (await jobs.submit(a_spec())).job.id
    claim()
    run_out()
    client.set(keys.lease("cpu:9@beta"), "no lease")
    client.zadd(keys.leases, {"cpu:9@beta": 0})
    assert expire_leases(client, trusting) == [job_id]


async def test_the_audit_gives_a_running_job_a_lease_that_its_worker_keeps(
    jobs, a_spec, claim, leases, client, keys, audit
):
    job_id = (await jobs.submit(a_spec())).job.id
    attempt = claim()
    whole = client.hgetall(keys.lease(DEVICE))
    lose_lease(client, keys)
    assert audit() == [Repair("running_without_lease", job_id)]
    assert client.hgetall(keys.lease(DEVICE)).keys() == whole.keys()
    assert audit() == []
    assert not leases.heartbeat(attempt, None).superseded
    assert leases.finish(attempt, "succeed")


async def test_a_job_without_lease_whose_worker_is_gone_runs_elsewhere_after_one_lease(
    jobs, a_spec, claim, run_out, client, keys, audit, trusting
):
    job_id = (await jobs.submit(a_spec())).job.id
    claim()
    lose_lease(client, keys)
    audit()
    run_out()
    assert expire_leases(client, trusting) == [job_id]
    assert claim("cpu:2@beta").attempt == 2


async def test_a_job_whose_device_has_another_lease_is_queued_again_and_its_worker_notified(
    jobs, a_spec, claim, leases, client, keys, audit
):
    for _ in range(2):
        await jobs.submit(a_spec())
    first = claim()
    lose_lease(client, keys)
    second = claim()
    assert audit() == [Repair("running_without_lease", first.job_id)]
    job = await jobs.get(first.job_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.QUEUED, "worker_lost", 1)
    assert leases.heartbeat(first, None).superseded
    assert leases.finish(second, "succeed")
    assert claim().job_id == first.job_id


async def test_a_lease_outside_the_list_of_leases_gets_into_it(jobs, a_spec, claim, client, keys, audit):
    job_id = (await jobs.submit(a_spec())).job.id
    claim()
    expires_ms = client.zscore(keys.leases, DEVICE)
    client.zrem(keys.leases, DEVICE)
    assert audit() == [Repair("lease_not_listed", job_id)]
    assert client.zscore(keys.leases, DEVICE) == expires_ms
    client.zrem(keys.leases, DEVICE)
    assert claim() is None
    assert client.zscore(keys.leases, DEVICE) == expires_ms, "a claim that finds the lease lists it, too"
    assert client.hget(keys.counts, "repaired lease_not_listed") == "2"


async def test_a_queued_job_outside_its_queue_gets_its_place_again(jobs, a_spec, claim, client, keys, audit):
    first, second = [(await jobs.submit(a_spec())).job.id for _ in range(2)]
    client.zrem(keys.queue("cpu"), first)
    assert audit() == [Repair("queued_without_queue", first)]
    assert audit() == []
    assert [claim().job_id, claim("cpu:2@alpha").job_id] == [first, second]


async def test_a_queue_outside_the_list_of_queues_gets_into_it(jobs, a_spec, client, keys, audit):
    job_id = (await jobs.submit(a_spec())).job.id
    client.srem(keys.queues, "cpu")
    assert audit() == [Repair("queue_not_listed", job_id)]
    assert client.smembers(keys.queues) == {"cpu"}


async def test_the_record_decides_about_the_index_of_its_status(jobs, a_spec, client, keys, audit):
    job_id = (await jobs.submit(a_spec())).job.id
    running, queued = (keys.jobs_with_status(status) for status in ("running", "queued"))
    created_ms = client.zscore(queued, job_id)
    client.zrem(queued, job_id)
    client.zadd(running, {job_id: created_ms, "job_gone": created_ms})
    assert sorted(audit()) == sorted([Repair("wrong_status", job_id), Repair("wrong_status", "job_gone")])
    assert client.zrange(running, 0, -1) == []
    assert client.zscore(queued, job_id) == created_ms


@pytest.mark.parametrize("status", ["queued", "running"])
async def test_a_job_that_the_index_of_its_status_lacks_gets_into_it_and_is_repaired_then(
    jobs, a_spec, claim, client, keys, audit, status
):
    job_id = (await jobs.submit(a_spec())).job.id
    if status == "running":
        claim()
        lose_lease(client, keys)
    index = keys.jobs_with_status(status)
    before = client.zrange(index, 0, -1, withscores=True)
    client.delete(index)
    client.zrem(keys.queue("cpu"), job_id)
    lost = {"queued": "queued_without_queue", "running": "running_without_lease"}[status]
    assert [audit() for _ in range(3)] == [[Repair("status_not_listed", job_id)], [Repair(lost, job_id)], []]
    assert client.zrange(index, 0, -1, withscores=True) == before


async def test_an_audit_changes_nothing_where_all_is_right(jobs, a_spec, claim, leases, client, keys, audit):
    for device in ("cpu", "any", "cpu", "gpu"):
        canceled = (await jobs.submit(a_spec(device=device))).job.id
    await jobs.cancel(canceled)
    assert leases.finish(claim(), "succeed")
    assert leases.requeue(claim(), reason="tested", counts_attempt=True)
    claim("cpu:2@alpha")
    before = contents(client, keys.namespace)
    assert audit() == []
    assert {name: text for name, text in contents(client, keys.namespace).items() if name != keys.audit} == before


async def test_an_audit_looks_at_a_bounded_number_of_jobs_and_the_next_one_goes_on_there(
    jobs, a_spec, client, keys, audit, monkeypatch
):
    monkeypatch.setattr(maintenance, "_AUDITED_AT_ONCE", 2)
    ids = [(await jobs.submit(a_spec())).job.id for _ in range(5)]
    client.delete(keys.queue("cpu"))
    audits = [[repair.job_id for repair in audit()] for _ in range(4)]
    assert audits == [ids[:2], ids[2:4], ids[4:], []]
    assert client.zrange(keys.queue("cpu"), 0, -1) == ids
    audit(), audit()
    client.delete(keys.jobs_with_status("queued"))
    assert [[repair.job_id for repair in audit()] for _ in range(4)] == [ids[:2], ids[2:4], ids[4:], []]


async def test_of_all_processes_one_audits_in_an_interval_also_after_the_clock_stepped_back(
    jobs, a_spec, client, keys, settings
):
    job_id = (await jobs.submit(a_spec())).job.id
    rarely = settings.model_copy(update={"reap_every_s": 3600.0})
    found = []
    for _ in range(2):
        client.zrem(keys.queue("cpu"), job_id)
        found += audit_indexes(client, rarely)
    assert found == [Repair("queued_without_queue", job_id)]
    client.hset(keys.audit, "at_ms", (client.time()[0] + 7200) * 1000)
    assert audit_indexes(client, rarely) == found


async def test_a_damaged_record_is_reported_and_the_others_are_repaired(jobs, a_spec, client, keys, audit):
    damaged, other = [(await jobs.submit(a_spec())).job.id for _ in range(2)]
    client.hdel(keys.job(damaged), "queue")
    client.zrem(keys.queue("cpu"), other)
    first, second = audit()
    assert first.job_id == damaged
    assert first.kind.startswith("failed: the record has no queue")
    assert second == Repair("queued_without_queue", other)


async def test_maintenance_audits_and_logs_and_counts_each_repair(jobs, a_spec, client, keys, settings, caplog):
    job_id = (await jobs.submit(a_spec())).job.id
    client.zrem(keys.queue("cpu"), job_id)
    maintenance = Maintenance(settings.model_copy(update={"reap_every_s": 0.02}), lambda queue: None)
    maintenance.start()
    eventually(lambda: f"repaired the indexes of {job_id}: queued_without_queue" in caplog.text)
    maintenance.stop()
    counted = {name.partition(" ")[2] for name in client.hkeys(keys.counts) if name.startswith("repaired ")}
    assert counted == {"queued_without_queue"}
    assert counted <= set(REPAIRS)


def lose_lease(client, keys):
    client.delete(keys.lease(DEVICE))
    client.zrem(keys.leases, DEVICE)

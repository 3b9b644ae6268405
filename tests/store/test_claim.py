from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import redis.asyncio

from dyno.errors import StoreUnavailable
from dyno.models.job import DEVICE_BUSY, FailureClass, Holder, Status, WorkerRef
from dyno.store.fleet import cordon
from dyno.store.leases import Leases
from dyno.store.placement import ClaimFilter
from dyno.store.redis import Script, sync_client
from tests.store.conftest import DEVICE

pytestmark = pytest.mark.anyio


async def test_a_claim_has_the_job_its_attempt_and_the_number_of_jobs_left(jobs, a_spec, claim, worker):
    first = (await jobs.submit(a_spec(seed=1))).job
    await jobs.submit(a_spec(seed=2))

    got = claim()

    assert (got.job_id, got.spec.seed, got.attempt) == (first.id, 1, 1)
    assert (got.queue, got.left_behind, got.cancel_requested) == ("cpu", 1, False)
    job = await jobs.get(first.id)
    assert (job.status, job.worker, job.attempt) == (Status.RUNNING, worker, 1)
    assert job.started_at is not None
    assert job.queue.name == "cpu"
    assert job.queue.position is None


async def test_the_best_head_over_all_queues_wins_by_class_and_then_by_arrival(jobs, a_spec, leases, worker):
    low = (await jobs.submit(a_spec(priority="low"))).job.id
    normal_any = (await jobs.submit(a_spec(device="any"))).job.id
    normal_cpu = (await jobs.submit(a_spec())).job.id
    high = (await jobs.submit(a_spec(priority="high", device="any"))).job.id

    order = []
    for number in range(4):
        got = leases.claim(f"cpu:{number}@alpha", ["cpu", "any"], worker)
        assert got is not None
        order.append(got.job_id)

    assert order == [high, normal_any, normal_cpu, low]


async def test_a_job_whose_device_is_held_names_the_holder_until_it_is_claimed(
    jobs, a_spec, leases, claim, client, keys
):
    first, second = [(await jobs.submit(a_spec())).job for _ in range(2)]
    other = Holder(device=DEVICE, pid=77, command="python -m workers", job="job_1")
    assert [leases.pass_over(other, ["any", "cpu"]) for _ in range(2)] == ["cpu", "cpu"]
    waiting = await jobs.get(first.id)
    assert (waiting.status, waiting.status_reason, waiting.attempt) == (Status.QUEUED, DEVICE_BUSY, 0)
    assert waiting.queue.held_by == other
    assert waiting.version == first.version + 1, "once for each holder"
    assert (await jobs.get(second.id)).version == second.version

    later = other.model_copy(update={"job": "job_2"})
    leases.pass_over(later, ["cpu"])
    assert (await jobs.get(first.id)).queue.held_by == later
    got = claim()
    assert (got.job_id, got.attempt) == (first.id, 1)
    running = await jobs.get(first.id)
    assert (running.status_reason, running.queue.held_by) == (None, None)
    entries = [fields for _, fields in client.xrange(keys.job_events(first.id))]
    assert [each["event"] for each in entries] == ["submit", "pass_over", "pass_over", "claim"]
    assert [Holder.model_validate_json(each["held_by"]) for each in entries[1:3]] == [other, later]


async def test_pass_over_records_nothing_if_no_job_would_be_claimed(jobs, a_spec, leases, async_redis, settings):
    held = Holder(device=DEVICE, pid=77)
    assert leases.pass_over(held, ["cpu"]) is None
    job = (await jobs.submit(a_spec())).job
    assert leases.pass_over(held, ["cpu"], ClaimFilter("p", lambda spec: False)) is None
    await cordon(async_redis, settings, DEVICE)
    assert leases.pass_over(held, ["cpu"]) is None
    assert (await jobs.get(job.id)).version == job.version


async def test_a_job_canceled_while_its_device_is_held_names_no_holder(jobs, a_spec, leases):
    job_id = (await jobs.submit(a_spec())).job.id
    leases.pass_over(Holder(device=DEVICE, pid=77), ["cpu"])
    canceled = (await jobs.cancel(job_id)).job
    assert (canceled.status, canceled.queue.held_by) == (Status.CANCELED, None)


async def test_a_device_takes_nothing_from_queues_it_does_not_serve(jobs, a_spec, leases, worker):
    await jobs.submit(a_spec(device="gpu"))
    assert leases.claim("cpu:0@alpha", ["cpu", "any"], worker) is None


async def test_a_leased_device_gets_nothing_even_after_its_lease_ran_out(jobs, a_spec, claim, run_out):
    await jobs.submit(a_spec())
    await jobs.submit(a_spec())
    assert claim() is not None
    assert claim() is None
    run_out()
    assert claim() is None


async def test_a_claim_whose_answer_was_lost_gets_the_same_job_again(jobs, a_spec, leases, claim, monkeypatch):
    first = (await jobs.submit(a_spec())).job
    await jobs.submit(a_spec())
    script = leases._scripts[Script.CLAIM]

    def run_but_lose_the_answer(**call):
        script(**call)
        raise redis.TimeoutError("no answer in time")

    with monkeypatch.context() as patch:
        patch.setitem(leases._scripts, Script.CLAIM, run_but_lose_the_answer)
        with pytest.raises(StoreUnavailable):
            claim()
    assert (await jobs.get(first.id)).status is Status.RUNNING

    again = claim()
    assert (again.job_id, again.attempt) == (first.id, 1)
    assert leases.finish(again, "succeed")
    assert claim().job_id != first.id


async def test_twenty_workers_claim_each_job_exactly_once(jobs, a_spec, settings, client, keys):
    submitted = {(await jobs.submit(a_spec())).job.id for _ in range(60)}
    together = threading.Barrier(20)

    def work(number):
        own: list[str] = []
        with sync_client(settings) as connection:
            leases = Leases(connection, settings)
            worker = WorkerRef(id=f"w{number}", device=f"cpu:{number}", host="alpha")
            together.wait(60)
            while (got := leases.claim(f"cpu:{number}@alpha", ["cpu"], worker)) is not None:
                own.append(got.job_id)
                assert leases.finish(got, "succeed")
        return own

    with ThreadPoolExecutor(20) as pool:
        claimed = Counter(job_id for own in pool.map(work, range(20)) for job_id in own)

    assert claimed == Counter(submitted)
    assert client.zcard(keys.leases) == 0
    assert client.smembers(keys.queues) == set()


@pytest.mark.parametrize("text", ['{"workload": "matmul", "framework": "abacus"}', "{broken", "5"])
async def test_a_spec_that_can_not_be_read_fails_as_unsupported_and_the_next_job_is_claimed(
    jobs, a_spec, claim, client, keys, text
):
    strange = (await jobs.submit(a_spec())).job.id
    client.hset(keys.job(strange), "spec", text)
    plain = (await jobs.submit(a_spec())).job.id

    assert claim().job_id == plain
    record = client.hgetall(keys.job(strange))
    assert record["status"] == Status.FAILED
    assert record["status_reason"] == "unreadable_spec"
    assert FailureClass.UNSUPPORTED in record["failure"]


async def test_a_queue_entry_without_a_record_is_dropped_on_the_way(jobs, a_spec, claim, client, keys):
    job_id = (await jobs.submit(a_spec())).job.id
    client.zadd(keys.queue("cpu"), {"job_that_never_was": 0})
    assert claim().job_id == job_id
    assert client.zcard(keys.queue("cpu")) == 0

"""Keys take turns: within a priority, no key's jobs hold up another key's first job, however many they are."""

import asyncio

import pytest

from dyno.models.api_key import Viewer
from dyno.models.job import Status
from dyno.store.placement import ClaimFilter

pytestmark = pytest.mark.anyio

OWNERS = {name: f"key_{name * 16}" for name in "abc"}
FAST, SLOW = "fast00000000", "slow00000000"


@pytest.fixture
def queue(jobs, a_spec):
    """Submit a job of a key, "a" to "c", or of everybody, ""; its id."""

    async def queued(owner, fits=None, **fields):
        of_owner = jobs.seen_by(Viewer(OWNERS.get(owner), sees_all=False))
        return (await of_owner.submit(a_spec(**fields), fits=fits)).job.id

    return queued


@pytest.fixture
def claimed(leases, worker):
    """Claim and finish jobs for one device, one after another; their ids."""

    def work(number, queues=("cpu",), profile="", device="cpu:0@alpha"):
        done = []
        for _ in range(number):
            claim = leases.claim(device, queues, worker, ClaimFilter(profile, lambda spec: True))
            assert claim is not None
            assert leases.finish(claim, "fail")
            done.append(claim.job_id)
        return done

    return work


async def test_two_keys_take_turns_and_each_keeps_its_order(jobs, queue, claimed):
    first = [await queue("a") for _ in range(5)]
    other = [await queue("b") for _ in range(2)]
    assert [(await jobs.get(job_id)).queue.position for job_id in other] == [1, 3]
    assert claimed(7) == [first[0], other[0], first[1], other[1], *first[2:]]


async def test_a_key_that_comes_back_gets_the_next_turn_and_no_more(queue, claimed):
    flood = [await queue("a") for _ in range(9)]
    assert claimed(4) == flood[:4]
    back = [await queue("b") for _ in range(3)]
    more = [await queue("a") for _ in range(2)]
    assert claimed(10) == [flood[4], back[0], flood[5], back[1], flood[6], back[2], flood[7], flood[8], *more]


async def test_jobs_that_were_canceled_cost_no_turn(jobs, queue, claimed):
    for job_id in [await queue("a") for _ in range(20)]:
        await jobs.cancel(job_id)
    keeps = await queue("b")
    own = await queue("a")
    others = [await queue("b") for _ in range(5)]
    assert claimed(7) == [keeps, own, *others]
    for job_id in [await queue("a") for _ in range(20)][:-1]:
        await jobs.cancel(job_id)
    others = [await queue("b") for _ in range(5)]
    assert others[0] != claimed(1)[0] != others[1]


async def test_what_a_key_has_canceled_costs_it_no_turn_behind_a_long_queue_of_another(jobs, queue):
    for _ in range(30):
        await queue("a")
    for job_id in [await queue("b") for _ in range(20)]:
        await jobs.cancel(job_id)
    late = await queue("b")
    assert (await jobs.get(late)).queue.position == 1


async def test_what_a_faster_device_has_done_for_a_key_costs_it_no_turn_on_a_slower_one(queue, claimed):
    large, small = {FAST: False, SLOW: True}, {FAST: True, SLOW: False}
    for _ in range(30):
        await queue("a", large, params={"n": 900})
    quick = [await queue("b", small, params={"n": 100}) for _ in range(20)]
    assert claimed(20, profile=FAST) == quick
    late = await queue("b", large, params={"n": 900})
    assert late in claimed(2, profile=SLOW)


async def test_a_key_gets_no_larger_share_by_more_queues(queue, claimed):
    served = ["cpu:0", "cpu", "any"]
    for device in served:
        for _ in range(8):
            await queue("a", device=device)
    other = [await queue("b", device="cpu") for _ in range(6)]
    assert set(other) <= set(claimed(12, served))


async def test_a_job_behind_another_key_that_uses_two_queues_waits_for_one_of_its_jobs(queue, claimed):
    for device in ("any", "cpu"):
        for _ in range(6):
            await queue("a", device=device)
    behind = [await queue(owner, device=device) for owner, device in (("b", "cpu"), ("c", "any"))]
    assert set(behind) < set(claimed(4, ["cpu", "any"]))


async def test_a_single_key_keeps_its_order_over_all_queues(queue, claimed):
    submitted = [await queue("a", device=device) for device in ("cpu", "cpu", "any", "cpu", "any")]
    assert claimed(5, ["cpu", "any"]) == submitted


async def test_requests_without_a_key_count_as_one_key(queue, claimed):
    first = [await queue("") for _ in range(3)]
    other = await queue("a")
    assert claimed(4) == [first[0], other, *first[1:]]


async def test_turns_are_taken_within_a_priority(queue, claimed):
    low = await queue("b", priority="low")
    first = [await queue("a") for _ in range(2)]
    high = [await queue("a", priority="high") for _ in range(2)]
    assert claimed(5) == [*high, *first, low]


async def test_no_key_holds_up_another_from_a_queue_that_its_device_serves_too(queue, claimed):
    flood = [await queue("a", device="any") for _ in range(6)] + [await queue("a") for _ in range(6)]
    behind = await queue("b", device="any")
    alone = await queue("c", device="cpu:0")
    assert {behind, alone} <= set(claimed(6, ["cpu:0", "cpu", "any"]))
    assert set(claimed(8, ["cpu:0", "cpu", "any"])) < {*flood}


async def test_what_a_faster_device_has_done_for_others_holds_up_nobody_on_a_slower_one(queue, claimed):
    large, small = {FAST: False, SLOW: True}, {FAST: True, SLOW: False}
    flood = [await queue("a", large, params={"n": 900}) for _ in range(20)]
    assert claimed(1, profile=SLOW) == flood[:1]
    quick = [await queue("b", small, params={"n": 100}) for _ in range(20)]
    assert claimed(12, profile=FAST) == quick[:12]
    late = await queue("c", large, params={"n": 900})
    also = [await queue("c", small, params={"n": 100}) for _ in range(4)]
    assert late in claimed(2, profile=SLOW)
    assert claimed(4, profile=FAST) != also, "the key has no credit for the time in which it had no jobs"


async def test_a_retried_job_goes_to_the_front_even_of_a_queue_that_was_empty_since(
    queue, leases, worker, claimed, jobs
):
    [await queue("a") for _ in range(5)]
    claimed(4)
    claim = leases.claim("cpu:1@alpha", ["cpu"], worker)
    assert claim is not None
    waiting = [await queue(owner) for owner in "abab"]
    leases.requeue(claim, reason="tested", counts_attempt=True)
    assert (await jobs.get(claim.job_id)).queue.position == 0
    assert claimed(5) == [claim.job_id, *waiting]


async def test_an_empty_queue_forgets_the_keys(jobs, queue, claimed, client, keys):
    ids = [await queue(owner) for owner in "abca"]
    assert client.zrange(keys.waiting("cpu", OWNERS["a"]), 0, -1) == [ids[0], ids[3]]
    await jobs.cancel(ids[0])
    claimed(3)
    assert not list(client.scan_iter(keys.waiting("*", "*")))


@pytest.mark.verify
async def test_25000_jobs_of_one_key_hold_up_no_job_of_another(jobs, queue, claimed):
    for _ in range(100):
        await asyncio.gather(*(queue("a") for _ in range(250)))
    late = await queue("b")
    assert (await jobs.get(late)).queue.position == 1
    assert late in claimed(2)
    assert (await jobs.get(late)).status is Status.FAILED

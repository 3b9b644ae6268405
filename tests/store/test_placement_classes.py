"""Placement classes: a claim costs the same behind any number of jobs that don't fit, and keeps their order."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from dyno.models.job import SCHEMA
from dyno.store.leases import Claim
from dyno.store.maintenance import Repair, audit_indexes
from dyno.store.placement import ClaimFilter
from dyno.store.redis import SCRIPT_SOURCES, Script

pytestmark = pytest.mark.anyio

SIZES = {"small0000000": 10, "medium000000": 20, "large0000000": 30}  # profile -> the largest `n` that fits
SMALL, MEDIUM, LARGE = SIZES
MOST_CLASSES = 32  # as in submit.lua


@pytest.fixture
def queue(jobs, a_spec):
    """Queue a job that needs `n`. `known`: the profiles that the API knows; `fields`: those of the spec."""

    async def queued(n, known=(), **fields):
        fits = {profile: n <= SIZES[profile] for profile in known}
        return (await jobs.submit(a_spec(params={"n": n}, **fields), fits=fits)).job.id

    return queued


@pytest.fixture
def asked():
    """The needs of the jobs that claims asked about."""
    return []


@pytest.fixture
def take(leases, worker, asked):
    def claimed(profile):
        def fits(spec):
            asked.append(int(str(spec.params["n"])))
            return asked[-1] <= SIZES[profile]

        return leases.claim(f"{profile}@alpha", ["cpu", "any"], worker, ClaimFilter(profile, fits))

    return claimed


@pytest.fixture
def commands(client):
    """The commands that Redis runs during a call, those of scripts included."""

    client.script_load(SCRIPT_SOURCES[Script.CLAIM])

    def read():
        stats: Any = client.info("commandstats")
        return Counter({name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()})

    def ran(call):
        before = read()
        call()
        return read() - before - Counter(["info"])

    return ran


@pytest.fixture
def index(client, keys):
    """The jobs of each class of a queue."""

    def read(queue="cpu"):
        return {name: client.zrange(keys.class_jobs(queue, name), 0, -1) for name in client.hkeys(keys.classes(queue))}

    return read


async def test_a_job_is_claimed_with_the_same_commands_behind_any_number_that_do_not_fit(queue, take, leases, commands):
    costs = []
    for more in (10, 2000):
        for number in range(more):
            await queue(20 + number % 3, SIZES)
        last = await queue(1, SIZES)
        claims: list[Claim] = []
        costs.append(commands(lambda: claims.append(take(SMALL))))  # noqa: B023 - called at once
        assert claims[0].job_id == last
        leases.finish(claims[0], "succeed")
    assert costs[0] == costs[1]
    assert costs[0]["evalsha"] == 1


@pytest.mark.verify
async def test_a_profile_that_the_api_did_not_know_is_asked_once_per_class(queue, take, asked, commands):
    for number in range(2000):
        await queue(20 + number % 3)
    last = await queue(1)
    claims: list[Claim] = []
    assert commands(lambda: claims.append(take(SMALL)))["evalsha"] == 4
    assert (claims[0].job_id, sorted(asked)) == (last, [1, 20, 21, 22])

    await queue(1, priority="high")
    asked.clear()
    assert take(SMALL) is None  # its lease stands
    assert asked == []


async def test_more_needs_than_classes_are_classed_by_their_answers(queue, take, asked, index, commands):
    known = [SMALL, LARGE]
    for n in range(100, 100 + MOST_CLASSES):
        await queue(n, known)
    large, larger, _, small = [await queue(n, known) for n in (25, 26, 300, 5)]
    by_answers = {name: members for name, members in index().items() if "~" in name}
    assert len(index()) == MOST_CLASSES + 3
    assert by_answers[f"{SCHEMA}~{LARGE}+{SMALL}-"] == [large, larger]

    claims: list[Claim] = []
    assert commands(lambda: claims.extend([take(SMALL), take(LARGE)]))["evalsha"] == 2
    assert [claim.job_id for claim in claims] == [small, large]
    assert asked == []


async def test_jobs_classed_by_their_answers_are_asked_about_one_by_one_and_each_once(queue, take, asked, leases):
    for n in range(100, 100 + MOST_CLASSES):
        await queue(n)
    for n in range(300, 400):
        await queue(n)
    fit = await queue(20)
    claim = take(MEDIUM)
    assert claim.job_id == fit
    assert sorted(asked) == sorted({*range(100, 100 + MOST_CLASSES), *range(300, 400), 20})
    leases.finish(claim, "succeed")
    asked.clear()
    assert take(MEDIUM) is None
    assert asked == []


async def test_an_unreadable_spec_does_not_answer_for_its_class(queue, take, jobs, client, keys):
    damaged, waiting = [await queue(30) for _ in range(2)]
    client.hset(keys.job(damaged), "spec", '{"workload": 1}')
    assert take(SMALL) is None  # the damaged job fails in between
    assert (await jobs.get(waiting)).status == "queued"
    assert client.hget(keys.job(damaged), "status") == "failed"


@pytest.mark.parametrize("seed", range(6))
async def test_each_device_gets_the_best_job_that_fits_it(seed, queue, take, jobs, leases, index, client):
    """Random submits, claims, requeues and cancels, against a sorted list."""
    rng = random.Random(seed)
    ranks = {"high": 0, "normal": 1, "low": 2}
    line: list[tuple[int, int, str, int]] = []  # rank, number, id, needs
    held: dict[str, tuple[Claim, tuple[int, int, str, int]]] = {}
    for number in range(250):
        move = rng.choice(["submit", "submit", "claim", "claim", "requeue", "finish", "cancel"])
        profile = rng.choice(list(SIZES))
        if move == "submit":
            n, priority = rng.choice([5, 15, 25, 35, *range(100, 150)]), rng.choice(list(ranks))
            known = rng.sample(list(SIZES), rng.randrange(4))
            place = {"priority": priority, "device": rng.choice(["cpu", "any"])}
            line.append((ranks[priority], number, await queue(n, known, **place), n))
            line.sort()
        elif move == "cancel" and line:
            await jobs.cancel(line.pop(rng.randrange(len(line)))[2])
        elif move == "claim" and profile not in held:
            fitting = [each for each in line if each[3] <= SIZES[profile]]
            claim = take(profile)
            assert (claim and claim.job_id) == (fitting[0][2] if fitting else None)
            if fitting:
                line.remove(fitting[0])
                held[profile] = claim, fitting[0]
        elif profile in held:
            claim, job = held.pop(profile)
            if move == "requeue":
                assert leases.requeue(claim, reason="shutdown", counts_attempt=False)
                line.append(job)
                line.sort()
            else:
                assert leases.finish(claim, "succeed")
    classed = [job for name in ("cpu", "any") for members in index(name).values() for job in members]
    assert sorted(classed) == sorted(each[2] for each in line)
    assert all(members for name in ("cpu", "any") for members in index(name).values())


async def test_a_requeued_job_keeps_the_answers_of_its_class(queue, take, leases, asked):
    job_id = await queue(15, SIZES)
    leases.requeue(take(MEDIUM), reason="shutdown", counts_attempt=False)
    assert take(SMALL) is None
    assert take(LARGE).job_id == job_id
    assert asked == []


@pytest.fixture
def forget_classes(client, keys):
    """Take these jobs out of the classes, as damage does: they have their own answers, and are in the queue alone."""

    def forgotten(job_ids, queue="cpu"):
        for job_id in job_ids:
            record = client.hgetall(keys.job(job_id))
            name = f"{record['schema']}.{record['needs']}"
            client.hset(keys.job(job_id), "fits", client.hget(keys.classes(queue), name))
            client.hdel(keys.job(job_id), "needs")
        for name in client.hkeys(keys.classes(queue)):
            client.zrem(keys.class_jobs(queue, name), *job_ids)
            if not client.exists(keys.class_jobs(queue, name)):
                client.hdel(keys.classes(queue), name)

    return forgotten


async def test_a_queue_without_classes_is_claimed_in_its_order(queue, take, forget_classes, leases, asked):
    waiting = [await queue(15 if number % 2 else 5, SIZES) for number in range(450)]
    forget_classes(waiting)
    for expected in waiting[0::2][:3]:
        claim = take(SMALL)
        assert claim.job_id == expected
        leases.finish(claim, "succeed")
    assert take(MEDIUM).job_id == waiting[1]
    assert asked == []


async def test_a_job_whose_class_is_not_listed_is_claimed(queue, take, client, keys, index):
    first, second = await queue(5, SIZES), await queue(15, SIZES)
    name, _ = [name for name, jobs in sorted(index().items(), key=lambda item: item[1] != [first])]
    client.hdel(keys.classes("cpu"), name)
    assert take(MEDIUM).job_id == first
    client.delete(keys.classes("cpu"))
    assert take(LARGE).job_id == second


async def test_jobs_that_the_queue_or_the_classes_lack_are_noticed(queue, take, forget_classes, client, keys, index):
    taken, mine, theirs = [await queue(15, SIZES) for _ in range(3)]
    client.zrem(keys.queue("cpu"), taken)
    client.hset(keys.job(taken), "status", "running")
    assert take(MEDIUM).job_id == mine
    forget_classes([theirs])
    assert take(LARGE).job_id == theirs
    assert index() == {}


async def test_the_audit_finds_what_no_claim_notices(queue, take, forget_classes, client, keys, settings, index):
    """The queue lacks one job and the classes another one, so the counts agree."""
    taken, theirs = await queue(25, SIZES), await queue(5, SIZES)
    client.zrem(keys.queue("cpu"), taken)
    client.hset(keys.job(taken), "status", "running")
    forget_classes([theirs])
    assert take(SMALL) is None

    found = audit_indexes(client, settings.model_copy(update={"reap_every_s": 0.0}))
    assert Repair("class_not_listed", theirs) in found
    assert take(SMALL).job_id == theirs
    assert index() == {}


async def test_the_index_costs_less_than_150_bytes_per_job(queue, client, keys, index):
    count = 1000
    for number in range(count):
        await queue(20 + number % 3, SIZES)
    names = [keys.classes("cpu"), *(keys.class_jobs("cpu", name) for name in index())]
    assert sum(client.memory_usage(name, samples=0) for name in names) < 150 * count

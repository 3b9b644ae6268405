"""A look for alarms: which series it sees, and how many reruns it submits. The test decides when it looks."""

import asyncio

import pytest

from dyno.artifact_store import service_store
from dyno.bench.registry import registry
from dyno.models.api_key import Limits, NewKey, Scope
from dyno.models.job import WorkerRef
from dyno.store.leases import Leases
from dyno.store.placement import queues_served
from dyno.store.redis import Keys, sync_client
from dyno.tracing import Tracer
from service.history import result_history
from service.history.result_history import AlarmWatch
from service.state import opened
from tests.comparisons import a_metric
from tests.service.workers import succeed

pytestmark = pytest.mark.anyio

NOISE = (0.995, 1.0, 1.005)
STEP = [100.0] * 10 + [80.0] * 4


@pytest.fixture
async def watch(settings, http):
    async with opened(settings, registry(), service_store(settings), asyncio.Event(), Tracer()) as state:
        yield AlarmWatch(state)


@pytest.fixture
def results(finished):
    """Results of a spec of its own for each `n`. Each of `metrics` has the levels; a steady one comes first."""

    def make(n, levels, metrics=()):
        jobs = []
        for at, level in enumerate(levels):
            by_run = [level * NOISE[at % 3]] * 2
            steady = a_metric(by_run=[100.0 * NOISE[at % 3]] * 2)
            found = [steady, *(a_metric(name, by_run) for name in metrics)] if metrics else None
            jobs.append(finished(by_run, {"params": {"n": n}}, found))
        return jobs

    return make


def reruns(http, n):
    """Those of the jobs of this spec. They are canceled, so that no test claims them."""
    jobs = http.get("/v1/jobs", params={"limit": 200}).raise_for_status().json()["data"]
    found = [job for job in jobs if job["rerun_of"] and job["spec"]["params"]["n"] == n]
    for job in found:
        http.post(job["urls"]["cancel"]).raise_for_status()
    return [job["id"] for job in found]


async def test_a_job_that_ends_after_newer_ones_raises_its_alarm(http, watch, settings, offered, results, submitted):
    results(110, STEP[:12])
    job = submitted(params={"n": 110})
    with sync_client(settings) as client:
        leases, worker = Leases(client, settings), WorkerRef(id="w", device=offered.id, host=offered.host)
        claim = leases.claim("cpu:2-3@here", queues_served(offered), worker)  # the device itself runs the newer ones
        assert claim is not None
        results(111, STEP[:2])
        await watch.look("matmul")
        assert reruns(http, 110) == []
        assert claim.job_id == job
        succeed(leases, claim, [a_metric(by_run=[80.0, 80.1])])
    await watch.look("matmul")
    assert len(reruns(http, 110)) == 1


async def test_after_the_clock_of_redis_stepped_back_results_raise_their_alarm(http, watch, settings, results):
    results(160, STEP[:12])
    await watch.look("matmul")
    with sync_client(settings) as client:
        looked = Keys(settings.namespace).alarms_looked
        number, at_s = str(client.hget(looked, "matmul")).split()
        client.hset(looked, "matmul", f"{number} {float(at_s) + 3600}")
    results(160, STEP[12:])
    await watch.look("matmul")
    assert len(reruns(http, 160)) == 1


@pytest.mark.parametrize(("n", "field"), [(170, "expires_at"), (171, "revoked_at")])
async def test_the_alarm_of_a_key_that_is_no_longer_valid_submits_nothing(http, watch, settings, results, n, field):
    keys, ids = Keys(settings.namespace), results(n, STEP)
    owner, _ = await watch._state.keys.create(NewKey(name="ci", scope=Scope.SUBMIT))
    with sync_client(settings) as client:
        for job_id in ids:
            client.hset(keys.job(job_id), "owner", owner.id)
        client.hset(keys.api_key(owner.id), field, "1.000000")
        await watch.look("matmul")
        client.delete(keys.api_keys)  # so that the API, which has seen no key, needs none
    assert reruns(http, n) == []


async def test_a_change_of_another_metric_is_shown_and_not_rerun(http, watch, results):
    results(120, STEP, ("cold_throughput", "memory_rate"))
    await watch.look("matmul")
    assert reruns(http, 120) == []
    found = http.get("/v1/history", params={"metric": "memory_rate", "limit": len(STEP)}).json()
    assert (found["alarms"], len(found["series"][0]["changes"])) == ([], 1)


async def test_the_rerun_counts_against_no_limit_of_the_key(http, watch, settings, results):
    keys, ids = Keys(settings.namespace), results(121, STEP)
    new = NewKey(name="ci", scope=Scope.SUBMIT, limits=Limits(device_s_per_day=1))
    owner, _ = await watch._state.keys.create(new)
    with sync_client(settings) as client:
        for job_id in ids:
            client.hset(keys.job(job_id), "owner", owner.id)
        today = int(client.time()[0] // 86400)
        for day in (today, today + 1):  # the day may end while this test runs
            client.hset(keys.spent(owner.id, day), "device_ms", 5000)
        await watch.look("matmul")
        client.delete(keys.api_keys)  # so that the API, which has seen no key, needs none
    assert len(reruns(http, 121)) == 1


async def test_results_of_other_specs_push_no_series_out_of_sight(http, watch, results, monkeypatch):
    monkeypatch.setattr(result_history, "MOST_RESULTS", len(STEP))
    for level in STEP:
        results(130, [level])
        results(131, [100.0] * 2)
    await watch.look("matmul")
    assert (len(reruns(http, 130)), reruns(http, 131)) == (1, [])


async def test_a_look_reads_only_the_series_with_new_results(watch, results, monkeypatch):
    looked, look_at = list[int](), watch._look_at

    async def counting(jobs):
        looked.append(len(jobs))
        return await look_at(jobs)

    results(140, STEP[:5])
    await watch.look("matmul")
    monkeypatch.setattr(watch, "_look_at", counting)
    results(141, STEP[:3])
    for _ in range(2):
        await watch.look("matmul")
    assert looked == [3]


async def test_jobs_of_another_dyno_are_not_rerun(http, watch, results):
    jobs = results(150, STEP)
    exported = {"limit": len(jobs), "format": "jsonl"}
    lines = http.get("/v1/results", params=exported).raise_for_status().content
    for job in jobs:
        http.delete(f"/v1/jobs/{job}").raise_for_status()
    headers = {"Content-Type": "application/x-ndjson"}
    report = http.post("/v1/results/import", content=lines, headers=headers).raise_for_status().json()
    assert report["imported"] == len(jobs)
    await watch.look("matmul")
    [alarm] = http.get("/v1/history", params={"limit": len(jobs)}).json()["alarms"]
    assert (alarm["state"], alarm["rerun"]) == ("new", None)
    assert reruns(http, 150) == []

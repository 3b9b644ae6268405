"""When waiting jobs are likely to be claimed: a real store, with past jobs planted in it."""

from __future__ import annotations

import itertools

import pytest

from dyno.models.job import Progress, Status
from dyno.store import eta
from dyno.store.eta import FORECAST_FRESH_S
from dyno.store.fleet import cordon, uncordon
from dyno.store.placement import profile
from tests.store.fleets import gpu
from tests.store.forecast.conftest import ONE, TWO, estimate

pytestmark = pytest.mark.anyio


async def test_a_job_waits_for_the_rest_of_what_runs_and_for_those_before_it(offer, learn, submit, take, etas, jobs):
    offer(ONE)
    learn("matmul", "mnist_cnn")
    running = await submit(workload="mnist_cnn")
    take(ONE, elapsed_s=50)
    waiting = [await submit(), await submit(), await submit()]
    first, second, third = await etas(*waiting)
    assert 100 < first <= 150  # of 200 s 50 are over, and what this test has taken
    assert (second - first, third - first) == (20, 40)
    assert waiting[2].queue.eta_s == pytest.approx(third, abs=50)  # in the answer to the submit, too
    listed = {job.id: job.queue.eta_s for job in (await jobs.list()).data}
    assert listed == {running.id: None, **dict(zip([job.id for job in waiting], [first, second, third], strict=True))}


async def test_two_devices_share_the_line(offer, learn, submit, etas):
    offer(ONE, TWO)
    learn("matmul")
    waiting = [await submit() for _ in range(5)]
    assert await etas(*waiting) == [0, 0, 20, 20, 40]


async def test_jobs_before_it_in_other_queues_of_the_device_count(offer, learn, submit, etas):
    offer(ONE)
    learn("matmul")
    low = await submit(priority="low")
    others = [await submit(device="any"), await submit(device="gpu:0"), await submit(device="gpu:0@alpha")]
    assert await etas(*others, low) == [0, 20, 40, 60]


async def test_a_job_that_fits_the_busy_device_only_waits_for_that_one(offer, learn, submit, take, etas):
    offer(ONE, gpu(1, units=8))
    learn("matmul", "mnist_cnn")
    await submit(workload="mnist_cnn", device="gpu:1")
    take(TWO)
    big, small = await submit(replicas=8), await submit()
    waits, at_once = await etas(big, small)
    assert (waits > 100, at_once) == (True, 0)


async def test_jobs_behind_one_of_unknown_duration_have_no_eta(offer, learn, submit, etas):
    offer(ONE)
    learn("matmul")
    learn("mnist_cnn", times=2)
    waiting = [await submit(), await submit(workload="mnist_cnn"), await submit()]
    assert await etas(*waiting) == [0, 20, None]
    learn("mnist_cnn", times=1)
    assert await etas(*waiting) == [0, 20, 220]


async def test_the_eta_of_an_overlong_run_comes_from_its_progress(offer, learn, submit, take, leases, etas):
    offer(ONE)
    learn("matmul")
    await submit()
    held = take(ONE, elapsed_s=1000)
    waiting = await submit()
    assert await etas(waiting) == [None]
    leases.heartbeat(held, Progress(phase="sampling", run=1, runs=1, eta_s=750.0, elapsed_s=1000.0))
    assert await etas(waiting) == [pytest.approx(750, abs=50)]


async def test_the_progress_of_a_running_job_counts_more_than_earlier_jobs(offer, learn, submit, take, leases, etas):
    offer(ONE)
    learn("matmul")
    await submit()
    held = take(ONE, elapsed_s=1000)
    waiting = await submit()
    reported = Progress(phase="sampling", run=1, runs=1, fraction=0.5, eta_s=500.0, elapsed_s=900.0)
    leases.heartbeat(held, reported)
    [eta_s] = await etas(waiting)
    assert 300 < eta_s <= 400
    leases.heartbeat(held, reported.model_copy(update={"eta_s": 50.0}))
    [overdue_s] = await etas(waiting)
    assert 0 < overdue_s < 1


async def test_a_device_used_by_another_process_gives_no_eta(offer, learn, submit, etas):
    learn("matmul")
    offer(ONE, state="busy", held_by={"device": ONE.full_id, "pid": 77})
    waiting = [await submit(), await submit()]
    assert await etas(*waiting) == [None, None]
    offer(TWO)
    assert await etas(*waiting) == [0, 20]


@pytest.mark.parametrize("how", ["absent", "cordoned", "draining"])
async def test_devices_that_claim_nothing_are_left_out(how, offer, learn, submit, etas, async_redis, settings):
    learn("matmul")
    if how != "absent":
        offer(TWO, state="draining" if how == "draining" else "idle")
    if how == "cordoned":
        await cordon(async_redis, settings, TWO.full_id)
    waiting = [await submit(), await submit()]
    assert await etas(*waiting) == [None, None]
    offer(ONE)
    assert await etas(*waiting) == [0, 20]
    offer(TWO)
    await uncordon(async_redis, settings, TWO.full_id)
    assert await etas(*waiting) == [0, 0]


async def test_beyond_the_snapshot_the_eta_grows_in_proportion(offer, learn, submit, etas, monkeypatch):
    monkeypatch.setattr(eta, "MAX_FORECAST_JOBS", 3)
    offer(ONE)
    learn("matmul")
    waiting = [await submit() for _ in range(6)]
    assert await etas(*waiting) == [0, 20, 40, 40 * 4 / 3, 40 * 5 / 3, 80]


async def test_many_requests_share_one_forecast_for_a_second(offer, learn, submit, take, etas, jobs, now):
    offer(ONE)
    learn("matmul")
    waiting = [await submit(), await submit()]
    assert await etas(*waiting) == [0, 20]
    take(ONE)
    assert (await jobs.get(waiting[1].id)).queue.eta_s == 20
    now[0] += FORECAST_FRESH_S + 0.1
    found = await jobs.get(waiting[1].id)
    assert 0 < found.queue.eta_s < 20
    assert found.version == waiting[1].version


async def test_a_job_queued_after_the_forecast_gets_the_eta_of_its_position(offer, learn, take, jobs, a_spec, now):
    offer(ONE)
    learn("matmul")
    now[0] += 60

    async def submitted(**fields):
        """While the clock stands still: the first of them is looked at."""
        return (await jobs.submit(a_spec(**{"device": "gpu"} | fields))).job

    first, second = await submitted(), await submitted()
    urgent = await submitted(priority="high")
    elsewhere = await submitted(device="gpu:0@alpha")
    told = [job.queue.eta_s for job in (first, second, urgent, elsewhere)]
    assert told == [0, 20, 0, 20]
    assert [(await jobs.get(job.id)).queue.eta_s for job in (first, second)] == [0, 20]


async def test_a_job_queued_after_the_forecast_waits_for_those_claimed_since(offer, learn, take, jobs, a_spec, now):
    offer(ONE)
    learn("matmul")
    now[0] += 60

    async def submitted(**fields):
        return (await jobs.submit(a_spec(**{"device": "gpu"} | fields))).job

    first, second = await submitted(), await submitted()  # the first of them is looked at
    assert (first.queue.eta_s, second.queue.eta_s) == (0, 20)
    take(ONE)
    third, urgent = await submitted(), await submitted(priority="high")
    assert [job.queue.eta_s for job in (third, urgent)] == [20, 20]
    assert [(await jobs.get(job.id)).queue.eta_s for job in (second, urgent)] == [20, 20]
    assert min(job.queue.eta_s for job in (await jobs.list(status=Status.QUEUED)).data) == 20


async def test_a_job_behind_one_that_was_queued_and_claimed_after_the_forecast_waits_for_it(
    offer, learn, take, jobs, leases, a_spec, now
):
    offer(ONE)
    learn("matmul")
    now[0] += 60

    async def submitted():
        return (await jobs.submit(a_spec(device="gpu"))).job

    assert (await submitted()).queue.eta_s == 0  # this is the forecast of the next second
    leases.finish(take(ONE), "succeed")
    await submitted()
    take(ONE)
    behind = await submitted()
    assert behind.queue.eta_s == pytest.approx(20, abs=15)
    assert (await jobs.get(behind.id)).queue.eta_s == behind.queue.eta_s


async def test_a_forecast_that_took_long_is_not_repeated_at_once_and_then_says_nothing_of_a_device_taken_since(
    offer, learn, take, leases, submit, async_redis, settings
):
    offer(ONE)
    learn("matmul")
    ticks = itertools.count(0.0, 0.01)  # each look at the clock takes 10 ms, so a forecast takes 20
    forecasts = eta.Forecasts(async_redis, settings, estimate, lambda: next(ticks))
    first = await forecasts.latest()
    job = await submit()
    held = take(ONE)
    assert await forecasts.latest([held.job_id]) is first
    assert first.eta_s("job_new", "gpu", 0, [held.job_id]) is None
    assert first.eta_s("job_new", "gpu", 0, []) == 0
    for _ in range(20):
        found = await forecasts.latest([held.job_id])
    assert found is not first
    assert found.knows([job.id])


async def test_a_job_queued_after_the_forecast_has_no_eta_if_none_is_known(offer, learn, jobs, a_spec, now):
    offer(ONE, gpu(1, units=8))
    learn("matmul")
    now[0] += 60

    needed: list[dict[str, bool]] = []

    async def told(fits, **fields):
        needs = {"params": {"n": len(needed)}}  # jobs with equal needs fit the same devices
        needed.append(fits)
        job = (await jobs.submit(a_spec(**{"device": "gpu"} | needs | fields), fits=fits)).job
        assert (await jobs.get(job.id)).queue.eta_s == job.queue.eta_s
        return job.queue.eta_s

    large, small = profile(gpu(1, units=8)), profile(ONE)
    assert await told({}, workload="mnist_cnn") == 0  # takes nobody knows how long, so its device is free never
    assert await told({small: True, large: True}) == 0
    assert await told({small: False, large: True}) == 0
    assert await told({small: True, large: False}) is None
    assert await told({small: False, large: False}) is None
    assert await told({}, device="gpu:7") is None


@pytest.mark.parametrize("how", ["damaged", "late"])
async def test_a_failing_forecast_does_not_affect_requests(how, offer, learn, submit, etas, damage):
    offer(ONE)
    mend = damage(how)
    waiting = await submit()
    assert waiting.queue.position == 0
    assert await etas(waiting) == [None]
    mend()
    learn("matmul")
    assert await etas(waiting) == [0]


async def test_the_forecast_skips_unreadable_jobs(offer, learn, submit, etas, client, keys):
    offer(ONE)
    learn("matmul")
    waiting = [await submit(), await submit(), await submit()]
    client.hset(keys.job(waiting[0].id), "schema", 99)
    client.hset(keys.job(waiting[1].id), "spec", "{")
    assert await etas(waiting[0], waiting[2]) == [None, 0]

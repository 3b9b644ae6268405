"""Durations of jobs: recorded in the step that ends them, in bounded series, and combined by a median."""

import pytest

from dyno.models.device import Device
from dyno.models.job import Failure, FailureClass
from dyno.models.spec import Spec
from dyno.store.eta import (
    DURATIONS_KEPT,
    DurationReading,
    ExpectedDuration,
    duration_series,
    likely_duration_s,
    parse_durations,
    work_digest,
)
from tests.results import a_result

pytestmark = pytest.mark.anyio

SERIES = "matmul:tensorflow:cpu/test-cpu/2"
DAY_S = 24 * 3600


@pytest.fixture
def ran(jobs, a_spec, claim, client, keys):
    """Claims a new job and makes it look as if it had run for `took_s`."""

    async def one(took_s=30):
        await jobs.submit(a_spec())
        held = claim()
        begun = client.hget(keys.job(held.job_id), "started_at")
        client.hset(keys.job(held.job_id), "started_at", float(begun) - took_s)
        return held

    return one


def learned(client, keys, series=SERIES):
    return parse_durations(client.lrange(keys.paces(series), 0, -1))


async def test_a_succeeded_job_records_its_estimated_and_actual_duration(ran, leases, client, keys):
    held = await ran(30)
    expected = ExpectedDuration(SERIES, 12.5, "0123456789ab")
    assert leases.finish(held, "succeed", result=a_result(held.job_id), pace=expected)
    assert leases.likely_duration_s(expected) == pytest.approx(30, abs=20)
    assert leases.likely_duration_s(ExpectedDuration(SERIES, 12.5, "of another")) is None
    (reading,) = learned(client, keys)
    assert (reading.expected_s, reading.work) == (12.5, "0123456789ab")
    assert 30 <= reading.took_s < 300  # with a margin for slow hosts
    assert 89 * DAY_S < client.ttl(keys.paces(SERIES)) <= 90 * DAY_S


async def test_failed_stopped_and_superseded_attempts_record_no_duration(ran, leases, client, keys):
    failure = Failure(failure_class=FailureClass.TIMEOUT, reason="timeout", message="too long")
    assert leases.finish(await ran(), "fail", failure=failure, pace=ExpectedDuration(SERIES, 1.0, "work"))
    assert leases.finish(await ran(), "stop", pace=ExpectedDuration(SERIES, 1.0, "work"))
    lost = await ran()
    assert leases.requeue(lost, reason="tested", counts_attempt=False)
    assert not leases.finish(lost, "succeed", result=a_result(lost.job_id), pace=ExpectedDuration(SERIES, 1.0, "work"))
    assert learned(client, keys) == []


async def test_a_worker_without_estimates_finishes_its_jobs_as_before(ran, leases, client, keys):
    held = await ran()
    assert leases.finish(held, "succeed", result=a_result(held.job_id))
    assert client.keys(keys.paces("*")) == []


async def test_a_series_keeps_the_newest_only(ran, leases, client, keys):
    client.rpush(keys.paces(SERIES), *["work 1 1"] * (DURATIONS_KEPT - 1), "work 9 9")
    held = await ran()
    assert leases.finish(held, "succeed", result=a_result(held.job_id), pace=ExpectedDuration(SERIES, 2.0, "work"))
    assert [reading.expected_s for reading in learned(client, keys)] == [2.0, *[1.0] * (DURATIONS_KEPT - 1)]


async def test_a_damaged_series_of_durations_does_not_prevent_a_finish(ran, leases, client, keys, jobs):
    client.set(keys.paces(SERIES), "no list")
    held = await ran()
    assert leases.finish(held, "succeed", result=a_result(held.job_id), pace=ExpectedDuration(SERIES, 1.0, "work"))
    assert (await jobs.get(held.job_id)).done


def test_readings_that_cannot_be_read_are_left_out():
    texts = ["work 1 2", "1 2", "a one two", "1", "", "a b 1 2", "a 0 1", "a nan 1", "a 1 inf", "a -1 1"]
    assert parse_durations(texts) == [DurationReading(1, 2, "work")]


def test_the_last_jobs_of_equal_work_tell_the_duration_even_one_of_them():
    others = readings((10, 20), (10, 20), (10, 20))
    assert likely_duration_s([DurationReading(10, 7, "work"), *others], 10, "work") == 7
    assert likely_duration_s([DurationReading(10, 7, "work")], 10, "work") == 7
    assert likely_duration_s(others, 10, "work") == 20
    newest_first = [DurationReading(10, took_s, "work") for took_s in (5, 6, 7, 6, 5, 90, 90, 90, 90, 90, 90)]
    assert likely_duration_s(newest_first, 10, "work") == 6


def test_equal_work_has_equal_params_replicas_and_settings():
    def digest(**fields):
        return work_digest(Spec.model_validate({"workload": "matmul", "params": {"n": 64}} | fields))

    assert digest(seed=3, labels={"commit": "abc"}, priority="low", device="cpu:0") == digest()
    others = [digest(params={"n": 65}), digest(replicas=2), digest(measure={"max_s": 5}), digest(workload="mnist_cnn")]
    assert len({digest(), *others}) == 5


def readings(*pairs):
    return [DurationReading(*pair, "other work") for pair in pairs]


def test_an_estimate_is_corrected_by_the_median_ratio_of_past_jobs():
    assert likely_duration_s(readings((10, 20), (10, 30), (10, 900)), 5, "work") == 15


@pytest.mark.parametrize("few", [[], [(10, 20)], [(10, 20), (10, 20)]])
def test_two_readings_are_too_few(few):
    assert likely_duration_s(readings(*few), 10, "work") is None


def test_jobs_of_similar_size_count_if_there_are_enough_of_them():
    small, large = [(1.0, 5.0)] * 4, [(100.0, 110.0)] * 4
    assert likely_duration_s(readings(*small, *large), 1.5, "work") == pytest.approx(7.5)
    assert likely_duration_s(readings(*small, *large), 150, "work") == pytest.approx(165)
    assert likely_duration_s(readings(*small[:2], *large), 1.5, "work") == pytest.approx(
        1.5 * 5
    )  # and the next in size
    assert likely_duration_s(readings(small[0], *large), 1.5, "work") == pytest.approx(1.5 * 1.1)


def test_a_series_is_of_one_workload_framework_model_and_number_of_cores():
    def name(cores=None, framework="tensorflow", **fields):
        known = {"id": "cpu:0-1", "kind": "cpu", "model": "Test CPU", "host": "here", "memory_bytes": 1}
        device = Device.model_validate(known | {"cores": cores or [0, 1]} | fields)
        return duration_series(Spec.model_validate({"workload": "matmul", "framework": framework}), device)

    assert name() == SERIES
    assert name(id="cpu:2-3", host="there", cores=[2, 3]) == SERIES
    gpu = {"id": "gpu:0", "kind": "gpu", "model": "H100"}
    others = [name([0]), name(framework="jax"), name(model="Other"), name(**gpu), name(**gpu, emulated=True)]
    assert len({SERIES, *others}) == 6
    assert name([0], **gpu) == name([0, 1], **gpu)

"""The rerun that confirms an alarm: once for each alarm, with several APIs."""

import uuid
import zlib
from contextlib import ExitStack

import pytest

from dyno.settings import Settings
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from service.app import create_app
from tests.comparisons import a_metric
from tests.service.workers import claim_of, succeed
from tests.waiting import eventually

WITHIN_S = 20
NOISE = (0.995, 1.0, 1.005)


@pytest.fixture(scope="module")
def settings(redis_url, namespace):
    return Settings(redis_url=redis_url, namespace=namespace, device_ttl_s=600, alarms_every_s=0.02)


@pytest.fixture(scope="module")
def http(settings, serve):
    """One of three APIs on one store."""
    with ExitStack() as stack:
        clients = [stack.enter_context(serve(create_app(settings))) for _ in range(3)]
        yield clients[0]


@pytest.fixture
def results(finished):
    """Results of a spec of its own for each test, since a watch knows no labels."""

    def make(test, levels):
        asked = {"labels": {"test": test}, "params": {"n": 64 + zlib.crc32(test.encode()) % 4000}}
        return [finished([level * NOISE[at % 3]] * 2, asked) for at, level in enumerate(levels)]

    return make


def reruns(http, test):
    listed = http.get("/v1/jobs", params={"label": f"test={test}", "limit": 200}).json()["data"]
    return [job for job in listed if job["rerun_of"]]


def alarms(http, test):
    return http.get("/v1/history", params={"label": f"test={test}"}).json()["alarms"]


@pytest.fixture
def looked(http, results):
    """Wait for a look that has seen everything so far: it also reruns a job of a new series with a step."""

    def wait():
        marker = uuid.uuid4().hex
        results(marker, [100.0] * 6 + [50.0] * 4)
        (rerun,) = eventually(lambda: reruns(http, marker), WITHIN_S)
        http.post(rerun["urls"]["cancel"]).raise_for_status()

    return wait


def finish_rerun(settings, device, value):
    with sync_client(settings) as client:
        claim = claim_of(leases := Leases(client, settings), device)
        succeed(leases, claim, [a_metric(by_run=[value, value])])
        return claim.job_id


@pytest.mark.parametrize(("value", "state"), [(80.3, "confirmed"), (99.5, "not_confirmed")])
def test_an_alarm_is_confirmed_by_one_rerun(http, settings, offered, results, looked, value, state):
    results(state, [100.0] * 10)
    looked()
    assert reruns(http, state) == []
    slow = results(state, [80.0] * 4)
    (rerun,) = eventually(lambda: reruns(http, state), WITHIN_S)
    assert rerun["rerun_of"] in slow
    assert (rerun["spec"]["device"]["id"], rerun["spec"]["priority"]) == ("cpu:0-1@here", "low")
    (alarm,) = eventually(lambda: [each for each in alarms(http, state) if each["rerun"]], WITHIN_S)
    assert (alarm["state"], alarm["rerun"]) == ("new", rerun["id"])
    assert finish_rerun(settings, offered, value) == rerun["id"]
    (alarm,) = alarms(http, state)
    assert alarm["state"] == state
    results(state, [80.0] * 3)
    looked()
    assert [job["id"] for job in reruns(http, state)] == [rerun["id"]]

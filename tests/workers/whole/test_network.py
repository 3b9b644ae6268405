"""A bad network between Redis and the other parts: no job is lost or ends twice, and the parts recover soon."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from dyno.models.job import Status
from dyno.store.embedded import EmbeddedServer
from service.app import create_app
from tests.builders import TINY
from tests.cores import HERE
from tests.network import Network
from tests.service.conftest import serving
from tests.waiting import eventually, promised
from tests.workers.whole.looking import events_of, jobs_of, until_idle

BACK_WITHIN_S = promised(10.0)
SLOW_S = 0.5
RESETS, RESET_EVERY_S, JOBS = 24, 0.5, 20


@pytest.fixture
def network():
    with EmbeddedServer() as server, Network(server.url) as network:
        yield network


@pytest.fixture
def direct(network, settings):
    """A connection to Redis that bypasses the bad network."""
    return settings.model_copy(update={"redis_url": network.server_url})


@pytest.fixture
def http(network, direct, settings, start_worker):
    """API and worker behind the network, which still works."""
    through = settings.model_copy(update={"redis_url": network.url})
    start_worker(HERE, through)
    with serving(create_app(through)) as http:
        until_idle(direct, 1)
        yield http


def accepted(http, key):
    """Submit a job with retries. The only accepted responses are 202, and 503 with `Retry-After`."""

    def asked():
        answer = http.post("/v1/jobs", json=TINY, headers={"Idempotency-Key": key})
        assert answer.status_code in (202, 503), answer.text
        assert answer.status_code == 202 or int(answer.headers["retry-after"]) > 0
        return answer if answer.status_code == 202 else None

    return str(eventually(asked).json()["id"])


def is_well_again(http, direct):
    """Check that a new job is claimed at once and done in time, and that all parts report it."""
    began_s = time.monotonic()
    job_id = accepted(http, "afterwards")
    eventually(lambda: jobs_of(direct, job_id)[0].done)
    eventually(lambda: http.get("/readyz").status_code == 200)
    until_idle(direct, 1)
    assert time.monotonic() - began_s < BACK_WITHIN_S


def each_ended_once(direct, ids):
    eventually(lambda: all(job.done for job in jobs_of(direct, *ids)), 100)
    assert {job.status for job in jobs_of(direct, *ids)} == {Status.SUCCEEDED}
    assert {tuple(events_of(direct, job_id)) for job_id in ids} == {("submit", "claim", "succeed")}
    assert len(set(ids)) == len(ids)


@pytest.mark.verify
@pytest.mark.parametrize("keys", [("one",), ("one", "two")])
def test_where_each_answer_takes_half_a_second_jobs_are_taken_and_done_once(http, network, direct, keys):
    network.delay_s = SLOW_S
    began_s = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        ids = list(pool.map(partial(accepted, http), keys))
    assert time.monotonic() - began_s > 2 * SLOW_S
    listed = eventually(lambda: (now := http.get("/v1/jobs")).status_code != 503 and now, what="no longer 503")
    assert len(listed.json()["data"]) == len(keys)
    each_ended_once(direct, ids)
    network.delay_s = 0.0
    is_well_again(http, direct)


@pytest.mark.verify
def test_where_connections_are_reset_again_and_again_no_job_is_lost_or_made_twice(http, network, direct):
    over = threading.Event()

    def disturb():
        for _ in range(RESETS):
            if over.wait(RESET_EVERY_S):
                return
            network.reset()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    ids = []
    try:
        while disturber.is_alive():
            ids.append(accepted(http, str(len(ids) % JOBS)))
    finally:
        over.set()
        disturber.join()
    assert network.resets > RESETS
    made = sorted(set(ids))
    each_ended_once(direct, made)
    is_well_again(http, direct)
    assert len(made) == min(len(ids), JOBS)

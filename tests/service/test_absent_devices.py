"""Names that callers choose: jobs for devices that don't exist leave nothing behind once they are gone."""

import pytest

from dyno import celery_app
from tests.store.contents import contents
from tests.waiting import eventually

COUNT = 300


@pytest.fixture
def broker(client, settings):
    """The broker's keys."""
    return lambda: sorted(client.scan_iter(f"{celery_app.key_prefix(settings)}*"))


@pytest.fixture
def come_and_go(http):
    """Queue jobs for absent devices, one name each, then cancel and delete them."""

    def came_and_went(first):
        asked = {"workload": "matmul", "queue_if_absent": True}
        for number in range(first, first + COUNT):
            job = http.post("/v1/jobs", json=asked | {"device": f"cpu:0@absent-{number}"}).json()
            assert http.post(job["urls"]["cancel"]).status_code == 200
            assert http.delete(job["urls"]["self"]).status_code == 204

    return came_and_went


def test_absent_names_leave_nothing_behind(come_and_go, broker, client, namespace):
    come_and_go(0)
    left = {name: text for name, text in contents(client, namespace).items() if "absent" in name + text}
    assert left == {}
    assert broker() == []


def test_waiting_jobs_for_absent_devices_have_no_wake_ups(http, broker):
    asked = {"workload": "matmul", "queue_if_absent": True}
    jobs = [http.post("/v1/jobs", json=asked | {"device": f"cpu:0@absent-{number}"}).json() for number in range(30)]
    assert [job["queue"]["position"] for job in jobs] == [0] * len(jobs)
    assert broker() == []
    for job in jobs:
        http.post(job["urls"]["cancel"])


def test_a_live_worker_gets_a_wake_up_that_expires(http, client, settings, offered):
    asked = {"workload": "matmul", "device": offered.full_id}
    job = http.post("/v1/jobs", json=asked).json()
    own = celery_app.key_prefix(settings) + celery_app.celery_queue(offered.full_id).name
    eventually(lambda: client.llen(own) >= 1)  # maintenance may send one more
    eventually(lambda: 0 < client.pttl(own) <= celery_app.WAKE_UP_TTL_S * 1000)
    http.post(job["urls"]["cancel"])

"""Two machines of one host name: their boot ids differ, and all else that Dyno sees of them is the same."""

import threading
from contextlib import contextmanager

import pytest

from dyno.bench.devices.discovery import host_name
from dyno.models.job import Status
from dyno.store import fleet
from dyno.store.redis import Keys, sync_client
from tests.cores import HERE
from tests.waiting import eventually
from tests.workers.conftest import LONG, tiny
from tests.workers.test_start import failed_start
from tests.workers.whole.looking import (
    environment_of,
    jobs_of,
    offered,
    submit,
    until_idle,
    until_measuring,
)


@pytest.fixture
def brief(settings):
    return settings.model_copy(update={"device_ttl_s": 3.0, "shutdown_s": 0.5})


@contextmanager
def other_machine(settings):
    """A machine of this one's name with a live worker."""
    ended = threading.Event()

    def live():
        with sync_client(settings) as client:
            while not ended.wait(settings.device_ttl_s / 10):
                assert fleet.claim_host(client, settings, host_name(), "another machine")

    with sync_client(settings) as client:
        assert fleet.claim_host(client, settings, host_name(), "another machine")
    thread = threading.Thread(target=live)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.mark.verify
def test_a_worker_of_a_second_machine_with_this_name_does_not_start(start_worker, brief):
    with other_machine(brief):
        ended = failed_start(environment_of(brief), HERE)
        assert ended.returncode == 3
        assert "host-name-taken" in ended.stderr
        assert "DYNO_HOSTNAME" in ended.stderr
        assert offered(brief) == []
        start_worker(HERE, brief, env={"DYNO_HOSTNAME": "north"})
        until_idle(brief, 1)
        assert [device.host for device in offered(brief)] == ["north"]


@pytest.mark.verify
def test_a_worker_whose_name_another_machine_takes_hands_its_job_back_and_ends(start_worker, brief, client):
    """As after a pause of this machine, in which its claim has expired."""
    [job_id] = submit(brief, tiny(measure=LONG))
    worker = start_worker(HERE, brief)
    until_measuring(brief, job_id)
    client.set(Keys(brief.namespace).host(host_name()), "another machine")
    assert worker.wait(60) == 3
    [job] = jobs_of(brief, job_id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)
    eventually(lambda: offered(brief) == [])

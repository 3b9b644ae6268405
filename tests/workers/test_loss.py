"""However a job loses its runner, the job gets the right status and the device is free for the next one."""

import logging
import os
import signal
from pathlib import Path

from dyno.models.job import FailureClass, Status
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys, sync_client
from tests.waiting import eventually
from tests.workers.conftest import LONG, Store, tiny
from tests.workers.looking import device_is_free, runner_of


def test_a_killed_runner_is_tried_once_more_and_then_fails(quick, store, client, here, serve):
    job_id = store.submit(tiny(measure=LONG))
    after = store.submit(tiny())
    serving = serve()
    first = runner_of(here, quick)
    os.kill(first, signal.SIGKILL)
    os.kill(runner_of(here, quick, not_in=[first]), signal.SIGKILL)
    assert serving.result(60) == 3
    job = store.job(job_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.FAILED, "runner_killed", 2)
    assert job.failure.failure_class is FailureClass.INFRASTRUCTURE
    assert store.job(after).status is Status.SUCCEEDED
    assert device_is_free(client, quick, here)


def test_a_runner_that_is_ended_with_its_worker_costs_no_attempt(
    quick, store, supervisor_of, forking, here, background, monkeypatch
):
    monkeypatch.setattr("workers.attempt._SIGNAL_SPREAD_S", 30)  # the worker may be told long after its runner
    job_id = store.submit(tiny(measure=LONG))
    supervisor = supervisor_of(quick, forking)
    serving = background.submit(supervisor.serve)
    os.kill(runner_of(here, quick), signal.SIGTERM)
    supervisor.stop(30)
    assert serving.result(60) == 1
    job = store.job(job_id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


def test_a_superseded_attempt_is_killed_and_writes_nothing(
    quick, store, client, supervisor_of, forking, here, background
):
    job_id = store.submit(tiny(measure=LONG))
    supervisor = supervisor_of(quick, forking)
    serving = background.submit(supervisor.serve)
    first = runner_of(here, quick)
    client.hset(Keys(quick.namespace).job(job_id), "token", "somebody-else's")
    eventually(lambda: not Path(f"/proc/{first}").exists(), within_s=30)
    supervisor.stop(0)
    serving.result(60)
    assert store.job(job_id).status is Status.RUNNING


def test_a_run_outlasts_a_store_that_takes_no_writes_and_its_result_is_written_later(
    quick, supervisor_of, forking, here, background, caplog
):
    caplog.set_level(logging.WARNING, "dyno.worker")
    with EmbeddedServer() as server:
        settings = quick.model_copy(update={"redis_url": server.url})
        store, client = Store(settings), sync_client(settings)
        job_id = store.submit(tiny(measure={"min_samples": 10, "min_s": 4, "max_s": 4}))
        serving = background.submit(supervisor_of(settings, forking).serve)
        runner_of(here, settings)
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        eventually(lambda: "ending-not-written" in caplog.text)
        client.execute_command("REPLICAOF", "NO", "ONE")
        serving.result(60)
        assert "heartbeat-missed" in caplog.text
        job = store.job(job_id)
    assert (job.status, job.attempt) == (Status.SUCCEEDED, 1)

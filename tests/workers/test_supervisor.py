"""The supervisor: claiming, running and reporting jobs, and waiting for the device."""

import logging
import os
import sys
import threading
import time
from contextlib import closing

import pytest
import redis

from dyno.bench.devices import locks
from dyno.bench.devices.locks import DeviceTurn, HeldLocks
from dyno.bench.runner.launcher import Launcher
from dyno.errors import StoreUnavailable
from dyno.logging import current_job_id
from dyno.models.device import PeakFigure
from dyno.models.job import DEVICE_BUSY, Holder, Status
from dyno.models.result import PartialMetrics
from dyno.store.placement import queues_served
from dyno.store.redis import Keys
from tests.waiting import eventually
from tests.workers.conftest import LONG, tiny
from tests.workers.looking import device_is_free, runner_of

# A zygote on a host without room for another process. The limit doesn't apply to root.
FULL = """
import os, resource, socket, sys
from dyno.bench.runner.zygote import Zygote
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
if os.getuid() == 0:
    os.setuid(65534)
Zygote(socket.socket(fileno=int(sys.argv[1])), None).serve()
"""


def test_a_job_runs_in_as_many_fresh_processes_as_asked_for(quick, store, supervisor_of, forking):
    job_id = store.submit(tiny(measure={"processes": 3}))
    assert supervisor_of(quick, forking).serve() == 1
    result = store.result(job_id)
    assert store.job(job_id).status is Status.SUCCEEDED
    assert len({run.pid for run in result.runs}) == 3
    assert {run.process_start for run in result.runs} == {"forked"}


def test_the_figures_so_far_are_sent_after_each_run_but_the_last(
    quick, store, supervisor_of, forking, client, before_start
):
    job_id, seen = store.submit(tiny(measure={"processes": 3})), dict[str, str]()
    before_start(lambda request: seen.update(client.hgetall(Keys(quick.namespace).partial(job_id))))
    supervisor_of(quick, forking).serve()
    first, second = (PartialMetrics.model_validate_json(seen[name]) for name in sorted(seen))
    assert [(each.run, each.runs, each.arm) for each in (first, second)] == [(1, 3, None), (2, 3, None)]
    by_run = store.result(job_id).metrics[0].by_run
    for each, known in ((first, by_run[:1]), (second, by_run[:2])):
        assert each.metrics[0].by_run == pytest.approx(known, rel=1e-5)  # results are rounded
    assert (first.metrics[0].low is None, second.metrics[0].low is None) == (True, False)


def test_what_is_logged_of_an_attempt_names_its_job_and_what_comes_before_it_does_not(
    quick, store, supervisor_of, forking, caplog, monkeypatch
):
    said = []
    listening = logging.Handler()
    monkeypatch.setattr(listening, "emit", lambda record: said.append((record.event, current_job_id.get())))
    monkeypatch.setattr(logging.getLogger("dyno.worker"), "handlers", [listening])
    caplog.set_level(logging.INFO, "dyno.worker")
    job_ids = [store.submit(tiny()) for _ in range(2)]
    supervisor_of(quick, forking).serve()
    assert [job for name, job in said if name == "ended"] == job_ids
    assert {job for name, job in said if name == "claimed"} == {None}


def test_a_stop_hands_the_job_back_without_an_attempt_and_calls_another_worker(
    quick, store, client, supervisor_of, forking, here, background
):
    job_id = store.submit(tiny(measure=LONG))
    woken = []
    supervisor = supervisor_of(quick, forking, wake=woken.append)
    serving = background.submit(supervisor.serve)
    runner_of(here, quick)
    supervisor.stop(0.2)
    serving.result(60)
    job = store.job(job_id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)
    assert woken == ["cpu"]
    assert device_is_free(client, quick, here)


def test_a_claim_that_leaves_jobs_behind_wakes_the_next_worker(quick, store, supervisor_of, forking):
    woken = []
    for _ in range(3):
        store.submit(tiny())
    assert supervisor_of(quick, forking, wake=woken.append).serve() == 3
    assert woken == ["cpu", "cpu"]


def test_a_job_that_this_worker_does_not_know_is_refused(quick, store, supervisor_of, forking):
    job_id = store.submit(tiny())
    supervisor_of(quick, forking, workloads={}).serve()
    job = store.job(job_id)
    assert (job.status, job.status_reason) == (Status.FAILED, "unknown_workload")


def test_a_busy_device_costs_no_attempt_and_wakes_no_worker_at_once(quick, store, supervisor_of, misbehaving):
    frame = '{"frame": "failed", "failure_class": "infrastructure", "reason": "device_busy", "message": "held"}'
    job_id = store.submit(tiny())
    launcher = misbehaving(f"import os; os.write(3, {frame.encode()!r} + b'\\n')")
    woken = []
    assert supervisor_of(quick, launcher, wake=woken.append).serve() == 1
    job = store.job(job_id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)
    assert woken == []


def test_a_job_stays_queued_and_names_the_user_of_its_device_until_that_is_free(
    quick, store, client, supervisor_of, forking, here, background
):
    shown = []
    woken = []

    def show(state, job=None, held_by=None):
        shown.append((state, held_by is not None))

    supervisor = supervisor_of(quick, forking, show=show, wake=woken.append)
    other = DeviceTurn(here, quick).take()
    assert isinstance(other, HeldLocks)
    with other:
        other.note("job_of_another")
        job_id = store.submit(tiny())
        serving = background.submit(supervisor.serve)
        eventually(lambda: store.job(job_id).status_reason == DEVICE_BUSY)
        waiting = store.job(job_id)
        assert (waiting.status, waiting.attempt) == (Status.QUEUED, 0)
        assert (waiting.queue.held_by.pid, waiting.queue.held_by.job) == (os.getpid(), "job_of_another")
        assert waiting.queue.held_by.device == here.full_id
        eventually(lambda: woken == ["cpu"], what="another device may take it")
    assert serving.result(60) == 1
    assert (store.job(job_id).status, store.job(job_id).attempt) == (Status.SUCCEEDED, 1)
    assert shown == [("busy", True), ("busy", False), ("idle", False)]


def test_a_device_that_runners_find_in_use_is_tried_ever_more_rarely(quick, store, supervisor_of, misbehaving):
    frame = '{"frame": "failed", "failure_class": "infrastructure", "reason": "device_busy", "message": "held"}'
    launcher = misbehaving(f"import os; os.write(3, {frame.encode()!r} + b'\\n')")
    ahead_s = [0.0]
    supervisor = supervisor_of(quick, launcher, clock=lambda: time.monotonic() + ahead_s[0])
    job_id, claims = store.submit(tiny()), list[int]()
    for step_s in (0, 0, 5, 5, 5):
        ahead_s[0] += step_s
        claims.append(supervisor.serve())
    assert claims == [1, 0, 1, 0, 1]
    assert (store.job(job_id).status, store.job(job_id).attempt) == (Status.QUEUED, 0)


def test_a_runner_that_outlives_its_attempt_cordons_the_device_until_it_ends(
    quick, store, client, supervisor_of, forking, here, background, monkeypatch
):
    monkeypatch.setattr(locks, "HUNG_AFTER_S", 0.2)
    shown = []

    def show(state, job=None, held_by=None):
        shown.append((state, held_by is not None and held_by.hung))

    supervisor = supervisor_of(quick, forking, show=show)
    with locks.hold_locks(locks.lock_paths(here, quick), 0, job="job_before"):  # as its runner does, without a turn
        job_id = store.submit(tiny())
        serving = background.submit(supervisor.serve)
        eventually(lambda: (held := store.job(job_id).queue.held_by) is not None and held.hung)
        waiting = store.job(job_id)
        assert (waiting.status, waiting.status_reason, waiting.attempt) == (Status.QUEUED, DEVICE_BUSY, 0)
        assert (waiting.queue.held_by.pid, waiting.queue.held_by.job) == (os.getpid(), "job_before")
        events = client.xlen(Keys(quick.namespace).job_events(job_id))
        store.cancel(job_id)
        assert serving.result(60) == 0
        supervisor.catch_up()
        assert shown[-1] == ("busy", True), "also while no job waits"
        assert events == 3, "submit, and once for each state of the holder"
    supervisor.catch_up()
    assert shown[-1] == ("idle", False)
    job_id = store.submit(tiny())
    assert supervisor.serve() == 1
    assert store.job(job_id).status is Status.SUCCEEDED


def test_a_worker_waits_for_its_device_only_while_jobs_wait_and_it_is_not_stopping(
    quick, store, supervisor_of, misbehaving, here, background
):
    supervisor = supervisor_of(quick, misbehaving("never started"))
    other = DeviceTurn(here, quick).take()
    assert isinstance(other, HeldLocks)
    with other:
        assert supervisor.serve() == 0
        job_id = store.submit(tiny())
        serving = background.submit(supervisor.serve)
        eventually(lambda: store.job(job_id).status_reason == DEVICE_BUSY)
        supervisor.stop(0)
        assert serving.result(60) == 0
    taken = DeviceTurn(here, quick).take()
    assert isinstance(taken, HeldLocks), "it isn't in line any more"
    taken.release()


def test_a_preparation_delayed_by_another_worker_runs_once_before_the_first_job(
    quick, store, supervisor_of, forking, here
):
    peak = {"float32": PeakFigure(value=1.0, provenance="measured here")}
    prepared = []

    def prepare():
        other = DeviceTurn(here, quick)
        prepared.append(isinstance(other.take(), Holder))
        other.leave()
        return here.model_copy(update={"peak": peak})

    ids = [store.submit(tiny()) for _ in range(2)]
    assert supervisor_of(quick, forking, prepare=prepare).serve() == 2
    assert prepared == [True], "once, and nobody else had the device"
    assert all(store.result(job_id).peak.value is not None for job_id in ids)


def test_a_job_whose_claim_had_no_answer_runs_in_the_same_attempt(
    quick, store, here, supervisor_of, forking, monkeypatch
):
    woken = []
    supervisor = supervisor_of(quick, forking, wake=woken.append)
    leases = supervisor._context.leases
    run = leases._run

    def answered_too_late(*call):
        reply = run(*call)
        if reply[0] == "claimed":
            raise StoreUnavailable("no answer")
        return reply

    job_id = store.submit(tiny())
    with monkeypatch.context() as patch:
        patch.setattr(leases, "_run", answered_too_late)
        assert supervisor.serve() == 0
        assert store.job(job_id).status is Status.RUNNING
        supervisor.catch_up()
    assert woken == [queues_served(here)[0]], "no other wake-up comes: the queue is empty"
    assert supervisor.serve() == 1
    supervisor.catch_up()
    job = store.job(job_id)
    assert (job.status, job.attempt, len(woken)) == (Status.SUCCEEDED, 1, 1)


def test_a_worker_that_a_broken_queue_stops_from_claiming_is_not_left_shown_as_busy(
    quick, store, client, supervisor_of, forking
):
    shown = []

    def show(state, job=None, held_by=None):
        shown.append(state)
        client.hset(Keys(quick.namespace).classes("cpu"), "no class at all", "")

    store.submit(tiny())
    with pytest.raises(redis.ResponseError, match="script"):
        supervisor_of(quick, forking, show=show).serve()
    assert shown == ["busy", "idle"]


def test_an_error_in_the_worker_is_reported_and_retried(quick, store, supervisor_of):
    class Broken(Launcher):
        def start(self, request):
            raise OSError("no descriptors left")

    launcher = Broken("fork", [0])
    job_id = store.submit(tiny())
    assert supervisor_of(quick, launcher).serve() == 2
    launcher.close()
    job = store.job(job_id)
    assert (job.status, job.status_reason) == (Status.FAILED, "worker_error")


def test_a_fork_refused_for_want_of_room_does_not_end_forking(quick, store, supervisor_of, here, monkeypatch):
    full = [sys.executable, "-P", "-c", FULL]
    monkeypatch.setattr("dyno.bench.runner.launcher._command", lambda framework, fd, cores, doors: [*full, str(fd)])
    job_id = store.submit(tiny())
    with closing(Launcher("auto", here.cores)) as launcher:
        assert supervisor_of(quick, launcher).serve() == 2
        assert launcher.forks("tensorflow") == (True, None)
    job = store.job(job_id)
    assert job.failure.reason == "runner_not_started"
    assert "Resource temporarily unavailable" in job.failure.message


def test_two_calls_to_serve_never_overlap(quick, store, supervisor_of, forking):
    ids = [store.submit(tiny()) for _ in range(4)]
    supervisor = supervisor_of(quick, forking)
    threads = [threading.Thread(target=supervisor.serve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {store.job(job_id).status for job_id in ids} == {Status.SUCCEEDED}

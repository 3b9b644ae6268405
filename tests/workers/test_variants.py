"""A/B jobs: two specs run in turns under one lease, and the job succeeds or fails as a whole."""

import os
import signal
from typing import cast

import pytest

from dyno.bench.registry import registry
from dyno.bench.runner.job_runs import planned_times, variants_of
from dyno.models.job import Status, WorkerRef
from dyno.models.spec import InterleavedSpec
from dyno.store.leases import Leases
from dyno.store.maintenance import expire_leases
from dyno.store.placement import queues_served
from tests.bench.measure.conftest import make_record
from tests.waiting import eventually
from tests.workers.conftest import LONG, in_turns, tiny
from tests.workers.looking import device_is_free, runner_of
from workers.artifact_upload import JobFiles

ONE, TWO = tiny(params={"n": 64, "repeats": 1}), tiny(params={"n": 64, "repeats": 2})
BOTH = in_turns(ONE, TWO)


def processes(result):
    return [run.pid for each in (result, *result.arms) for run in each.runs]


def test_the_runs_take_turns_and_every_other_round_goes_backwards(quick, store, supervisor_of, forking, before_start):
    told = []
    before_start(told.append)
    job_id = store.submit(BOTH)
    assert supervisor_of(quick, forking).serve() == 1
    order = [(each.spec.params["repeats"], each.run) for each in told]
    assert order == [(1, 0), (2, 0), (1, 0), (1, 1), (2, 1), (1, 1)]
    assert not any(isinstance(each.spec, InterleavedSpec) for each in told)
    assert {each.artifact_dir for each in told} == {None}
    result = store.result(job_id)
    assert [len(each.runs) for each in (result, *result.arms)] == [2, 2, 2]
    assert len(set(processes(result))) == 6
    assert "repeats=2" in result.arms[0].reproduce
    assert store.job(job_id).spec == BOTH


def test_the_control_follows_what_the_first_spec_chose_and_the_second_chooses_for_itself(here):
    first, second, control = variants_of(BOTH, here, registry(), lambda: cast(JobFiles, None))
    assert [first.tuned, second.tuned, control.tuned] == [{}, {}, {}]
    for arm, chosen in ((first, True), (second, False), (control, False)):
        arm.records.append(make_record([1.0], tuned={"jit_compile": chosen}))
    assert [arm.tuned["jit_compile"] for arm in (first, second, control)] == [True, False, True]


def test_the_first_runs_fix_how_many_are_planned(here):
    spec = tiny(measure={"processes": {"min": 2, "max": 9}, "target_rel_ci": 0.5, "min_s": 0, "max_s": 1})
    [only] = variants_of(spec, here, registry(), lambda: cast(JobFiles, None))
    planned = []
    for time_s in (1.0, 1.02):
        planned.append(len(planned_times([only], here)))
        only.records.append(make_record([time_s] * 20))
    assert [*planned, len(planned_times([only], here))] == [9, 9, 2]


def test_the_interval_of_the_runs_so_far_is_that_of_a_result_of_them(here):
    """The two first runs fix the number, so their scatter counts however near the later runs are."""
    spec = tiny(measure={"processes": {"min": 2, "max": 9}, "target_rel_ci": 0.01, "min_s": 0, "max_s": 1})
    [only] = variants_of(spec, here, registry(), lambda: cast(JobFiles, None))
    only.records.extend(make_record([time_s] * 20, amounts={"execution": 1.0}) for time_s in (1.0, 1.1, 1.05, 1.05))
    so_far, result = only.metrics_so_far(), only.result("job_1", here)
    assert (so_far.run, so_far.runs) == (4, 9)
    known = [metric for metric in result.metrics if metric.value is not None]
    assert [(metric.low, metric.high) for metric in so_far.metrics] == [(metric.low, metric.high) for metric in known]


def test_a_canceled_one_is_stopped_in_mid_run_and_leaves_no_result(quick, store, client, here, serve):
    job_id = store.submit(in_turns(ONE, tiny(measure=LONG)))
    serving = serve()
    eventually(lambda: (seen := store.job(job_id).progress) is not None and seen.run == 2)
    assert store.job(job_id).progress.runs == 6
    store.cancel(job_id)
    serving.result(60)
    assert store.job(job_id).status is Status.CANCELED
    assert device_is_free(client, quick, here)


@pytest.mark.verify
def test_one_whose_runner_is_killed_begins_again_with_all_runs(quick, store, here, serve):
    job_id = store.submit(in_turns(ONE, tiny(measure={"min_s": 1, "max_s": 1}), control=False))
    serving = serve()
    eventually(lambda: (seen := store.job(job_id).progress) is not None and seen.run == 2)
    killed = runner_of(here, quick)
    os.kill(killed, signal.SIGKILL)
    assert serving.result(60) == 2
    job, result = store.job(job_id), store.result(job_id)
    assert (job.status, job.attempt) == (Status.SUCCEEDED, 2)
    assert len(processes(result)) == 4
    assert killed not in processes(result)


def test_one_whose_worker_died_is_run_whole_by_another(quick, store, client, supervisor_of, forking, here):
    short = quick.model_copy(update={"lease_s": 0.1})
    job_id = store.submit(BOTH)
    dead = Leases(client, short).claim(here.full_id, queues_served(here), WorkerRef(id="d", device="cpu:0-0", host="h"))
    assert dead.spec == BOTH
    eventually(lambda: job_id in expire_leases(client, short))
    assert supervisor_of(quick, forking).serve() == 1
    job = store.job(job_id)
    assert (job.status, job.attempt) == (Status.SUCCEEDED, 2)
    assert len(processes(store.result(job_id))) == 6
    assert [(each.arm, each.run) for each in store.samples(job_id)] == [
        (arm, run) for arm in ("first", "second", "control") for run in range(2)
    ]
    assert not Leases(client, quick).finish(dead, "stop")


@pytest.mark.verify
def test_a_failure_names_the_spec(quick, store, supervisor_of, forking):
    job_id = store.submit(in_turns(tiny(timeout_s=5), tiny(measure=LONG)))
    supervisor_of(quick, forking).serve()
    failure = store.job(job_id).failure
    assert failure.message == "the second spec: the job exceeded its timeout of 5 s"

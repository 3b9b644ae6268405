"""The inputs of an attempt's runs: tuned parameters and folders."""

import math
import statistics
import time
from pathlib import Path

import pytest

from dyno import folders
from dyno.bench.runner.monitor import RunnerMonitor
from dyno.models.job import Status
from tests.workers.conftest import tiny

DIGITS = {"data": "sample", "epochs": 1, "batch_size": 8, "train_samples": 8, "test_samples": 2, "jit_compile": False}


@pytest.mark.on_tensorflow
@pytest.mark.verify
def test_later_runs_get_the_parameters_that_the_first_run_tuned(
    quick, store, supervisor_of, forking, before_start, tmp_path
):
    told = []
    before_start(told.append)
    job_id = store.submit(tiny(workload="mnist_cnn", params=DIGITS, measure={"processes": 2}))
    files = quick.model_copy(update={"artifact_url": f"file://{tmp_path}/files"})
    supervisor_of(files, forking).serve()
    assert store.job(job_id).status is Status.SUCCEEDED, store.job(job_id).failure
    assert [request.tuned.keys() for request in told] == [set(), {"jit_compile", "precision_errors"}]
    assert told[1].tuned["jit_compile"] is False


def test_the_phases_of_each_run_add_up_to_its_wall_time(
    quick, store, supervisor_of, forking, before_start, monkeypatch
):
    began_s = []
    ended_s = []

    def until_ended(monitor):
        ended = watch(monitor)
        ended_s.append(time.perf_counter())
        return ended

    watch = RunnerMonitor.until_ended
    before_start(lambda request: began_s.append(time.perf_counter()))
    monkeypatch.setattr(RunnerMonitor, "until_ended", until_ended)
    job_id = store.submit(tiny(measure={"processes": 3}))
    before_s = time.perf_counter()
    supervisor_of(quick, forking).serve()
    after_s = time.perf_counter()
    result = store.result(job_id)
    walls_s = [math.fsum(filter(None, run.phases.model_dump().values())) for run in result.runs]
    for wall_s, begin_s, end_s in zip(walls_s, began_s, ended_s, strict=True):
        assert wall_s >= end_s - begin_s
    assert sum(walls_s) <= after_s - before_s
    assert all(run.phases.overhead_s is not None and run.phases.overhead_s > 0 for run in result.runs)
    assert result.phases.overhead_s == statistics.median(run.phases.overhead_s or 0.0 for run in result.runs)


def test_a_run_finds_no_temporary_files_of_earlier_runs(quick, store, supervisor_of, forking, before_start):
    found = []

    def put_aside(request):
        assert request.scratch_dir is not None
        room = Path(request.scratch_dir)
        found.append(
            [str(path) for path in (folders.private_folder(quick.run_dir) / "scratch").rglob("*") if path.is_file()]
        )
        (room / "put aside").write_text("of this run")

    before_start(put_aside)
    job_id = store.submit(tiny(measure={"processes": 3}))
    supervisor_of(quick, forking).serve()
    assert store.job(job_id).status is Status.SUCCEEDED, store.job(job_id).failure
    assert found == [[], [], []]


@pytest.mark.parametrize(("value", "status"), [(None, Status.SUCCEEDED), (1, Status.FAILED)])
def test_a_param_of_a_newer_version_matters_unless_it_is_null(quick, store, supervisor_of, forking, value, status):
    """A stored spec has all params of the version that stored it. A worker of an older version runs it, too."""
    spec = tiny()
    job_id = store.submit(spec.model_copy(update={"params": spec.params | {"of_a_newer_version": value}}))
    supervisor_of(quick, forking).serve()
    job = store.job(job_id)
    assert job.status is status
    assert value is None or job.failure.message == "/params/of_a_newer_version: Unknown field"

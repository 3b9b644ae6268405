"""Progress over the runs of a job: a fraction that never falls, and the time left by earlier jobs and by its runs."""

import pytest

from dyno.bench.runner.progress import JobProgress, RunTimes
from dyno.models.runner_protocol import ProgressFrame

EQUAL = RunTimes(1.0)
HALF = ProgressFrame(phase="sampling", completed=10, total=20)


def told(job, frame, run, elapsed_s):
    found = job.of(frame, run, elapsed_s)
    assert found is not None
    return found


def test_there_is_no_progress_before_the_first_frame():
    assert JobProgress([EQUAL] * 5).of(None, 0, 1.0) is None


def test_the_fraction_is_over_all_runs():
    job = JobProgress([EQUAL] * 4)
    job.run_ended(12.0)
    job.run_ended(24.0)
    progress = told(job, HALF, 2, 30.0)
    assert (progress.run, progress.runs, progress.fraction, progress.elapsed_s) == (3, 4, 0.625, 30.0)
    assert progress.eta_s == pytest.approx(18)


def test_a_job_without_progress_has_no_eta():
    progress = told(JobProgress([EQUAL] * 4), ProgressFrame(phase="build"), 0, 3.0)
    assert progress.fraction == 0
    assert progress.eta_s is None


def test_little_progress_gives_no_eta():
    job = JobProgress([EQUAL])
    frames = [ProgressFrame(phase="sampling", completed=completed, total=200) for completed in (1, 9, 10)]
    assert [told(job, frame, 0, 4.5).eta_s for frame in frames] == [None, None, pytest.approx(85.5)]


def test_earlier_jobs_give_an_eta_from_the_first_frame_on():
    progress = told(JobProgress([EQUAL] * 4, likely_s=40.0), ProgressFrame(phase="build"), 0, 1.0)
    assert progress.eta_s == 39


def test_the_runs_so_far_count_more_and_more_than_earlier_jobs():
    job = JobProgress([EQUAL] * 4, likely_s=40.0)
    etas = []
    for run in range(1, 4):
        job.run_ended(20.0 * run)
        etas.append(told(job, None, run, 20.0 * run).eta_s)
    assert etas == [
        pytest.approx(60 - 20),
        pytest.approx(40 * 1 / 3 + 80 * 2 / 3 - 40, abs=0.001),
        pytest.approx(70 - 60),
    ]


def test_the_first_run_trains_before_it_samples():
    frames = [
        ProgressFrame(phase="compile"),
        ProgressFrame(phase="training", completed=1, total=2, unit="epochs"),
        ProgressFrame(phase="training", completed=2, total=2, unit="epochs"),
        ProgressFrame(phase="evaluation"),
        ProgressFrame(phase="warmup"),
        ProgressFrame(phase="sampling", completed=1, total=2),
        ProgressFrame(phase="verify"),
    ]
    job = JobProgress([RunTimes(10.0, 30.0), RunTimes(10.0)])
    assert [told(job, frame, 0, 1.0).fraction for frame in frames] == [0, 0.3, 0.6, 0.6, 0.6, 0.7, 0.8]


def test_the_training_of_the_first_run_does_not_lengthen_the_others():
    job = JobProgress([RunTimes(10.0, 10.0), *[RunTimes(10.0)] * 4])
    job.run_ended(105.0, 100.0)
    assert told(job, None, 1, 105.0).eta_s == pytest.approx(20)


def test_a_first_set_that_requires_fewer_runs_shortens_the_plan():
    job = JobProgress([RunTimes(10.0)] * 20)
    for run in range(5):
        job.run_ended(20.0 * (run + 1))
    before = told(job, None, 5, 100.0)
    job.replan([RunTimes(10.0)] * 8)
    after = told(job, None, 5, 100.0)
    assert (before.runs, before.fraction, before.eta_s) == (20, 0.25, 300)
    assert (after.runs, after.fraction, after.eta_s) == (8, 0.625, 60)


def test_what_only_the_first_run_does_does_not_lengthen_the_others():
    job = JobProgress([RunTimes(10.0)] * 4)
    job.run_ended(30.0, first_only_s=15.0)
    assert told(job, None, 1, 30.0).eta_s == pytest.approx(3 * 15)
    job.run_ended(50.0)
    assert told(job, None, 2, 50.0).eta_s == pytest.approx(2 * 20)  # as the only further run took


def test_the_steps_of_a_training_tell_its_time():
    job = JobProgress([RunTimes(10.0, 1000.0), RunTimes(10.0)])
    etas = [
        told(job, ProgressFrame(phase="training", completed=done, total=100), 0, 5.0 + done).eta_s
        for done in (2, 4, 50, 90)
    ]
    assert etas == [None, None, pytest.approx(50 + 20), pytest.approx(10 + 20)]
    assert told(job, ProgressFrame(phase="sampling", completed=1, total=2), 0, 110.0).eta_s == pytest.approx(20)


def test_what_follows_a_training_takes_longer_if_earlier_jobs_took_longer():
    job = JobProgress([RunTimes(10.0, 80.0), RunTimes(10.0)], likely_s=200.0)
    for done in (0, 50):
        progress = told(job, ProgressFrame(phase="training", completed=done, total=100), 0, 1.0 + done)
    whole_s = 101 + 2 * 20  # a training of 100 s, and two runs that take twice the planned time
    assert progress.eta_s == pytest.approx(whole_s * 100 / whole_s + 200 * (1 - 100 / whole_s) - 51)


def test_the_first_run_of_each_of_two_specs_trains():
    job = JobProgress([RunTimes(10.0, 10.0), RunTimes(20.0, 40.0), RunTimes(20.0), RunTimes(10.0)])
    job.run_ended(40.0, 20.0)  # twice the planned times
    assert told(job, None, 1, 40.0).eta_s == pytest.approx(2 * 90)
    job.run_ended(160.0, 80.0)
    assert told(job, None, 2, 160.0).eta_s == pytest.approx(2 * 30)


def test_a_running_job_is_never_complete():
    job = JobProgress([EQUAL], likely_s=3.0)
    frames = [ProgressFrame(phase="sampling", completed=30, total=20), ProgressFrame(phase="verify")]
    for frame, elapsed_s in zip(frames, (2.0, 50.0), strict=True):
        progress = told(job, frame, 0, elapsed_s)
        assert (progress.fraction, progress.eta_s) == (0.99, pytest.approx(0.3, abs=0.75))
        assert progress.eta_s

"""Progress over the runs of a job; it only increases within a run."""

from __future__ import annotations

from dyno.models.runner_protocol import ProgressFrame
from workers.heartbeat import JobProgress


def test_there_is_no_progress_before_the_first_frame() -> None:
    assert JobProgress(5).of(None, 0, 1.0) is None


def test_the_fraction_is_over_all_runs() -> None:
    half = ProgressFrame(phase="sampling", completed=10, total=20)
    progress = JobProgress(4).of(half, 2, 30.0)
    assert progress is not None
    assert (progress.run, progress.runs, progress.fraction) == (3, 4, 0.625)
    assert progress.eta_s == 30 * 0.375 / 0.625


def test_a_job_without_progress_has_no_eta() -> None:
    progress = JobProgress(4).of(ProgressFrame(phase="build"), 0, 3.0)
    assert progress is not None
    assert progress.fraction == 0
    assert progress.eta_s is None


def test_little_progress_gives_no_eta() -> None:
    told = [
        progress.eta_s
        for completed in (1, 9, 10)
        if (progress := JobProgress(1).of(ProgressFrame(phase="sampling", completed=completed, total=200), 0, 4.5))
    ]
    assert told == [None, None, 4.5 * 0.95 / 0.05]


def test_the_first_run_trains_before_it_samples() -> None:
    frames = [
        ProgressFrame(phase="training", completed=1, total=2, unit="epochs"),
        ProgressFrame(phase="training", completed=2, total=2, unit="epochs"),
        ProgressFrame(phase="warmup"),
        ProgressFrame(phase="sampling", completed=1, total=2),
        ProgressFrame(phase="verify"),
    ]
    job = JobProgress(1)
    fractions = [progress.fraction for frame in frames if (progress := job.of(frame, 0, 1.0))]
    assert fractions == [0.25, 0.5, 0.5, 0.75, 1.0]


def test_the_first_run_of_each_of_two_specs_trains() -> None:
    job = JobProgress(4)
    trained, sampled = ProgressFrame(phase="training", completed=1, total=1), ProgressFrame(phase="warmup")
    fractions = [found.fraction for run in (0, 1) for frame in (trained, sampled) if (found := job.of(frame, run, 1.0))]
    assert fractions == [0.125, 0.125, 0.375, 0.375]
    later = job.of(sampled, 2, 1.0)
    assert later is not None
    assert later.fraction == 0.5


def test_more_samples_than_expected_are_not_more_than_all() -> None:
    progress = JobProgress(1).of(ProgressFrame(phase="sampling", completed=30, total=20), 0, 1.0)
    assert progress is not None
    assert progress.fraction == 1.0

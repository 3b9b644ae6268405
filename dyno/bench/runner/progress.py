"""Compute the progress and remaining time of a job from the frames of its runs."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dyno.models.job import Progress
from dyno.models.result import Phases
from dyno.models.runner_protocol import ProgressFrame

_LEAST_FRACTION = 0.05  # below it, the first run's startup distorts the ETA (measured: 237 s instead of 10 s)
_MOST_FRACTION = 0.99  # maximum fraction of a job that isn't done
_LEAST_ETA_S = 0.1
_OVERDUE = 0.05  # share of a run's expected time that is assumed to remain if the run takes longer than expected
_TRAINED = ("evaluation", "generation", "warmup", "sampling")  # phases after the training
_SAMPLED = ("latency", "verify", "artifacts", "second_look")  # phases after the samples


class RunTimes(NamedTuple):
    """Expected or actual times of one run. `run_s` excludes the full training, which takes `train_s`."""

    run_s: float
    train_s: float = 0.0

    @property
    def all_s(self) -> float:
        return self.run_s + self.train_s


class JobProgress:
    """Progress over all runs. `plan`: the expected times of the runs, in order; only their ratios matter.

    The fraction is a share of the planned time. It falls only if the plan grows because a baseline requires more runs.
    `likely_s`: the duration of the whole job, estimated from earlier jobs; None if unknown. The ETA moves from this
    estimate to a forecast from the job's own steps and runs.
    """

    def __init__(self, plan: Sequence[RunTimes], likely_s: float | None = None) -> None:
        self._plan, self._likely_s = plan, likely_s
        self._took: list[RunTimes] = []
        self._is_first: list[bool] = []  # whether each ended run was a first run, with training, tuning or checks
        self._began_s = 0.0  # start of the current run
        self._trained_from: tuple[float, float] | None = None  # time and share at this run's first training frame
        self._training_s = self._training_ends_s = 0.0  # of the current run, estimated from its steps; 0 if unknown

    def replan(self, plan: Sequence[RunTimes]) -> None:
        """Replace the plan. The new plan must begin with the same runs."""
        self._plan = plan

    def note_end(self, phases: Phases, elapsed_s: float, *, is_first: bool) -> None:
        """Note the end of a run, `elapsed_s` after the claim. Only the first run of a spec trains, tunes and checks."""
        first_only_s = (phases.build_s or 0.0) + (phases.overhead_s or 0.0) if is_first else 0.0
        self.run_ended(elapsed_s, phases.training_s or 0.0, first_only_s)

    def run_ended(self, elapsed_s: float, training_s: float = 0.0, first_only_s: float = 0.0) -> None:
        """Note that a run has ended `elapsed_s` after the claim. Its full training took `training_s`.

        `first_only_s`: time that only a first run needs, for example for checks and tuning; 0 for later runs.
        """
        self._took.append(RunTimes(max(0.0, elapsed_s - self._began_s - training_s - first_only_s), training_s))
        self._is_first.append(training_s + first_only_s > 0)
        self._began_s, self._trained_from, self._training_s = elapsed_s, None, 0.0

    def of(self, frame: ProgressFrame | None, run: int, elapsed_s: float) -> Progress | None:
        """The progress to report; None before the first frame of run 0.

        `run` counts from 0, `elapsed_s` from the claim.
        """
        if frame is None and run == 0:
            return None
        frame, run = frame or ProgressFrame(phase="starting"), min(run, len(self._plan) - 1)
        within = _within(frame, self._plan[run])
        if frame.phase == "training":
            self._note_training(frame, elapsed_s)
        made_s = _all_s(self._plan[:run]) + within * self._plan[run].all_s
        fraction = min(made_s / _all_s(self._plan), _MOST_FRACTION)
        eta_s = self._eta_s(within, run, fraction, elapsed_s)
        return Progress(  # rounded, because streams keep thousands of these events
            phase=frame.phase,
            run=run + 1,
            runs=len(self._plan),
            completed=frame.completed,
            total=frame.total,
            unit=frame.unit,
            fraction=round(fraction, 4),
            eta_s=None if eta_s is None else round(eta_s, 3),
            elapsed_s=round(elapsed_s, 3),
        )

    def _note_training(self, frame: ProgressFrame, elapsed_s: float) -> None:
        """Forecast the training's time from its steps so far: all steps take about the same time."""
        share = _share(frame)
        from_s, from_share = self._trained_from = self._trained_from or (elapsed_s, share)
        if share - from_share >= _LEAST_FRACTION:
            self._training_s = (elapsed_s - from_s) / (share - from_share)
            self._training_ends_s = elapsed_s + (1 - share) * self._training_s

    def _eta_s(self, within: float, run: int, fraction: float, elapsed_s: float) -> float | None:
        """The remaining time. The whole time is a weighted mean of two forecasts: from earlier jobs and from this job.

        The weight of this job's forecast is the largest of `fraction`, the ended runs' share and the training's share.
        """
        whole_s = self._whole_s(within, run, fraction, elapsed_s)
        weight = max(fraction, run / (run + 1), self._training_s / whole_s if whole_s else 0.0)
        if self._likely_s is not None:
            whole_s = self._likely_s if whole_s is None else weight * whole_s + (1 - weight) * self._likely_s
        if whole_s is None:
            return None
        return max(whole_s - elapsed_s, _OVERDUE * (1 - fraction) * elapsed_s, _LEAST_ETA_S)

    def _whole_s(self, within: float, run: int, fraction: float, elapsed_s: float) -> float | None:
        """The duration of the whole job, estimated from its own progress; None if less than 5 % of it is done."""
        if not self._took:
            if self._training_s:
                return max(self._training_ends_s, elapsed_s) + self._after_training_s(within)
            return elapsed_s / fraction if fraction >= _LEAST_FRACTION else None
        planned = self._plan[: len(self._took)]
        rate = self._rate(planned)
        planned_s, trained_s = sum(plan.train_s for plan in planned), sum(took.train_s for took in self._took)
        train_rate = trained_s / planned_s if planned_s else rate
        current, *later = (RunTimes(rate * plan.run_s, train_rate * plan.train_s) for plan in self._plan[run:])
        left_s = max(current.all_s - (elapsed_s - self._began_s), _OVERDUE * current.all_s, 0.0)
        return elapsed_s + (left_s if within < 1 else 0.0) + _all_s(later)

    def _rate(self, planned: Sequence[RunTimes]) -> float:
        """The ended runs' time divided by their planned time. Ignores first runs once a later run has ended."""
        ended = zip(self._is_first, self._took, planned, strict=True)
        pairs = [
            (took.run_s, plan.run_s) for is_first, took, plan in ended if not (is_first and not all(self._is_first))
        ]
        return sum(took_s for took_s, _ in pairs) / sum(planned_s for _, planned_s in pairs)

    def _after_training_s(self, within: float) -> float:
        """The time of the job after the first run's training: the planned time, scaled by earlier jobs' durations."""
        rest_s = (self._plan[0].run_s if within < 1 else 0.0) + _all_s(self._plan[1:])
        return rest_s if self._likely_s is None else rest_s * self._likely_s / _all_s(self._plan)


def _all_s(times: Sequence[RunTimes]) -> float:
    return math.fsum(run.all_s for run in times)


def _share(frame: ProgressFrame) -> float:
    return min(1.0, frame.completed / frame.total) if frame.total else 0.0


def _within(frame: ProgressFrame, planned: RunTimes) -> float:
    """The share of a run's planned time that has passed."""
    share, training = _share(frame), planned.train_s / planned.all_s
    if frame.phase == "training":
        return training * share
    if frame.phase in _SAMPLED:
        return 1.0
    after = training if frame.phase in _TRAINED else 0.0
    return after + (1 - after) * share if frame.phase == "sampling" else after

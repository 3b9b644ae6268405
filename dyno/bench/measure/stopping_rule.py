"""Decide when a run stops sampling, and how many runs a job makes: by a target, or by a budget of time.

*A budget.* The interval of a result depends on the scatter of its runs, and hardly on how long each run samples.
Kalibera & Jones (2013), "Rigorous Benchmarking in Reasonable Time", section 5: the interval is narrowest with

    r = sqrt(c_run / c_sample x v_within / v_between)

samples in each run. c_run and c_sample are the costs of a run's start and of a sample, and v_within and v_between the
variances within and between runs. With the costs of four recorded workloads, r is 1 to 7
(docs/dev/decisions/0043-a-budget-buys-runs.md). SAMPLES is larger, because it takes two windows of samples to check
that a run is warm. So every run takes SAMPLES samples, and the budget buys runs. The cost of the first LEAST_RUNS runs
decides the number of all runs. The budget excludes the first run's checks and choices, and a full training.

*A target* for the interval over the runs takes two stages: Stein 1945, "A Two-Sample Test for a Linear Hypothesis Whose
Power is Independent of the Variance", Annals of Mathematical Statistics 16(3). The scatter of a first set of runs
decides the number of all runs. Stopping at a narrow interval instead would select runs that happen to lie close
together: of five recorded intervals that were narrowed to ±1 % in this way, none contained the long-run mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from dyno.bench.measure import result_metrics, statistics
from dyno.models.result import BudgetUse, LargerBudget, Phases
from dyno.models.runner_protocol import CaseRecord, RunRecord, RunShare
from dyno.models.spec import (
    FEW_SAMPLES,
    LEAST_RUNS,
    MAX_S,
    MIN_S,
    MIN_SAMPLES,
    MOST_RUNS,
    MOST_SAMPLES,
    SAMPLES,
    TARGET_REL_CI,
    DeviceKind,
    Measure,
)

MAX_SAMPLES = 200
MIN_FOR_INTERVAL = 6  # fewer samples give no 95 % interval of a median
# Callers may set a looser target, but figures that scatter or drift more than this aren't steady. A comparison with the
# default margin of ±2 % can call two results the same only if each is known to about ±2 %.
LOOSEST_REL_CI = 0.02
# Shorter samples, or fewer samples than `least_samples`, raise INSUFFICIENT_SAMPLES.
FLOOR_SAMPLE_S: dict[DeviceKind, float] = {"cpu": 0.1, "gpu": 0.05, "tpu": 0.05}

LONG_SAMPLE_S, FEW_LONG_SAMPLES = 0.5, 3  # fewer long samples are enough, because each is a mean over more time
_LARGER = (4, 20)  # times the budget; the result predicts the interval for these budgets


def effective_rel_ci(target_rel_ci: float | None) -> float:
    """The limit for steadiness: the caller's target, at most 2 %, or 1 % without a target."""
    return min(target_rel_ci or TARGET_REL_CI, LOOSEST_REL_CI)


@dataclass(frozen=True)
class StoppingRule:
    """The rule that stops sampling. Times are in seconds; `target_rel_ci` is the median's relative half-width.

    Samples that change by more than `steady_rel_ci` aren't in a steady state. `is_divided`: take `max_samples` if time
    allows, whatever the interval is.
    """

    min_samples: int = MIN_SAMPLES
    min_s: float = MIN_S
    max_s: float = MAX_S
    target_rel_ci: float = TARGET_REL_CI
    min_sample_s: float = FLOOR_SAMPLE_S["cpu"]
    max_samples: int = MAX_SAMPLES
    is_divided: bool = False

    @property
    def steady_rel_ci(self) -> float:
        return effective_rel_ci(self.target_rel_ci)

    @classmethod
    def of(cls, measure: Measure, kind: DeviceKind, share: RunShare | None = None) -> "StoppingRule":
        """The method's rule for a device of `kind`: for a `share` of the budget, or with the caller's settings.

        If the caller requests fewer samples than an interval needs, sampling takes exactly that number, and shortens
        samples to fit `max_s`. It lengthens samples if the maximum number of them would take less than `min_s`.
        """
        target, least_sample_s = measure.target_rel_ci or TARGET_REL_CI, FLOOR_SAMPLE_S[kind]
        if share is not None:
            return cls(FEW_SAMPLES, 0.0, share.time_s, target, least_sample_s, share.samples, is_divided=True)
        min_samples, min_s, max_s = measure.least_samples, measure.least_s, measure.longest_s
        max_samples = MAX_SAMPLES if min_samples >= MIN_FOR_INTERVAL else min_samples
        return cls(
            min_samples=min_samples,
            min_s=min_s,
            max_s=max_s,
            target_rel_ci=target,
            min_sample_s=min(max(least_sample_s, min_s / max_samples), max_s / min_samples),
            max_samples=max_samples,
        )


def enough_runs(measure: Measure, records: Sequence[RunRecord]) -> bool:
    """Whether there are enough runs: the whole first set, and as many runs as the scatter of this set requires."""
    first = first_set(measure)
    return len(records) >= first and len(records) >= required_runs(measure, records[:first])


def first_set(measure: Measure) -> int:
    """The number of first runs, whose scatter decides the number of all runs."""
    return min(max(measure.runs.min, 2), measure.runs.max)  # a single run has no scatter


def decided_by(measure: Measure, records: Sequence[RunRecord]) -> int:
    """The number of runs whose scatter decided about further runs; Stein's interval uses this number.

    A target decides by scatter. A budget decides by costs, but then a baseline may decide by the scatter of these runs.
    """
    first = first_set(measure)
    if measure.target_of_runs is not None or len(records) <= first:
        return first
    return required_runs(measure, records[:first])


def required_runs(measure: Measure, first: Sequence[RunRecord]) -> int:
    """The number of runs for an interval that meets the target, given the `first` runs' deviation and Student's t.

    Every case must meet the target. The number is at least the number of first runs and at most `processes.max`.
    Without a target, it is the number that the budget pays for, or the number of first runs if the spec fixes it.
    """
    target = measure.target_of_runs
    if target is None:
        return runs_in_all(measure, first) if measure.buys_runs else len(first)
    widest = max(width or 0.0 for width in _widths(first))
    if widest >= 1:
        return measure.runs.max
    within = widest / (1 - widest) / target  # the final mean may be lower than the first mean by its half-width
    return min(max(len(first), math.ceil(len(first) * within**2)), measure.runs.max)


def _widths(records: Sequence[RunRecord]) -> list[float | None]:
    """The relative half-widths over the runs: of the job, and of every case."""
    return [time_interval(runs).rel_half_width for runs in (records, *result_metrics.by_case(records).values())]


def time_interval(records: Sequence[RunRecord], first: int | None = None) -> statistics.Interval:
    """Seconds per execution: the mean of the runs' medians with Student's t interval.

    `first`: the number of first runs, whose scatter decided the number of all runs (`first_set`).
    """
    return statistics.mean_interval([statistics.median(record.samples) for record in records], first_set=first)


def least_samples(sample_s: float) -> int:
    """The least number of samples of this length in a run."""
    return FEW_SAMPLES if sample_s < LONG_SAMPLE_S else FEW_LONG_SAMPLES


def budget_share(measure: Measure) -> RunShare | None:
    """Each run's share of the budget; None if the spec itself says how long a run samples."""
    if not measure.is_divided:
        return None
    samples = SAMPLES if measure.buys_runs else MOST_SAMPLES
    return RunShare(samples=samples, time_s=measure.budget_s / measure.runs.min)


def runs_in_all(measure: Measure, first: Sequence[RunRecord]) -> int:
    """The number of runs that the budget pays for. `first`: the first LEAST_RUNS runs."""
    return max(LEAST_RUNS, min(math.floor(measure.budget_s / mean_run_s(first)), MOST_RUNS))


def mean_run_s(records: Sequence[RunRecord]) -> float:
    """The mean seconds of a run without the first run's extra work: the mean of the other runs, if there are any."""
    return max(1e-3, fmean(_run_s(record.summary.phases) for record in records[1:] or records))


def _run_s(phases: Phases) -> float:
    """The time of a run, without its full training."""
    phases_s = phases.model_dump(exclude={"training_s"}).values()
    return math.fsum(seconds for seconds in phases_s if seconds)


def _cases(record: RunRecord) -> Sequence[RunRecord | CaseRecord]:
    return record.cases or [record]


def _sampled_s(record: RunRecord) -> float:
    """The sampling windows of all cases."""
    return math.fsum(case.summary.phases.steady_s or 0.0 for case in _cases(record))


def _warmup_s(record: RunRecord) -> float:
    return math.fsum(case.summary.phases.warmup_s or 0.0 for case in _cases(record))


def budget_use(measure: Measure, records: Sequence[RunRecord]) -> BudgetUse | None:
    """How the budget was spent; None if the spec said how long each run samples."""
    if not measure.is_divided:
        return None
    phases = [record.summary.phases for record in records]
    all_s, spent_s = math.fsum(map(_run_s, phases)), mean_run_s(records) * len(records)
    sampling_s, warmup_s = math.fsum(map(_sampled_s, records)), math.fsum(map(_warmup_s, records))
    larger = [factor * measure.budget_s for factor in _LARGER] if measure.buys_runs else []
    outlooks = [(time_s, half_width_after(time_s, records)) for time_s in larger]
    return BudgetUse(
        budget_s=measure.budget_s,
        spent_s=spent_s,
        runs=len(records),
        samples=sum(len(case.samples) for record in records for case in _cases(record)),
        starting_s=max(0.0, spent_s - sampling_s - warmup_s),
        warmup_s=warmup_s,
        sampling_s=sampling_s,
        once_s=max(0.0, all_s - spent_s) + math.fsum(run.training_s or 0.0 for run in phases),
        larger=[LargerBudget(budget_s=time_s, rel_half_width=width) for time_s, width in outlooks if width is not None],
    )


def half_width_after(budget_s: float, records: Sequence[RunRecord]) -> float | None:
    """The relative half-width that a budget of `budget_s` would give, at the scatter and cost of these runs.

    None for a single run, or if the budget would buy no further runs.
    """
    if len(records) < 2:
        return None
    runs = min(math.floor(budget_s / mean_run_s(records)), MOST_RUNS)
    if runs <= len(records):
        return None
    medians = [math.log(statistics.median(record.samples)) for record in records]
    return statistics.student_t(runs - 1) * math.sqrt(variance(medians) / runs)

"""Divide a job's budget of time between runs and samples.

The interval of a result depends on the scatter of its runs, and hardly on how long each run samples. Kalibera & Jones
(2013), "Rigorous Benchmarking in Reasonable Time", section 5: the interval is narrowest with

    r = sqrt(c_run / c_sample x v_within / v_between)

samples in each run, for the costs of a run's start and of a sample, and the variances within and between runs. For four
recorded workloads, r is 1 to 7 at their own costs (docs/dev/decisions/0043-a-budget-buys-runs.md). SAMPLES is larger,
because two windows of samples show whether the run is warm. So every run takes SAMPLES, and the budget buys runs.

The first LEAST_RUNS runs show the cost of a run, which fixes the number of runs. Their scatter decides nothing:
stopping at a narrow interval selects runs that happen to lie close together (`dyno.bench.measure.stopping_rule`).

The budget doesn't pay for the first run's checks and choices, or for a full training.
"""

import math
from collections.abc import Sequence
from statistics import fmean, variance

from dyno.bench.measure.statistics import median, student_t
from dyno.models.result import BudgetUse, LargerBudget, Phases
from dyno.models.runner_protocol import CaseRecord, RunRecord, RunShare
from dyno.models.spec import FEW_SAMPLES, LEAST_RUNS, MOST_RUNS, MOST_SAMPLES, SAMPLES, Measure

LONG_SAMPLE_S, FEW_LONG_SAMPLES = 0.5, 3  # fewer long samples are enough, because each averages more


def least_samples(sample_s: float) -> int:
    """The least number of samples of this length in a run."""
    return FEW_SAMPLES if sample_s < LONG_SAMPLE_S else FEW_LONG_SAMPLES


def share(measure: Measure) -> RunShare | None:
    """Each run's share of the budget; None if the spec itself says how long a run samples."""
    if not measure.is_divided:
        return None
    samples = SAMPLES if measure.buys_runs else MOST_SAMPLES
    return RunShare(samples=samples, time_s=measure.budget_s / measure.runs.min)


def runs_in_all(measure: Measure, first: Sequence[RunRecord]) -> int:
    """The number of runs that the budget pays for. `first`: the first LEAST_RUNS runs."""
    return max(LEAST_RUNS, min(math.floor(measure.budget_s / mean_run_s(first)), MOST_RUNS))


def mean_run_s(records: Sequence[RunRecord]) -> float:
    """Seconds of a run, without the first run's extra work: the mean of the other runs, if there are any."""
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


_LARGER = (4, 20)  # times the budget


def use(measure: Measure, records: Sequence[RunRecord]) -> BudgetUse | None:
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

    None if nothing shows a scatter, or if the budget would buy no further runs.
    """
    if len(records) < 2:
        return None
    runs = min(math.floor(budget_s / mean_run_s(records)), MOST_RUNS)
    if runs <= len(records):
        return None
    medians = [math.log(median(record.samples)) for record in records]
    return student_t(runs - 1) * math.sqrt(variance(medians) / runs)

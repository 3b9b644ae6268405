"""Compute the metrics, energy and raw samples of a result from the records of its runs.

A metric is the mean of the runs' medians, with Student's t interval over the runs. Each case of a job has its own
figures and checks, as if it were a job.

A trial is a full training with its own seed. The accuracy on the test set and the time to an accuracy have one figure
for each trial. So the interval of a comparison is over the seeds: it says whether other seeds would give the same
difference. One trial gives no interval. The names `time_to_accuracy_0.98` and `epochs_to_accuracy_0.98` contain the
target, so a comparison never mixes targets. A trial that missed the target is censored: its time to the target is
unknown, but longer than the training. The mean of the other trials would be too short, so the metric then has no value.
Jobs of one spec have the same seeds, so more trials narrow these intervals, but more jobs don't.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

from dyno.bench.contract import MetricSpec, Params, Workload
from dyno.bench.measure import series
from dyno.bench.measure.statistics import mean_interval, median
from dyno.models.result import (
    AccuracySummary,
    Energy,
    Metric,
    PerCycle,
    Result,
    ResultSummary,
    RunSamples,
    RunSummary,
    Sensors,
    Training,
    Trial,
)
from dyno.models.runner_protocol import CaseRecord, RunRecord


def by_case(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """The runs of each case by name, in the order of the runs; empty if the job has no cases."""
    cases: dict[str, list[RunRecord]] = {}
    for record in records:
        for case, case_record in zip(record.cases, records_by_case(record), strict=False):
            cases.setdefault(case.name, []).append(case_record)
    return cases


def records_by_case(record: RunRecord) -> list[RunRecord]:
    """One record per case of the run, with the case's own samples; the run itself if it has no cases."""
    return [
        record.model_copy(
            update={
                "cases": [],
                "summary": case.summary,
                "warmup": case.warmup,
                "samples": case.samples,
                "sample_cpu_s": case.sample_cpu_s,
                "work": case.work,
                "amounts": {**record.amounts, **case.amounts},
            }
        )
        for case in record.cases
    ] or [record]


COLD = "cold_"  # prefix of the names of rates of the first execution


def all_metrics(
    specs: Sequence[MetricSpec], records: Sequence[RunRecord], first_set: int | None = None
) -> list[Metric]:
    """All metrics of the workload. If no run trains a model, each rate is also given for the first execution.

    `first_set`: see `dyno.bench.measure.statistics.mean_interval`.
    """
    metrics = [_of_job(spec, records) for spec in specs]
    sampled = [spec for spec in specs if spec.sampled]
    if not any(record.training for record in records):
        metrics += [_cold(spec, records) for spec in sampled if spec.better == "higher"]
    for case, case_records in by_case(records).items():
        metrics += [_sampled(replace(spec, name=f"{spec.name}_{case}"), case_records) for spec in sampled]
        metrics += [_of_calls(replace(spec, name=f"{spec.name}_{case}"), records) for spec in specs if spec.loop]
    return [_of_two_stages(metric, first_set) for metric in metrics] if first_set else metrics


def judged_metrics(workload: Workload, params: Params) -> list[MetricSpec]:
    """The metrics of `all_metrics` that have a figure for each run, and so can be compared with a baseline."""
    by_run = [spec for spec in workload.metrics_for(params) if not spec.once]
    cold = [replace(spec, name=f"{COLD}{spec.name}") for spec in by_run if spec.sampled and spec.better == "higher"]
    of_cases = [
        replace(spec, name=f"{spec.name}_{case}")
        for case in workload.cases_of(params)
        for spec in by_run
        if spec.sampled or spec.loop
    ]
    return [*by_run, *cold, *of_cases]


def _of_two_stages(metric: Metric, first_set: int) -> Metric:
    if len(metric.by_run) <= first_set:
        return metric
    interval = mean_interval(metric.by_run, first_set=first_set)
    low = None if interval.low is None else max(0.0, interval.low)
    return metric.model_copy(update={"low": low, "high": interval.high})


def _of_job(spec: MetricSpec, records: Sequence[RunRecord]) -> Metric:
    if spec.once:
        return _from_first_run(spec, records[0])
    if spec.each_run:
        return _from_each_run(spec, records)
    if spec.loop:
        return _of_calls(spec, records)
    return _sampled(spec, records) if spec.against is None else _against(spec, spec.against, records)


def _sampled(spec: MetricSpec, records: Sequence[RunRecord]) -> Metric:
    medians = [median([_figure(spec, record, time_s) for time_s in record.samples]) for record in records]
    metric = _metric(spec, medians, samples=sum(len(record.samples) for record in records))
    return metric.model_copy(update={"per_cycle": _per_cycle(spec, medians, records)})


def _per_cycle(spec: MetricSpec, rates: Sequence[float], records: Sequence[RunRecord]) -> PerCycle | None:
    """The rate divided by the clock of its run: FLOP/s become FLOP/cycle."""
    work, per_second, _ = spec.unit.partition("/s")
    clocks_hz = [record.summary.clock_hz for record in records if record.summary.clock_hz]
    if not per_second or len(clocks_hz) < len(records):
        return None
    interval = mean_interval([rate / clock_hz for rate, clock_hz in zip(rates, clocks_hz, strict=True)])
    low = None if interval.low is None else max(0.0, interval.low)
    return PerCycle(value=interval.value, unit=f"{work}/cycle", low=low, high=interval.high)


def _cold(spec: MetricSpec, records: Sequence[RunRecord]) -> Metric:
    """The rate of `spec` over the first execution of each process.

    The first execution excludes tracing. It includes the work that the framework does when a graph first runs:
    compiling with XLA, choosing and setting up kernels.
    """
    cold = replace(spec, name=f"{COLD}{spec.name}")
    times = [record.summary.phases.first_execution_s for record in records]
    figures = [_figure(cold, record, time_s) for record, time_s in zip(records, times, strict=True) if time_s]
    if len(figures) < len(records):
        return _absent(cold, "a run has no time for its first execution")
    return _metric(cold, figures, samples=len(figures))


def _figure(spec: MetricSpec, record: RunRecord, time_s: float) -> float:
    """The metric for one execution of `time_s` seconds. An `amount` has the unit of `work`."""
    amount = record.amounts[spec.amount] if spec.amount else 1.0
    return record.work / time_s / amount if spec.better == "higher" else time_s / record.work * amount


def _metric(spec: MetricSpec, figures: Sequence[float], samples: int) -> Metric:
    interval = mean_interval(figures)
    # Times and rates are positive, so the interval is cut at zero.
    low = None if interval.low is None else max(0.0, interval.low)
    return Metric(
        name=spec.name,
        unit=spec.unit,
        value=interval.value,
        low=low,
        high=interval.high,
        **series.usable(series.from_runs(interval.value, figures)),
        better=spec.better,
        runs=len(figures),
        samples=samples,
        reason=interval.reason,
        by_run=list(figures),
    )


def _from_first_run(spec: MetricSpec, first: RunRecord) -> Metric:
    value = first.figures.get(spec.name)
    if value is None:
        why = "the first run didn't measure it"
        timed_steps = "training" in first.amounts and first.training is None
        return _absent(spec, f'{why}: the job trained only the timed steps ("train": "steps")' if timed_steps else why)
    reason = "taken once, in the first run: no interval"
    return Metric(name=spec.name, unit=spec.unit, value=value, better=spec.better, runs=1, samples=1, reason=reason)


def _from_each_run(spec: MetricSpec, records: Sequence[RunRecord]) -> Metric:
    figures = [record.figures[spec.name] for record in records if spec.name in record.figures]
    if len(figures) < len(records):
        return _absent(spec, "a run didn't measure it")
    return _metric(spec, figures, samples=len(figures))


def _of_calls(spec: MetricSpec, records: Sequence[RunRecord]) -> Metric:
    """The mean of the runs' percentiles. A single run has the interval of its order statistics."""
    readings = [record.calls[spec.name] for record in records if spec.name in record.calls]
    figures = [reading.value for reading in readings if reading.value is not None]
    if len(figures) < len(records):
        return _absent(
            spec, next((reading.reason for reading in readings if reading.reason), "a run didn't measure it")
        )
    metric = _metric(spec, figures, samples=sum(reading.calls for reading in readings))
    if len(readings) > 1:
        return metric
    [only] = readings
    reason = only.reason or "over one run's calls: it says nothing about further runs"
    return metric.model_copy(update={"low": only.low, "high": only.high, "reason": reason})


def _against(spec: MetricSpec, case: str, records: Sequence[RunRecord]) -> Metric:
    """The ratio of the medians of two cases in each run; disturbances of a whole run cancel."""
    others = by_case(records).get(case, [])
    if len(others) < len(records):
        return _absent(spec, f"a run has no case {case}")
    figures = [_per_work_s(run) / _per_work_s(against) for run, against in zip(records, others, strict=True)]
    return _metric(spec, figures, samples=sum(len(record.samples) for record in (*records, *others)))


def _per_work_s(record: RunRecord) -> float:
    return median(record.samples) / record.work


def _absent(spec: MetricSpec, reason: str) -> Metric:
    return Metric(name=spec.name, unit=spec.unit, value=None, better=spec.better, runs=0, samples=0, reason=reason)


_NO_SAMPLES = ("FLOP/s", "OP/s", "bytes/s")


def energy(records: Sequence[RunRecord], rate_unit: str | None, flops: float) -> Energy:
    """The energy of a job; null with a reason unless every run reports its energy.

    `rate_unit` is the unit of the throughput ("FLOP/s", "samples/s"). A record's `work` is counted in the numerator of
    this unit. `flops` is the FLOP of one execution.
    """
    windows = [record.summary.sensors for record in records]
    execution_j = joules_per_execution([record.summary for record in records])
    if execution_j is None:
        return Energy(reason=_no_energy_reason(windows))
    read = [window for window in windows if window is not None]
    counts_samples = rate_unit is not None and rate_unit not in _NO_SAMPLES and execution_j > 0
    return Energy(
        joules=math.fsum(window.energy_j or 0.0 for window in read),
        window_s=math.fsum(window.energy_s or 0.0 for window in read),
        joules_per_sample=execution_j / records[0].work if counts_samples else None,
        flop_per_joule=flops / execution_j if flops and execution_j > 0 else None,
        covers=read[0].energy_of,
    )


def joules_per_execution(runs: Sequence[RunSummary]) -> float | None:
    """The mean energy of an execution. It is computed over whole sampling windows, because the energy counter also
    counts between samples. None unless each run reports its energy.
    """
    windows = [meter for run in runs if (meter := run.sensors) and meter.energy_j is not None and meter.energy_s]
    if not windows or len(windows) < len(runs):
        return None
    joules = math.fsum(meter.energy_j or 0.0 for meter in windows)
    seconds = math.fsum(meter.energy_s or 0.0 for meter in windows)
    executions = sum(run.samples * run.executions_per_sample for run in runs)
    return joules / seconds * math.fsum(run.phases.steady_s or 0.0 for run in runs) / executions


def _no_energy_reason(windows: Sequence[Sensors | None]) -> str:
    reasons = [window.reasons.get("energy_j") for window in windows if window is not None and window.energy_j is None]
    return next((reason for reason in reasons if reason), "no energy counter was read")


def raw_samples(records: Sequence[RunRecord]) -> list[RunSamples]:
    """All samples of every run and case, in the order they were taken."""
    return [
        _run_samples(number, measured) for number, record in enumerate(records) for measured in _sampled_records(record)
    ]


def _sampled_records(record: RunRecord) -> Sequence[RunRecord | CaseRecord]:
    return record.cases or [record]


def _run_samples(run: int, measured: RunRecord | CaseRecord) -> RunSamples:
    return RunSamples(
        run=run,
        case=measured.name if isinstance(measured, CaseRecord) else None,
        warmup=measured.warmup,
        samples=measured.samples,
        sample_cpu_s=measured.sample_cpu_s,
        executions_per_sample=measured.summary.executions_per_sample,
    )


ACCURACY = "test_accuracy"
_TIME, _EPOCHS = "time_to_accuracy_", "epochs_to_accuracy_"

_Training = Training | AccuracySummary


def is_over_seeds(name: str) -> bool:
    """Whether the metric has one figure for each trial of a training."""
    return name == ACCURACY or name.startswith((_TIME, _EPOCHS))


def accuracy_names(params: object) -> list[str]:
    """The names of the accuracy metrics in the result of a job with these params."""
    if not getattr(params, "tests_accuracy", False):
        return []
    target = getattr(params, "target_accuracy", None)
    return [ACCURACY] if target is None else [ACCURACY, *(f"{kind}{target:g}" for kind in (_TIME, _EPOCHS))]


@overload
def with_accuracy(result: Result) -> Result: ...


@overload
def with_accuracy(result: ResultSummary) -> ResultSummary: ...


def with_accuracy(result: Result | ResultSummary) -> Result | ResultSummary:
    """The result with its accuracy metrics after its other metrics, for the accuracy figures that it has."""
    training = result.training
    if training is None or any(metric.name == ACCURACY for metric in result.metrics):
        return result
    return result.model_copy(update={"metrics": [*result.metrics, *_of_accuracy(training)]})


def _of_accuracy(training: _Training) -> Iterator[Metric]:
    if training.accuracy is not None:
        of_trials = [trial.accuracy for trial in training.trials if trial.accuracy is not None] or [training.accuracy]
        accuracy = _over_seeds(ACCURACY, "1", of_trials, training)
        high = None if accuracy.high is None else min(1.0, accuracy.high)
        yield accuracy.model_copy(update={"better": "higher", "high": high})
    if training.target_accuracy is not None:
        target, trials = f"{training.target_accuracy:g}", training.trials
        seconds = [trial.time_to_accuracy_s for trial in trials]
        epochs = [None if trial.epochs_to_accuracy is None else float(trial.epochs_to_accuracy) for trial in trials]
        yield _until(f"{_TIME}{target}", "s", seconds, training)
        yield _until(f"{_EPOCHS}{target}", "epochs", epochs, training)


def _until(name: str, unit: str, of_trials: Sequence[float | None], training: _Training) -> Metric:
    reached = [figure for figure in of_trials if figure is not None]
    if len(reached) == len(of_trials):
        return _over_seeds(name, unit, reached, training)
    missed, target = _missed(training.trials), training.target_accuracy
    reason = f"{missed} of {len(of_trials)} trials didn't reach an accuracy of {target:g}; a mean would leave them out"
    return Metric(name=name, unit=unit, value=None, better="lower", runs=len(of_trials), samples=0, reason=reason)


def _missed(trials: Sequence[Trial]) -> int:
    return sum(trial.epochs_to_accuracy is None for trial in trials)


def _over_seeds(name: str, unit: str, of_trials: Sequence[float], training: _Training) -> Metric:
    interval = mean_interval(of_trials)
    return Metric(
        name=name,
        unit=unit,
        value=interval.value,
        low=None if interval.low is None else max(0.0, interval.low),
        high=interval.high,
        better="lower",
        runs=len(of_trials),
        samples=len(of_trials) * training.data.test_samples,
        reason=None if interval.low is not None else "one trial gives no interval over seeds: set `trials`",
        by_run=[*of_trials],
    )

"""Compare results that share a metric: ratios to a base, everything that differs, and warnings.

A comparison names every difference, and the differences decide what the ratios mean (`dyno.bench.measure.differences`).

WEAK_BASELINE. A speed-up depends on the base as much as on the faster result. Well-tuned dense work reaches 60 to 90 %
of the peak of any device, so a result under 30 % leaves much of the device unused. But recurrent or small work reaches
less on any device, so a small fraction of peak alone doesn't make a base weak. The base is weak if its fraction of peak
is below 30 %, and also below half of the fraction that a faster result reached on its own device.

Results of the same work, done in the same way on equal CPUs at different times, are compared at the clock of the base
(`dyno.bench.measure.series`). In all other comparisons, clocks are a part of the difference. CLOCK_CHANGED is raised if
a result of the same work on equal CPUs or GPUs had a clock that differs from the clock of the base by more than 10 %.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple

from dyno.bench.contract import Workload
from dyno.bench.measure import differences, host_noise, ratios, result_metrics, series, statistics
from dyno.bench.measure.differences import changes_work
from dyno.bench.measure.warnings import grave_codes, sorted_warnings, warning
from dyno.errors import NotComparable
from dyno.models.comparison import (
    Comparative,
    Compared,
    CompareHow,
    Comparison,
    Difference,
    Ratio,
    comparison_of,
    new_comparison_id,
    urls_of,
)
from dyno.models.job import Job
from dyno.models.result import Metric, Result, ResultWarning, Verdict
from dyno.models.spec import InterleavedSpec, Spec


@dataclass(frozen=True)
class ComparisonEntry:
    """A job and its result."""

    job: Job
    result: Result
    arm: Literal["first", "second"] | None = None  # which spec of a job with two specs; `arm_spec` is this spec
    arm_spec: Spec | None = None

    @property
    def spec(self) -> Spec:
        """The spec of this result."""
        return self.arm_spec or self.job.spec

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.job.id if self.arm is None else f"the {self.arm} spec"


def what_differs(entries: Sequence[ComparisonEntry]) -> list[Difference]:
    """Every field that differs and may explain a ratio."""
    return differences.differences([entry.spec for entry in entries], [entry.result for entry in entries])


def _words(names: Iterable[str]) -> str:
    return ", ".join(names)


WEAK_SHARE = 0.3


def weak_baseline(results: Sequence[Compared], base: int = 0) -> ResultWarning | None:
    """WEAK_BASELINE if the base is weak, else None; also None without a faster result or a known fraction of peak."""
    first = results[base]
    winners = [row for row in results if row.ratio is not None and row.ratio.verdict is Comparative.FASTER]
    reached = max((row.peak_fraction for row in winners if row.peak_fraction is not None), default=None)
    share = first.peak_fraction
    if reached is None or share is None or share >= min(WEAK_SHARE, reached / 2):
        return None
    return warning(
        "WEAK_BASELINE",
        f"{first.job} used {share:.1%} of its device's peak; a faster result used {reached:.1%} of its own.",
        job=first.job,
        peak_fraction=share,
        best_peak_fraction=reached,
    )


_APART = (
    "The results were measured one after the other, not side by side. The ratios include changes of the machines in "
    "between, which the intervals don't cover."
)


Estimator = Callable[[Sequence[float], Sequence[float], float], ratios.RatioEstimate]


def compare(
    how: CompareHow,
    entries: Sequence[ComparisonEntry],
    workload: Workload | None,
    created_at: datetime,
    estimator: Estimator | None = None,
    *,
    base: int = 0,
) -> Comparison:
    """Compare `entries` with `entries[base]`, in the requested order.

    `workload`: None if this version of Dyno doesn't have the workload. `estimator` computes the ratio of runs that took
    turns. Without an estimator, results are compared at the clock of the base, if possible.

    Raises NotComparable and InvalidComparison.
    """
    differ = what_differs(entries)
    free = partial(differences.free_params, workload=workload)
    shared = differences.shared_metrics([entry.result.metrics for entry in entries], differ, free)
    name = shared.choose(how.metric, "a metric that all results have in the same unit")
    other_work = [field.field for field in differ if changes_work(field, free(name))]
    alike = [_same_way(entries[base], entry, name, workload) for entry in entries]
    metrics = [metric for entry in entries if (metric := entry.result.metric(name)) is not None]
    is_sampled = workload is not None and workload.samples(name)
    results = _results(how, entries, metrics, alike, base, is_sampled, estimator)
    weak = weak_baseline(results, base)
    comparison_id = new_comparison_id()
    return Comparison(
        id=comparison_id,
        created_at=created_at,
        workload=entries[base].result.workload,
        metric=name,
        unit=metrics[base].unit,
        better=metrics[base].better,
        base=base,
        same_work=not other_work,
        not_compared=shared.totals,
        confidence=how.confidence,
        margin=how.margin,
        verdict=min((result.verdict for result in results), key=lambda verdict: verdict.rank),
        results=results,
        differences=differ,
        warnings=sorted_warnings([*([] if weak is None else [weak]), *_clock_changes(entries, base, alike)]),
        notes=[
            *_work_notes(metrics[base], other_work, shared.totals),
            *untrusted_notes(entries),
            *_margin_notes(results, how.margin),
            *(_notes(results, base, how.confidence) if estimator is None else []),
        ],
        urls=urls_of(comparison_id),
    )


def _results(
    how: CompareHow,
    entries: Sequence[ComparisonEntry],
    metrics: Sequence[Metric],
    alike: Sequence[bool],
    base: int,
    is_sampled: bool,
    estimator: Estimator | None,
) -> list[Compared]:
    results = []
    for position, (entry, metric, is_alike) in enumerate(zip(entries, metrics, alike, strict=True)):
        at_clock, against = None, None
        if position != base:
            if is_alike and estimator is None:
                at_clock = _at_clock_of(entries[base], metrics[base], entry, metric, is_sampled)
            against = _judged(entries[base], entry, _ratio(metrics[base], metric, at_clock, how, estimator))
        results.append(_compared(entry, metric, at_clock.metric.value if at_clock else None, against, how))
    return results


def ratio(first: Metric, other: Metric, how: CompareHow, estimator: Estimator) -> Ratio:
    """The ratio of `other` to `first`; above 1 if `other` is better, for metrics of either direction."""
    over, under = (other, first) if other.better == "higher" else (first, other)
    if over.value is None or not under.value:
        reason = _why_no_ratio(first, other)
        return Ratio(verdict=Comparative.INCONCLUSIVE, value=None, reason=reason)
    if not (over.by_run and under.by_run):
        reason = "the metric is taken once, so its scatter is unknown: no interval"
        value = over.value / under.value
        return Ratio(verdict=Comparative.INCONCLUSIVE, value=value, as_measured=value, reason=reason)
    estimate = estimator(over.by_run, under.by_run, how.confidence)
    verdict = ratios.comparative_verdict(estimate.interval, how.margin)
    undecided = verdict is Comparative.INCONCLUSIVE
    return Ratio(
        verdict=verdict,
        value=estimate.interval.value,
        as_measured=estimate.interval.value,
        low=_not_below_zero(estimate.interval.low),
        high=estimate.interval.high,
        degrees_of_freedom=estimate.degrees,
        smallest_effect=estimate.smallest_effect,
        more_runs=ratios.more_runs(estimate, how.margin, how.confidence) if undecided else None,
        reason=estimate.interval.reason,
    )


def _why_no_ratio(first: Metric, other: Metric) -> str:
    missing = [metric for metric in (first, other) if metric.value is None]
    if not missing:
        return "a figure is zero"
    reasons = dict.fromkeys(metric.reason for metric in missing if metric.reason)
    return ": ".join(["there is no figure to compare", *([" and ".join(reasons)] if reasons else [])])


def _interval(metric: Metric, confidence: float) -> statistics.Interval | None:
    """The metric's own interval if it has this confidence, else Student's interval, which may be narrower."""
    if not metric.by_run or metric.value is None:
        return None
    if confidence == metric.confidence:
        return statistics.Interval(metric.value, metric.low, metric.high)
    return statistics.mean_interval(metric.by_run, confidence)


_OTHER_WAYS = ("/framework", "/replicas", "/details/")  # fields, besides params, that name ways to do the same work


def _same_way(base: ComparisonEntry, other: ComparisonEntry, metric: str, workload: Workload | None) -> bool:
    """Whether both results are of the same work, done in the same way on equal hardware."""
    hardware = base.result.hardware_id
    if hardware is None or hardware != other.result.hardware_id:
        return False
    untimed = workload.untimed_for(metric) if workload else frozenset[str]()
    return not any(
        changes_work(field, untimed) or field.field.startswith(_OTHER_WAYS) for field in what_differs([base, other])
    )


class _AtClock(NamedTuple):
    """A metric adjusted to another clock, and the variance that the adjustment adds to its logarithm."""

    metric: Metric
    log_variance: float


def _at_clock_of(
    base: ComparisonEntry, of_base: Metric, entry: ComparisonEntry, metric: Metric, is_sampled: bool
) -> _AtClock | None:
    """The metric at the clock of the base; None if it can't be adjusted."""
    by = _elasticity(base.result, of_base, metric, is_sampled)
    if by is None or metric.value is None:
        return None
    clocks = series.mean_clock_hz(entry.result), series.mean_clock_hz(base.result)
    runs = len(entry.result.runs), len(base.result.runs)
    adjustment = series.adjustment(*clocks, runs, by, entry.result.device)
    if adjustment is None:
        return None
    by_run = [figure * adjustment.factor for figure in metric.by_run]
    changes = {"value": metric.value * adjustment.factor, "by_run": by_run}
    return _AtClock(metric.model_copy(update=changes), adjustment.log_variance)


def _elasticity(base: Result, of_base: Metric, metric: Metric, is_sampled: bool) -> series.Elasticity | None:
    """The elasticity that was estimated from more jobs. For a sampled metric, an unknown elasticity is assumed."""
    repeats = [side.repeat for side in (of_base, metric) if side.repeat and side.repeat.elasticity is not None]
    if not repeats:
        return series.Elasticity(series.assumed_elasticity(base, metric.better)) if is_sampled else None
    best = max(repeats, key=lambda repeat: repeat.based_on.jobs)
    error = series.ASSUMED_ERROR if best.elasticity_error is None else best.elasticity_error
    return series.Elasticity(best.elasticity or 0.0, error=error)


def _ratio(
    first: Metric, metric: Metric, at_clock: _AtClock | None, how: CompareHow, estimator: Estimator | None
) -> Ratio:
    """The ratio at the clock of the base, if `at_clock` is known, and the ratio as measured."""
    if at_clock is None:
        return ratio(first, metric, how, estimator or ratios.ratio_of_means)
    adjusted = ratio(first, at_clock.metric, how, partial(ratios.ratio_of_means, log_variance=at_clock.log_variance))
    if not (first.value and metric.value):
        return adjusted
    as_measured = metric.value / first.value if metric.better == "higher" else first.value / metric.value
    return adjusted.model_copy(update={"as_measured": as_measured})


def _judged(base: ComparisonEntry, other: ComparisonEntry, measured: Ratio) -> Ratio:
    """The ratio; without a verdict if a result is untrusted."""
    wrong = [entry for entry in (base, other) if entry.result.verdict is Verdict.UNTRUSTED]
    if not wrong:
        return measured
    names = _words(f"{entry.name} is untrusted ({grave_codes(entry.result)})" for entry in wrong)
    return without_verdict(measured, f"{names}, so the ratio is wrong")


def without_verdict(found: Ratio, reason: str) -> Ratio:
    """The ratio without a verdict, and without an interval, because an interval suggests that the ratio is known."""
    return Ratio(verdict=Comparative.INCONCLUSIVE, value=found.value, as_measured=found.as_measured, reason=reason)


def _clock_changes(entries: Sequence[ComparisonEntry], base: int, alike: Sequence[bool]) -> list[ResultWarning]:
    """A warning that names all results whose clocks differ too much from the clock of the base."""
    to_hz, clocks = (
        series.mean_clock_hz(entries[base].result),
        [series.mean_clock_hz(entry.result) for entry in entries],
    )
    changed = [
        (entry.name, hz)
        for entry, hz, same in zip(entries, clocks, alike, strict=True)
        if same and hz and series.has_changed(to_hz, hz)
    ]
    return [series.clock_changed(changed, entries[base].name, to_hz)] if changed and to_hz else []


def _compared(
    entry: ComparisonEntry,
    metric: Metric,
    adjusted_value: float | None,
    ratio: Ratio | None,
    how: CompareHow,
) -> Compared:
    result, device = entry.result, entry.result.device
    interval = _interval(metric, how.confidence)
    return Compared(
        job=entry.job.id,
        arm=entry.arm,
        value=metric.value,
        low=None if interval is None else _not_below_zero(interval.low),
        high=None if interval is None else interval.high,
        runs=metric.runs,
        clock_hz=series.mean_clock_hz(result),
        adjusted_value=adjusted_value,
        ratio=ratio,
        verdict=result.verdict,
        warnings=[raised.code for raised in result.warnings],
        framework=entry.spec.framework,
        device=f"{device.get('id')}@{device.get('host')}",
        device_model=device.get("model"),
        hardware_id=result.hardware_id,
        context_id=result.context_id,
        peak_fraction=_peak_fraction(result, metric.name),
        finished_at=entry.job.finished_at,
    )


def _peak_fraction(result: Result, metric: str) -> float | None:
    """The fraction of peak of the metric's work. A case has its own fraction, and a first execution has none."""
    if metric.startswith(result_metrics.COLD):
        return None
    table = result.details.get("cases")
    cases = table.items() if isinstance(table, dict) else ()
    case_row = next((row for case, row in cases if metric.endswith(f"_{case}")), None)
    share = case_row.get("peak_fraction") if isinstance(case_row, dict) else result.peak.fraction
    return share if isinstance(share, float) else None


def _not_below_zero(low: float | None) -> float | None:
    """Cut the interval at zero: times, rates and their ratios are positive."""
    return None if low is None else max(0.0, low)


def _work_notes(metric: Metric, other_work: Sequence[str], totals: Sequence[str]) -> list[str]:
    notes = []
    if other_work:
        notes.append(
            f"The work differs in {_words(other_work)}: the ratios are of {metric.name} in {metric.unit}, not changes "
            "of speed at the same work."
        )
    if totals:
        notes.append(f"Not compared, because they depend on the amount of work: {_words(totals)}.")
    return notes


def _notes(results: Sequence[Compared], base: int, confidence: float) -> list[str]:
    missed = chance_of_miss(confidence)
    many = [f"The intervals aren't corrected for multiple comparisons: {missed} misses on average."]
    adjusted = [result.job for result in results if result.adjusted_value is not None]
    clocks = [f"The ratios use values at the clock of {results[base].job}, for {_words(adjusted)}."] if adjusted else []
    return [_APART, *clocks, *(many if len(results) > 2 else [])]


def untrusted_notes(entries: Sequence[ComparisonEntry]) -> list[str]:
    """A note for each untrusted result."""
    return [
        f"{entry.name} is untrusted ({grave_codes(entry.result)}): its figure and all its ratios are wrong."
        for entry in entries
        if entry.result.verdict is Verdict.UNTRUSTED
    ]


def _margin_notes(results: Sequence[Compared], margin: float) -> list[str]:
    """A note for each result that is SAME although a difference is proven: the margin is larger than the difference."""
    return [
        f"{'the second spec' if row.arm else row.job} is SAME by the margin of {100 * margin:.4g} %, but its "
        "interval excludes 1: it differs from the base. A smaller margin tells them apart."
        for row in results
        if row.ratio is not None and row.ratio.verdict is Comparative.SAME
        if row.ratio.low is not None and row.ratio.high is not None and not row.ratio.low <= 1 <= row.ratio.high
    ]


def chance_of_miss(confidence: float) -> str:
    """The share of intervals that miss the true value, in words."""
    return f"at {100 * confidence:.4g} %, one of {round(1 / (1 - confidence))}"


def compare_variants(job: Job, spec: InterleavedSpec, result: Result, workload: Workload | None) -> Comparison:
    """Compare the two specs of a job. `result` is the job's result with its arms.

    Raises NotComparable and InvalidComparison.
    """
    if len(result.arms) != 1 + spec.control:
        detail = "the result isn't one of these specs: it has another number of arms"
        raise NotComparable(detail, {"/arms": [1 + spec.control, len(result.arms)]})
    how = CompareHow(metric=spec.metric, margin=spec.margin, confidence=spec.confidence)
    second, *control = result.arms
    first_entry = ComparisonEntry(job, result, arm="first", arm_spec=spec.arms[0])
    entries = [first_entry, ComparisonEntry(job, second, arm="second", arm_spec=spec.against)]
    spoilt = _spoilt_pairs(result, second)
    noise = _against_itself(result, control[0], how) if control else None
    departure = _departure(noise)
    compared = compare(how, entries, workload, job.created_at, partial(_beyond, departure=departure, without=spoilt))
    comparison_id = comparison_of(job.id)
    notes = [
        *compared.notes,
        *([_left_out(len(spoilt), len(result.runs))] if spoilt else []),
        *([_unsteady_control(spec.confidence)] if departure > 1 else []),
        *(_wrong_control(repeated) for repeated in control if repeated.verdict is Verdict.UNTRUSTED),
    ]
    changes = {"id": comparison_id, "kind": "interleaved", "job": job.id, "control": noise, "notes": notes}
    return compared.model_copy(update=changes | {"urls": urls_of(comparison_id), "owner": job.owner})


def _departure(control: Ratio | None) -> float:
    """The factor by which the first spec differs from itself; 1 if no difference is proven."""
    if control is None or not control.value or control.low is None or control.high is None:
        return 1.0
    return 1.0 if control.low <= 1 <= control.high else max(control.value, 1 / control.value)


def _beyond(
    over: Sequence[float], under: Sequence[float], confidence: float, *, departure: float, without: Collection[int]
) -> ratios.RatioEstimate:
    """The ratio of paired runs. A proven difference of the first spec from itself (`departure`) widens the interval."""
    paired = ratios.paired_ratio(over, under, confidence, without=without)
    value, low, high = paired.interval.value, paired.interval.low, paired.interval.high
    if departure == 1 or low is None or high is None:
        return paired
    effect = None if paired.smallest_effect is None else (1 + paired.smallest_effect) * departure - 1
    wider = statistics.Interval(value, low / departure, high * departure)
    return replace(paired, interval=wider, smallest_effect=effect, with_more=None)  # more runs don't change the control


def _against_itself(first: Result, again: Result, how: CompareHow) -> Ratio | None:
    before, after = (result.metric(how.metric or "") for result in (first, again))
    if before is None or after is None:
        return None  # `compare` reports it
    paired = ratio(before, after, how, partial(ratios.paired_ratio, without=_spoilt_pairs(first, again)))
    wrong = again.verdict is Verdict.UNTRUSTED
    return without_verdict(paired, f"the control is untrusted ({grave_codes(again)})") if wrong else paired


def _spoilt_pairs(first: Result, second: Result) -> frozenset[int]:
    """The pairs in which other processes disturbed a run. They are selected by the measured load, never by figures.

    Empty if at most half of the pairs would remain in one of the two orders. Then the disturbance is a usual condition.
    """
    if len(first.runs) != len(second.runs):
        return frozenset()
    spoilt = frozenset(
        pair
        for arm in (first, second)
        for pair, run in enumerate(arm.runs)
        if host_noise.spoils(run.core_shares, len(arm.device.get("cores") or ()))
    )
    orders = (range(order, len(first.runs), 2) for order in (0, 1))
    return spoilt if all(2 * len(spoilt.intersection(pairs)) < len(pairs) for pairs in orders) else frozenset()


def _left_out(spoilt: int, pairs: int) -> str:
    return f"Pairs that don't count: {spoilt} of {pairs}. Other work used the cores during one of their runs."


def _unsteady_control(confidence: float) -> str:
    return (
        f"The control differs from the first spec, which it repeats; {chance_of_miss(confidence)} does by chance. "
        "Otherwise something disturbs even interleaved runs. The interval is widened by the control's ratio, so only "
        "a larger difference counts."
    )


def _wrong_control(control: Result) -> str:
    return f"The control is untrusted ({grave_codes(control)}), so it doesn't show the noise. The intervals ignore it."

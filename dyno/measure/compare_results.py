"""Compare results of the same work: ratios to the first, differences and warnings.

Comparable results have the same workload, params, precision and `method_version`. Emulated devices are compared only
with emulated ones. Params that don't change what a sample times (`Params.untimed`: epochs, trials, …) may differ,
unless the metric is taken once, such as an accuracy. An unobserved precision doesn't prove a different one, so it is
only reported as a difference.

WEAK_BASELINE. A speed-up depends on the baseline as much as on the faster result. Well-tuned dense work reaches 60 to
90 % of the peak of any device, so a result under 30 % leaves much of the device unused. But recurrent or small work
reaches little on any device, which doesn't make it a weak baseline. The first result is weak if it used less than 30 %
of its peak, and less than half of the share that a faster result used of its own.

Results of equal hardware at different times are compared at the clock of the first one
(`dyno.measure.clock_adjustment`). Clocks of different hardware aren't adjusted: they are a part of the difference.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from dyno.errors import FieldError, InvalidComparison, NotComparable
from dyno.measure import clock_adjustment, ratios, result_metrics, statistics
from dyno.measure.warnings import warning
from dyno.models import comparison
from dyno.models.job import Job
from dyno.models.result import Metric, Result, ResultWarning, Verdict
from dyno.models.spec import InterleavedSpec, Spec
from dyno.validation_messages import pointer

_OF_THE_DEVICE = ("id", "host", "kind", "model", "cores", "memory_bytes", "isa")
_CHOSEN = ("jit_compile", "steps_per_execution", "engine")  # choices of the run, in a result's details


@dataclass(frozen=True)
class ComparisonEntry:
    """A job and its result."""

    job: Job
    result: Result
    arm: Literal["first", "second"] | None = None  # for a job with several results; its spec is `arm_spec`
    arm_spec: Spec | None = None

    @property
    def spec(self) -> Spec:
        """The spec of this result."""
        return self.arm_spec or self.job.spec

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.job.id if self.arm is None else f"the {self.arm} spec"


def metric_named(result: Result, metric: str) -> Metric | None:
    return next((each for each in result.metrics if each.name == metric), None)


def check_comparable(entries: Sequence[ComparisonEntry], requested: str | None, untimed: Collection[str]) -> str:
    """The name of the metric to compare: `requested`, or the first metric of the first result.

    Raises NotComparable with all fields that prevent a comparison, and InvalidComparison if a result lacks the metric.
    """
    of_first = [each.name for each in entries[0].result.metrics]
    metric = requested or next(iter(of_first), "")
    found = [metric_named(entry.result, metric) for entry in entries]
    differing = _of_the_work(entries)
    whatever_metric = [each for each in differing if not _names(each.field, untimed)]
    if None in found and not whatever_metric:  # a misspelt name, before differences that matter only for some metrics
        there = [name for name in of_first if all(metric_named(entry.result, name) for entry in entries)]
        detail = f'not every result has a metric "{metric}"; all have: {", ".join(there) or "none"}'
        raise InvalidComparison([FieldError("/metric", "unknown-metric", detail)])
    all_sampled = all(each and each.by_run for each in found)
    if forbidding := whatever_metric if all_sampled else differing:
        fields = {each.field: each.values for each in forbidding}
        raise NotComparable(f"these results differ in {', '.join(fields)}, so they can't be compared", fields)
    return metric


def check_specs(first: Spec, second: Spec, free: Collection[str]) -> None:
    """Raises NotComparable with all fields in which the requested work differs, except params in `free`."""
    work = [{"/workload": each.workload, **_flat("/params", each.params, depth=1)} for each in (first, second)]
    fields = {each.field: each.values for each in _differing(work) if not _names(each.field, free)}
    if fields:
        raise NotComparable(f"these specs differ in {', '.join(fields)}, so they don't request the same work", fields)


def differences(entries: Sequence[ComparisonEntry]) -> list[comparison.Difference]:
    """All differences that don't prevent a comparison."""
    return [*_of_the_work(entries), *_precision_unknown(entries), *_differing([_circumstances(e) for e in entries])]


def _names(field: str, params: Collection[str]) -> bool:
    return field.removeprefix("/params/").split("/")[0] in params if field.startswith("/params/") else False


def _of_the_work(entries: Sequence[ComparisonEntry]) -> list[comparison.Difference]:
    found = _differing([_work_of(entry) for entry in entries])
    observed = [_observed(entry.result) for entry in entries]
    if len(set(observed) - {None}) > 1:
        found.append(comparison.Difference(field="/precision/observed", values=list(observed)))
    return found


def _work_of(entry: ComparisonEntry) -> dict[str, Any]:
    result = entry.result
    return {
        "/workload": result.workload,
        **_flat("/params", entry.spec.params, depth=1),
        "/precision/requested": result.precision.requested if result.precision else None,
        "/method_version": result.method_version,
        "/device/emulated": bool(result.device.get("emulated")),
    }


def _observed(result: Result) -> str | None:
    return result.precision.observed if result.precision else None


def _precision_unknown(entries: Sequence[ComparisonEntry]) -> list[comparison.Difference]:
    observed = [_observed(entry.result) for entry in entries]
    partly = None in observed and len(set(observed)) > 1
    return [comparison.Difference(field="/precision/observed", values=list(observed))] if partly else []


def _circumstances(entry: ComparisonEntry) -> dict[str, Any]:
    result, spec = entry.result, entry.spec
    return {
        "/framework": spec.framework,
        "/replicas": spec.replicas,
        "/seed": spec.seed,
        **_flat("/measure", spec.measure.model_dump(mode="json"), depth=1),
        **{f"/device/{name}": result.device.get(name) for name in _OF_THE_DEVICE},
        "/hardware_id": result.hardware_id,
        "/context_id": result.context_id,
        **_flat("/environment", result.environment, depth=2),
        **{f"/details/{name}": result.details.get(name) for name in _CHOSEN},
        "/training/data/kind": result.training.data.kind if result.training else None,
        "/runs/process_start": " and ".join(sorted({run.process_start for run in result.runs})),
    }


def _flat(root: str, values: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """JSON pointers to values; objects are flattened to `depth` levels and kept whole below."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        at = pointer(root, name)
        found |= _flat(at, value, depth - 1) if depth > 1 and isinstance(value, dict) else {at: value}
    return found


def _differing(each: Sequence[Mapping[str, Any]]) -> list[comparison.Difference]:
    names: Iterable[str] = dict.fromkeys(name for values in each for name in values)
    found = {name: [values.get(name) for values in each] for name in names}
    return [
        comparison.Difference(field=name, values=values)
        for name, values in found.items()
        if any(value != values[0] for value in values[1:])
    ]


WEAK_SHARE = 0.3


def weak_baseline(results: Sequence[comparison.Compared]) -> ResultWarning | None:
    """Silent if the peak of either side is unknown, or if no result is faster than the first."""
    first, *others = results
    winners = [
        each for each in others if each.ratio is not None and each.ratio.verdict is comparison.Comparative.FASTER
    ]
    reached = max((each.peak_fraction for each in winners if each.peak_fraction is not None), default=None)
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
    how: comparison.CompareHow,
    entries: Sequence[ComparisonEntry],
    untimed: Collection[str],
    created_at: datetime,
    estimator: Estimator = ratios.ratio_of_means,
    *,
    at_one_clock: bool = True,
) -> comparison.Comparison:
    """Compare `entries`, in the requested order; `untimed` is as in `dyno.workloads.contract.Params`.

    `at_one_clock`: at the clock of the first result, where possible.

    Raises NotComparable and InvalidComparison.
    """
    name = check_comparable(entries, how.metric, untimed)
    metrics = [metric for entry in entries if (metric := metric_named(entry.result, name)) is not None]
    adjusted = [
        _at_clock_of(metrics[0], metric) if at_one_clock and _same_hardware(entries[0], entry) else metric
        for entry, metric in zip(entries, metrics, strict=True)
    ]
    results = [
        _compared(entry, metric, at_clock, None if place == 0 else ratio(metrics[0], at_clock, how, estimator), how)
        for place, (entry, metric, at_clock) in enumerate(zip(entries, metrics, adjusted, strict=True))
    ]
    weak = weak_baseline(results)
    comparison_id = comparison.new_comparison_id()
    return comparison.Comparison(
        id=comparison_id,
        created_at=created_at,
        workload=entries[0].result.workload,
        metric=name,
        unit=metrics[0].unit,
        better=metrics[0].better,
        confidence=how.confidence,
        margin=how.margin,
        verdict=min((each.verdict for each in results), key=lambda verdict: verdict.rank),
        results=results,
        differences=differences(entries),
        warnings=[] if weak is None else [weak],
        notes=_notes(entries, results, how.confidence),
        urls=comparison.urls_of(comparison_id),
    )


def ratio(first: Metric, other: Metric, how: comparison.CompareHow, estimator: Estimator) -> comparison.Ratio:
    """Above 1 if `other` is better, for metrics of either direction."""
    over, under = (other, first) if other.better == "higher" else (first, other)
    if over.value is None or not under.value:
        reason = "there is no figure to compare" if over.value is None or under.value is None else "a figure is zero"
        return comparison.Ratio(verdict=comparison.Comparative.INCONCLUSIVE, value=None, reason=reason)
    if not (over.by_run and under.by_run):
        reason = "the metric is taken once, so its scatter is unknown: no interval"
        return comparison.Ratio(
            verdict=comparison.Comparative.INCONCLUSIVE, value=over.value / under.value, reason=reason
        )
    found = estimator(over.by_run, under.by_run, how.confidence)
    return comparison.Ratio(
        verdict=ratios.comparative_verdict(found.interval, how.margin),
        value=found.interval.value,
        low=_not_below_zero(found.interval.low),
        high=found.interval.high,
        degrees_of_freedom=found.degrees,
        smallest_effect=found.smallest_effect,
        reason=found.interval.reason,
    )


def _interval(metric: Metric, confidence: float) -> statistics.Interval | None:
    """The metric's own interval if it has this confidence. That of a job with a target isn't Student's t alone."""
    if not metric.by_run or metric.value is None:
        return None
    if confidence == metric.confidence:
        return statistics.Interval(metric.value, metric.low, metric.high)
    return statistics.mean_interval(metric.by_run, confidence)


def _same_hardware(first: ComparisonEntry, other: ComparisonEntry) -> bool:
    return first.result.hardware_id is not None and first.result.hardware_id == other.result.hardware_id


def _at_clock_of(first: Metric, metric: Metric) -> Metric:
    """The metric at the clock of `first`, by the elasticity that rests on more results; itself if it is unknown."""
    if first.repeat is None or metric.repeat is None:
        return metric
    known = max(first.repeat, metric.repeat, key=lambda repeat: repeat.based_on.jobs)
    factor = clock_adjustment.factor(metric.repeat.clock_hz, first.repeat.clock_hz, known.elasticity)
    if factor == 1 or metric.value is None:
        return metric
    by_run = [figure * factor for figure in metric.by_run]
    return metric.model_copy(update={"value": metric.value * factor, "by_run": by_run})


def _compared(
    entry: ComparisonEntry,
    metric: Metric,
    at_clock: Metric,
    ratio: comparison.Ratio | None,
    how: comparison.CompareHow,
) -> comparison.Compared:
    result, device = entry.result, entry.result.device
    interval = _interval(metric, how.confidence)
    return comparison.Compared(
        job=entry.job.id,
        arm=entry.arm,
        value=metric.value,
        low=None if interval is None else _not_below_zero(interval.low),
        high=None if interval is None else interval.high,
        runs=metric.runs,
        clock_hz=clock_adjustment.clock_hz(result),
        adjusted_value=None if at_clock is metric else at_clock.value,
        ratio=ratio,
        verdict=result.verdict,
        warnings=[each.code for each in result.warnings],
        framework=entry.spec.framework,
        device=f"{device.get('id')}@{device.get('host')}",
        device_model=device.get("model"),
        hardware_id=result.hardware_id,
        context_id=result.context_id,
        peak_fraction=_peak_fraction(result, metric.name),
        finished_at=entry.job.finished_at,
    )


def _peak_fraction(result: Result, metric: str) -> float | None:
    """The fraction of peak of the metric's work: for a case its own, for a first execution unknown."""
    if metric.startswith(result_metrics.COLD):
        return None
    table = result.details.get("cases")
    cases = table.items() if isinstance(table, dict) else ()
    own = next((row for case, row in cases if metric.endswith(f"_{case}")), None)
    share = own.get("peak_fraction") if isinstance(own, dict) else result.peak.fraction
    return share if isinstance(share, float) else None


def _not_below_zero(low: float | None) -> float | None:
    """Cut the interval at zero: times, rates and their ratios are positive."""
    return None if low is None else max(0.0, low)


def _notes(entries: Sequence[ComparisonEntry], results: Sequence[comparison.Compared], confidence: float) -> list[str]:
    missed = chance_of_miss(confidence)
    many = [f"The intervals aren't corrected for multiple comparisons: {missed} misses on average."]
    adjusted = [each.job for each in results if each.adjusted_value is not None]
    clocks = [f"The ratios use values at the clock of {results[0].job}, for {', '.join(adjusted)}."] if adjusted else []
    return [*untrusted_notes(entries), _APART, *clocks, *(many if len(results) > 2 else [])]


def untrusted_notes(entries: Sequence[ComparisonEntry]) -> list[str]:
    """A note for each untrusted result."""
    grave = {entry.name: [w.code for w in entry.result.warnings if w.severity == "A"] for entry in entries}
    return [
        f"{entry.name} is untrusted ({', '.join(grave[entry.name])}): its figure and all its ratios are wrong."
        for entry in entries
        if entry.result.verdict is Verdict.UNTRUSTED
    ]


def chance_of_miss(confidence: float) -> str:
    """The share of intervals that miss the true value, in words."""
    return f"at {100 * confidence:.4g} %, one of {round(1 / (1 - confidence))}"


def compare_variants(job: Job, spec: InterleavedSpec, result: Result, free: Collection[str]) -> comparison.Comparison:
    """Compare the two specs of a job. `result` is the job's result with its arms; `free` lists params that may differ.

    Raises NotComparable and InvalidComparison: runs may differ, for example in precision, if the specs don't.
    """
    if len(result.arms) != 1 + spec.control:
        detail = "the worker ran other specs: its version doesn't support interleaved specs. Upgrade the worker"
        raise NotComparable(detail, {"/arms": [1 + spec.control, len(result.arms)]})
    how = comparison.CompareHow(metric=spec.metric, margin=spec.margin, confidence=spec.confidence)
    second, *control = result.arms
    first_entry = ComparisonEntry(job, result, arm="first", arm_spec=spec.arms[0])
    entries = [first_entry, ComparisonEntry(job, second, arm="second", arm_spec=spec.against)]
    found = compare(how, entries, free, job.created_at, ratios.paired_ratio, at_one_clock=False)
    noise = _against_itself(result, control[0], how) if control else None
    unsteady = noise is not None and noise.verdict in (comparison.Comparative.FASTER, comparison.Comparative.SLOWER)
    comparison_id = comparison.comparison_of(job.id)
    return found.model_copy(
        update={
            "id": comparison_id,
            "kind": "interleaved",
            "job": job.id,
            "control": noise,
            "notes": [*untrusted_notes(entries), *([_unsteady_control(spec.confidence)] if unsteady else [])],
            "urls": comparison.urls_of(comparison_id),
            "owner": job.owner,
        }
    )


def _against_itself(first: Result, again: Result, how: comparison.CompareHow) -> comparison.Ratio:
    return ratio(_same_metric(first, how), _same_metric(again, how), how, ratios.paired_ratio)


def _unsteady_control(confidence: float) -> str:
    return (
        f"The control differs from the first spec, which it repeats; {chance_of_miss(confidence)} does by chance. "
        "Otherwise something disturbs even interleaved runs: trust only ratios well beyond the control's."
    )


def _same_metric(result: Result, how: comparison.CompareHow) -> Metric:
    found = metric_named(result, how.metric or "")
    assert found is not None, "compare() has found it in the first of the same work"
    return found

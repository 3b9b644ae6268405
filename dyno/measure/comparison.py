"""Two or more results of the same work beside each other: ratios to the first, what else differs, what to doubt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from dyno.measure.comparable import Entry, check_comparable, differences, named
from dyno.measure.comparison_doubts import cherry_pick_risk, weak_baseline
from dyno.measure.metrics import COLD
from dyno.measure.ratio import RatioEstimate, compared, ratio_of_means
from dyno.measure.statistics import mean_interval
from dyno.measure.warnings import in_order
from dyno.models.comparison import Comparative, Compared, CompareHow, Comparison, Ratio, new_comparison_id, urls_of
from dyno.models.result import Metric, Result, Verdict

_APART = (
    "The results were measured one after the other, not side by side: what changed on the machines in between is in "
    "the ratios too, and no interval allows for it."
)


Estimator = Callable[[Sequence[float], Sequence[float], float], RatioEstimate]


def compare(
    asked: CompareHow,
    entries: Sequence[Entry],
    untimed: Collection[str],
    created_at: datetime,
    estimator: Estimator = ratio_of_means,
) -> Comparison:
    """`entries` in the order asked for; `untimed` as in `dyno.workloads.contract.Params`.

    Raises NotComparable and InvalidComparison.
    """
    name = check_comparable(entries, asked.metric, untimed)
    metrics = [metric for entry in entries if (metric := named(entry.result, name)) is not None]
    results = [
        _compared(entry, metric, None if place == 0 else ratio(metrics[0], metric, asked, estimator), asked.confidence)
        for place, (entry, metric) in enumerate(zip(entries, metrics, strict=True))
    ]
    raised = weak_baseline(results), cherry_pick_risk(entries, name, asked.margin)
    comparison_id = new_comparison_id()
    return Comparison(
        id=comparison_id,
        created_at=created_at,
        workload=entries[0].result.workload,
        metric=name,
        unit=metrics[0].unit,
        better=metrics[0].better,
        confidence=asked.confidence,
        margin=asked.margin,
        verdict=min((each.verdict for each in results), key=lambda verdict: verdict.rank),
        results=results,
        differences=differences(entries),
        warnings=in_order(filter(None, raised)),
        notes=_notes(entries, results, asked.confidence),
        urls=urls_of(comparison_id),
    )


def ratio(first: Metric, other: Metric, asked: CompareHow, estimator: Estimator) -> Ratio:
    """Above 1 where `other` is better, whichever direction that is."""
    over, under = (other, first) if other.better == "higher" else (first, other)
    if over.value is None or not under.value:
        reason = "there is no figure to compare" if over.value is None or under.value is None else "a figure is zero"
        return Ratio(verdict=Comparative.INCONCLUSIVE, value=None, reason=reason)
    if not (over.by_run and under.by_run):
        reason = "the metric is taken once, so nothing tells how it scatters: no interval"
        return Ratio(verdict=Comparative.INCONCLUSIVE, value=over.value / under.value, reason=reason)
    found = estimator(over.by_run, under.by_run, asked.confidence)
    return Ratio(
        verdict=compared(found.interval, asked.margin),
        value=found.interval.value,
        low=_not_below_zero(found.interval.low),
        high=found.interval.high,
        degrees_of_freedom=found.degrees,
        smallest_effect=found.smallest_effect,
        reason=found.interval.reason,
    )


def _compared(entry: Entry, metric: Metric, ratio: Ratio | None, confidence: float) -> Compared:
    result, device = entry.result, entry.result.device
    interval = mean_interval(metric.by_run, confidence) if metric.by_run else None
    return Compared(
        job=entry.job.id,
        arm=entry.arm,
        value=metric.value,
        low=None if interval is None else _not_below_zero(interval.low),
        high=None if interval is None else interval.high,
        runs=metric.runs,
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
    """That of the very work that the metric is of: of a case its own; of a first execution nobody knows it."""
    if metric.startswith(COLD):
        return None
    table = result.details.get("cases")
    cases = table.items() if isinstance(table, dict) else ()
    own = next((told for case, told in cases if metric.endswith(f"_{case}")), None)
    share = own.get("peak_fraction") if isinstance(own, dict) else result.peak.fraction
    return share if isinstance(share, float) else None


def _not_below_zero(low: float | None) -> float | None:
    """Times and rates are positive, and so are their ratios: what lies below can't hold the truth."""
    return None if low is None else max(0.0, low)


def _notes(entries: Sequence[Entry], results: Sequence[Compared], confidence: float) -> list[str]:
    return [*untrusted(entries), _APART, *([_many(confidence)] if len(results) > 2 else [])]


def untrusted(entries: Sequence[Entry]) -> list[str]:
    """A sentence for each result whose figure is wrong."""
    grave = {entry.name: [w.code for w in entry.result.warnings if w.severity == "A"] for entry in entries}
    return [
        f"{entry.name} is untrusted ({', '.join(grave[entry.name])}): its figure is wrong, and every ratio with it."
        for entry in entries
        if entry.result.verdict is Verdict.UNTRUSTED
    ]


def _many(confidence: float) -> str:
    return f"Each interval stands by itself: {by_chance(confidence)} such misses on average."


def by_chance(confidence: float) -> str:
    """How many intervals don't hold the truth."""
    return f"at {100 * confidence:.4g} %, one of {round(1 / (1 - confidence))}"

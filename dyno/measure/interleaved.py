"""The comparison that a job makes of two specs whose runs took turns."""

from __future__ import annotations

from collections.abc import Collection

from dyno.errors import NotComparable
from dyno.measure.comparable import Entry, named
from dyno.measure.comparison import by_chance, compare, ratio, untrusted
from dyno.measure.paired import paired_ratio
from dyno.models.comparison import Comparative, CompareHow, Comparison, Ratio, comparison_of, urls_of
from dyno.models.job import Job
from dyno.models.result import Metric, Result
from dyno.models.spec import InterleavedSpec


def compare_arms(job: Job, spec: InterleavedSpec, result: Result, free: Collection[str]) -> Comparison:
    """`result`: of the job, with its arms; `free`: params that may differ.

    Raises NotComparable and InvalidComparison: what ran may differ where what was asked for didn't (the precision).
    """
    if len(result.arms) != 1 + spec.control:
        detail = "the worker ran other specs than were asked for: it is of a version that knows no turns"
        raise NotComparable(detail, {"/arms": [1 + spec.control, len(result.arms)]})
    asked = CompareHow(metric=spec.metric, margin=spec.margin, confidence=spec.confidence)
    second, *control = result.arms
    first_entry = Entry(job, result, arm="first", arm_spec=spec.arms[0])
    entries = [first_entry, Entry(job, second, arm="second", arm_spec=spec.against)]
    found = compare(asked, entries, free, job.created_at, paired_ratio)
    noise = _against_itself(result, control[0], asked) if control else None
    unsteady = noise is not None and noise.verdict in (Comparative.FASTER, Comparative.SLOWER)
    comparison_id = comparison_of(job.id)
    return found.model_copy(
        update={
            "id": comparison_id,
            "kind": "interleaved",
            "job": job.id,
            "control": noise,
            "notes": [*untrusted(entries), *([_unsteady(spec.confidence)] if unsteady else [])],
            "urls": urls_of(comparison_id),
            "owner": job.owner,
        }
    )


def _against_itself(first: Result, again: Result, asked: CompareHow) -> Ratio:
    return ratio(_metric(first, asked), _metric(again, asked), asked, paired_ratio)


def _unsteady(confidence: float) -> str:
    return (
        f"The control differs from the first spec, which it repeats; {by_chance(confidence)} does. Else something "
        "disturbs even runs that take turns, so take no ratio for real that isn't well beyond the control's."
    )


def _metric(result: Result, asked: CompareHow) -> Metric:
    found = named(result, asked.metric or "")
    assert found is not None, "compare() has found it in the first of the same work"
    return found

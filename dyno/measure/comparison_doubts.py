"""What speaks against a comparison itself, beside what speaks against its results: WEAK_BASELINE, CHERRY_PICK_RISK.

A weak baseline. A speed-up says as much about what it is measured against as about what is praised. Dense work that
is well tuned reaches 60 to 90 % of the peak of any device, so under 30 % there is much left; but recurrent or small
work reaches little anywhere, and is no weaker for it. So the first is called weak where it used less than 30 % of its
peak, and less than half of the share that a result which beats it used of its own.

A cherry-pick. Of several results of the same work on equal hardware, the best one (as the first: the worst one)
flatters. It is told where there are three or more, and the median of all would have moved the ratio beyond the margin.
One that is untrusted is no choice: its figure is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from dyno.measure.comparable import Entry, named
from dyno.measure.statistics import median
from dyno.measure.warnings import warning
from dyno.models.comparison import Comparative, Compared
from dyno.models.result import Metric, ResultWarning, Verdict

WEAK_SHARE = 0.3
MIN_RESULTS = 3


def weak_baseline(results: Sequence[Compared]) -> ResultWarning | None:
    """Silent where the peak of either side isn't known, and where nothing beats the first."""
    first, *others = results
    winners = [each for each in others if each.ratio is not None and each.ratio.verdict is Comparative.FASTER]
    reached = max((each.peak_fraction for each in winners if each.peak_fraction is not None), default=None)
    share = first.peak_fraction
    if reached is None or share is None or share >= min(WEAK_SHARE, reached / 2):
        return None
    return warning(
        "WEAK_BASELINE",
        f"{first.job} used {share:.1%} of its device's peak, what beats it {reached:.1%} of its own.",
        job=first.job,
        peak_fraction=share,
        best_peak_fraction=reached,
    )


def cherry_pick_risk(entries: Sequence[Entry], metric: str, margin: float) -> ResultWarning | None:
    """One warning for all that look picked; `evidence.picks` has each with the number of results and their median."""
    picks = [*_picks(entries, metric, margin)]
    if not picks:
        return None
    jobs = ", ".join(str(pick["job"]) for pick in picks)
    message = f"Of several results of the same work on equal hardware, the most flattering is compared: {jobs}."
    return warning("CHERRY_PICK_RISK", message, picks=[*picks])


def _picks(entries: Sequence[Entry], metric: str, margin: float) -> Iterator[dict[str, JsonValue]]:
    for place, entry in enumerate(entries):
        own = named(entry.result, metric)
        sound = [other for other in entry.others if other.verdict is not Verdict.UNTRUSTED]
        values = [found.value for other in sound if (found := named(other, metric)) and found.value is not None]
        if own is None or own.value is None or len(values) + 1 < MIN_RESULTS:
            continue
        middle = median([own.value, *values])
        if _flatters(own, own.value, values, first=place == 0) and abs(own.value - middle) > margin * middle:
            yield {"job": entry.job.id, "results": len(values) + 1, "value": own.value, "median": middle}


def _flatters(own: Metric, value: float, others: Sequence[float], *, first: bool) -> bool:
    wants_high = (own.better == "higher") is not first
    return value > max(others) if wants_high else value < min(others)

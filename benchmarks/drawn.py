"""Pairs of results whose difference is known, made of recorded runs, and what a comparison says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from benchmarks.synthetic import Array
from dyno.measure.ratios import RatioEstimate, comparative_verdict, paired_ratio, ratio_of_means
from dyno.models.comparison import Comparative
from dyno.models.spec import MARGIN

SLOWDOWN, DRIFT = 0.05, 0.03
DIFFERENT = (Comparative.FASTER, Comparative.SLOWER)

Draw = Callable[[int], Array]  # so many runs
Pair = tuple[Array, Array]  # times of the first result's runs, and of the second's
Estimator = Callable[[Sequence[float], Sequence[float]], RatioEstimate]


def in_turns(order: str) -> bool:
    """Whether runs in an `order` such as ABBA make pairs of neighbours, so that Dyno compares them pair by pair."""
    return all({first, second} == {"A", "B"} for first, second in zip(order[::2], order[1::2], strict=True))


def estimator(order: str) -> Estimator:
    """What Dyno takes for runs in that order: jobs one after the other, or one job of two specs in turns."""
    return paired_ratio if in_turns(order) else ratio_of_means


def ratio(pair: Pair, order: str) -> RatioEstimate:
    """Of the first result's times to the second's, so that above 1 the second is better."""
    first, second = pair
    return estimator(order)(first.tolist(), second.tolist())


def verdicts(pairs: Iterable[Pair], order: str) -> Counter[Comparative]:
    """Of the second results against the first, by the rule of every comparison."""
    return Counter(comparative_verdict(ratio(pair, order).interval, MARGIN) for pair in pairs)


def without_return(times: Array, rng: np.random.Generator) -> Draw:
    """Draws from recorded runs, each of them once at most."""
    return lambda count: rng.permutation(times)[:count]


def alike(draw: Draw, order: str, trials: int) -> Iterator[Pair]:
    """Two results, their runs independent of each other: what differs between them is chance alone."""
    for _ in range(trials):
        yield _apart(draw(len(order)), order)


def slowed(residuals: Draw, scatter: float, order: str, trials: int) -> Iterator[Pair]:
    """The same around 1, made to scatter by `scatter`, the second result's runs slower by SLOWDOWN."""
    for first, second in alike(residuals, order, trials):
        yield 1 + scatter * first, (1 + SLOWDOWN) * (1 + scatter * second)


def drifted(draw: Draw, order: str, trials: int) -> Iterator[Pair]:
    """Runs while the machine slows down evenly, by DRIFT from the first to the last."""
    slope = 1 + DRIFT * np.linspace(0, 1, len(order))
    for _ in range(trials):
        yield _apart(draw(len(order)) * slope, order)


def as_recorded(times: Array, order: str) -> Iterator[Pair]:
    """Every stretch of neighbouring runs, in the order in which they ran: what differs is this machine's time."""
    for stretch in windows(times, len(order)):
        yield _apart(stretch, order)


def windows(times: Array, length: int) -> list[Array]:
    """Every stretch of so many neighbouring runs; they overlap."""
    return [times[begin : begin + length] for begin in range(len(times) - length + 1)]


def standardised(times: Array) -> Array:
    """As residuals of mean 0 and standard deviation 1."""
    residuals: Array = (times - times.mean()) / times.std(ddof=1)
    return residuals


def lag_one(times: Array) -> float:
    """How much a run resembles the one before: the autocorrelation at lag 1, 0 where they are independent."""
    residuals = times - times.mean()
    return float((residuals[1:] * residuals[:-1]).sum() / (residuals**2).sum())


def _apart(times: Array, order: str) -> Pair:
    places = np.array([letter == "B" for letter in order])
    return times[~places], times[places]

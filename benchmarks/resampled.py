"""How often does a comparison err? Two results drawn again and again from runs that this machine really made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from statistics import fmean

import numpy as np

from benchmarks.recorded import RUNS, medians, recorded
from benchmarks.report import prose, table, write
from benchmarks.synthetic import Array
from dyno.comparison import MARGIN, Comparative
from dyno.measure.ratio import compared, ratio_of_means
from dyno.measure.statistics import wilson_interval

SEED, TRIALS = 19_540_716, 1_000
SOURCES = ("matmul-2048", "mnist_cnn")
SLOWDOWN, DRIFT = 0.05, 0.03
SCATTERS = (0.005, 0.01, 0.02, 0.03, 0.05)
COUNTS = (3, 5, 10, 15)
FIVE = 5
AIM_FALSE, AIM_POWER = 0.065, 0.9
_DIFFERENT = (Comparative.FASTER, Comparative.SLOWER)

Draw = Callable[[int], Array]  # so many runs
Pair = tuple[Array, Array]  # times of the first result's runs, and of the second's


def verdict(pair: Pair) -> Comparative:
    """Of the second result against the first, by the rule of every comparison; both hold times, so less is better."""
    first, second = pair
    return compared(ratio_of_means(first.tolist(), second.tolist()).interval, MARGIN)


def verdicts(pairs: Iterator[Pair]) -> Counter[Comparative]:
    return Counter(verdict(pair) for pair in pairs)


def without_return(times: Array, rng: np.random.Generator) -> Draw:
    """Draws from recorded runs, each of them once at most."""
    return lambda count: rng.permutation(times)[:count]


def alike(draw: Draw, count: int, trials: int) -> Iterator[Pair]:
    """Two results of `count` runs each: what differs between them is chance alone."""
    for _ in range(trials):
        drawn = draw(2 * count)
        yield drawn[:count], drawn[count:]


def slowed(residuals: Draw, scatter: float, count: int, trials: int) -> Iterator[Pair]:
    """The same around 1, made to scatter by `scatter`, the second result's runs slower by SLOWDOWN."""
    for first, second in alike(residuals, count, trials):
        yield 1 + scatter * first, (1 + SLOWDOWN) * (1 + scatter * second)


def drifted(draw: Draw, order: str, trials: int) -> Iterator[Pair]:
    """Runs in an `order` such as AABB while the machine slows down evenly, by DRIFT from the first to the last."""
    places = np.array([letter == "B" for letter in order])
    slope = 1 + DRIFT * np.linspace(0, 1, len(order))
    for _ in range(trials):
        drawn = draw(len(order)) * slope
        yield drawn[~places], drawn[places]


def standardised(times: Array) -> Array:
    """As residuals of mean 0 and standard deviation 1."""
    residuals: Array = (times - times.mean()) / times.std(ddof=1)
    return residuals


def main(runs: int = RUNS, trials: int = TRIALS) -> None:
    times = {name: np.asarray(medians(recorded(name, runs), "forked")) for name in SOURCES}
    write("resampled", "How often a comparison errs", lines(times, trials))


def lines(times: Mapping[str, Array], trials: int) -> list[str]:
    rng = np.random.default_rng(SEED)
    text = f"""Two results of n runs each are drawn, without a run in both, from the forked runs recorded on this
        machine (`recorded/`), {trials:,} times a row (seed {SEED}), and compared as any two results are: Fieller's
        interval of the ratio of the means of the runs' medians, an equivalence margin of {MARGIN:.0%}. Intervals of
        shares are Wilson's, 95 %."""
    return [
        *prose(text),
        *_false_alarms(times, rng, trials),
        *_power(times, rng, trials),
        *_drift(times, rng, trials),
    ]


def _false_alarms(times: Mapping[str, Array], rng: np.random.Generator, trials: int) -> list[str]:
    text = f"Both results are of the same work (A/A). Aim: called different in at most {AIM_FALSE:.1%}."
    rows = []
    for (name, each), count in product(times.items(), COUNTS):
        said = verdicts(alike(without_return(each, rng), count, trials))
        wrong = sum(said[word] for word in _DIFFERENT)
        shares = (f"{said[word] / trials:.1%}" for word in (Comparative.SAME, Comparative.INCONCLUSIVE))
        rows.append([f"`{name}`", len(each), f"{_scatter(each):.2%}", count, f"**{_share(wrong, trials)}**", *shares])
    head = ("runs of", "recorded", "their sd", "n each", "called different", "SAME", "INCONCLUSIVE")
    return ["## No difference", "", *prose(text), *table(head, rows)]


def _power(times: Mapping[str, Array], rng: np.random.Generator, trials: int) -> list[str]:
    text = f"""The second result's runs are {SLOWDOWN:.0%} slower. The recorded runs are stretched around their mean to
        the scatter of the column, beside them fresh normal ones: the share of trials that said SLOWER. Aim:
        {AIM_POWER:.0%} at 2 %, five against five."""
    sources: dict[str, Draw] = {f"`{name}`": without_return(standardised(of), rng) for name, of in times.items()}
    sources["normal"] = rng.standard_normal
    rows = []
    for (name, draw), count in product(sources.items(), COUNTS):
        found = [verdicts(slowed(draw, scatter, count, trials))[Comparative.SLOWER] for scatter in SCATTERS]
        rows.append([name, count, *(f"{hits / trials:.1%}" for hits in found)])
    head = ("runs of", "n each", *(f"sd {scatter:.1%}" for scatter in SCATTERS))
    return [f"## A slowdown of {SLOWDOWN:.0%}", "", *prose(text), *table(head, rows)]


def _drift(times: Mapping[str, Array], rng: np.random.Generator, trials: int) -> list[str]:
    text = f"""Both results are of the same work, but while their runs are made the machine slows down evenly, by
        {DRIFT:.0%} in all. One result after the other, or in turns."""
    orders = {"sequential": "A" * FIVE + "B" * FIVE, "interleaved": "ABBAABBAAB"}
    rows = []
    for (name, each), (how, order) in product(times.items(), orders.items()):
        pairs = list(drifted(without_return(each, rng), order, trials))
        wrong = sum(verdict(pair) in _DIFFERENT for pair in pairs)
        bias = fmean(float(second.mean() / first.mean()) for first, second in pairs) - 1
        rows.append([f"`{name}`", how, order, f"{bias:+.2%}", _share(wrong, trials)])
    return [
        f"## A drift of {DRIFT:.0%}",
        "",
        *prose(text),
        *table(("runs of", "order", "runs", "bias of the ratio", "called different"), rows),
    ]


def _scatter(times: Array) -> float:
    return float(times.std(ddof=1) / times.mean())


def _share(hits: int, trials: int) -> str:
    interval = wilson_interval(hits, trials)
    return f"{interval.value:.1%} [{interval.low:.1%} to {interval.high:.1%}]"


if __name__ == "__main__":
    main()

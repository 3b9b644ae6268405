"""How often does a comparison err? It compares results that are drawn from recorded runs of this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.pairs import share
from benchmarks.recorded import FOLDER, PARAMS, RUNS, lag_one, medians, recorded, windows
from benchmarks.report import prose, table, write
from benchmarks.synthetic import Array, Generator
from dyno.bench.measure.ratios import RatioEstimate, comparative_verdict, paired_ratio, ratio_of_means
from dyno.models.comparison import Comparative
from dyno.models.spec import MARGIN

SEED, TRIALS = 19_540_716, 1_000
SLOWDOWN = 0.05
PERMUTED = ("matmul-2048", "mnist_cnn")  # one that scatters little, and one that scatters much
SCATTERS = (0.005, 0.01, 0.02, 0.03, 0.05)
COUNTS, PAIRS = (3, 5, 10, 15), (4, 10)
FIVE = "A" * 5 + "B" * 5
ORDERS = (*("A" * count + "B" * count for count in COUNTS), *("ABBA" * (pairs // 2) for pairs in PAIRS))
REAL_ORDERS = (FIVE, *ORDERS[len(COUNTS) :])
AIM_FALSE, AIM_POWER = 0.065, 0.9

Draw = Callable[[int], Array]  # draws that number of runs
Pair = tuple[Array, Array]  # times of the first result's runs, and of the second's
Estimator = Callable[[Sequence[float], Sequence[float]], RatioEstimate]


def in_turns(order: str) -> bool:
    """Whether runs in an `order` such as ABBA make pairs of neighbours, so that Dyno compares them pair by pair."""
    return all({first, second} == {"A", "B"} for first, second in zip(order[::2], order[1::2], strict=True))


def estimator(order: str) -> Estimator:
    """Dyno's own estimator for runs in this order: jobs one after the other, or one job of two specs in turns."""
    return paired_ratio if in_turns(order) else ratio_of_means


def ratio(pair: Pair, order: str) -> RatioEstimate:
    """The first result's times divided by the second's: above 1, the second is better."""
    first, second = pair
    return estimator(order)(first.tolist(), second.tolist())


def verdicts(pairs: Iterable[Pair], order: str) -> Counter[Comparative]:
    """Verdicts on the second results against the first, by the rule of all comparisons."""
    return Counter(comparative_verdict(ratio(pair, order).interval, MARGIN) for pair in pairs)


def called_different(said: Counter[Comparative]) -> int:
    return said[Comparative.FASTER] + said[Comparative.SLOWER]


def without_return(times: Array, rng: Generator) -> Draw:
    """Draws recorded runs without replacement."""
    return lambda count: rng.permutation(times)[:count]


def alike(draw: Draw, order: str, trials: int) -> Iterator[Pair]:
    """Pairs of results whose runs are independent: they differ by chance alone."""
    return (_apart(draw(len(order)), order) for _ in range(trials))


def slowed(residuals: Draw, scatter: float, order: str, trials: int) -> Iterator[Pair]:
    """Pairs of results around 1 that scatter by `scatter`; the second result's runs are slower by SLOWDOWN."""
    for first, second in alike(residuals, order, trials):
        yield 1 + scatter * first, (1 + SLOWDOWN) * (1 + scatter * second)


def as_recorded(times: Array, order: str) -> Iterator[Pair]:
    """Every stretch of neighbouring runs, in the order in which they ran: they differ as this machine drifts."""
    return (_apart(stretch, order) for stretch in windows(times, len(order)))


def _apart(times: Array, order: str) -> Pair:
    places = np.array([letter == "B" for letter in order])
    return times[~places], times[places]


def standardised(times: Array) -> Array:
    """As residuals of mean 0 and standard deviation 1."""
    residuals: Array = (times - times.mean()) / times.std(ddof=1)
    return residuals


def main(trials: int = TRIALS, folder: Path = FOLDER) -> None:
    times = {name: np.asarray(medians(recorded(name, RUNS, folder), "forked")) for name in PARAMS}
    write("resampled", "How often a comparison errs", lines(times, trials))


def lines(times: Mapping[str, Array], trials: int) -> list[str]:
    rng = np.random.default_rng(SEED)
    few = {name: times[name] for name in PERMUTED if name in times}
    count = max(len(each) for each in times.values())
    text = f"""These results are drawn from the forked runs that were recorded on this machine (`recorded/`), and
        compared by the rule of all comparisons ([method](../method.md)): jobs *one after the other*, or specs *in
        turns* (ABBA), with an equivalence margin of {MARGIN:.0%}. **All figures depend on {count} runs of one session
        of each workload**: the intervals of shares (Wilson's, 95 %) allow for the chance of {trials:,} draws (seed
        {SEED}), not for another hour or machine. With 15 runs each, every draw splits the same runs."""
    return [*prose(text), *_as_recorded(times), *_false_alarms(few, rng, trials), *_power(few, rng, trials)]


def _as_recorded(times: Mapping[str, Array]) -> list[str]:
    text = """Both results are of the same work (A/A), and their runs are neighbours in the recorded order. All
        stretches count; they overlap, so a count has no interval. *Lag 1*: how much a run resembles the one before;
        independent runs have 0 ± 0.36 (95 %). Above that, jobs one after the other are called different far more often
        than their confidence allows; runs in turns share their stretch of time with the runs that they are compared
        with. Spawned runs ran between these, so the two runs of a pair are up to three places apart here; in a job they
        are adjacent."""
    rows = []
    for name, each in times.items():
        said = [verdicts(as_recorded(each, order), order) for order in REAL_ORDERS]
        wrong = [f"**{called_different(of)} of {of.total()}**" for of in said]
        rows.append([f"`{name}`", len(each), f"{lag_one(each):.2f}", *wrong])
    head = ("runs of", "recorded", "lag 1", *(f"different, {_shown(order)}" for order in REAL_ORDERS))
    return ["## No difference, as recorded", "", *prose(text), *table(head, rows)]


def _false_alarms(times: Mapping[str, Array], rng: Generator, trials: int) -> list[str]:
    text = f"""The same runs in a random order, which makes them **independent**: only the error of the rule itself is
        left. Aim: at most {AIM_FALSE:.1%} called different."""
    rows = []
    for (name, each), order in product(times.items(), ORDERS):
        said = verdicts(alike(without_return(each, rng), order, trials), order)
        shares = (f"{said[word] / trials:.1%}" for word in (Comparative.SAME, Comparative.INCONCLUSIVE))
        scatter = float(each.std(ddof=1) / each.mean())
        wrong = f"**{share(called_different(said), trials)}**"
        rows.append([f"`{name}`", f"{scatter:.2%}", _shown(order), wrong, *shares])
    head = ("runs of", "their sd", "order", "called different", "SAME", "INCONCLUSIVE")
    return ["## No difference, independent runs", "", *prose(text), *table(head, rows)]


def _power(times: Mapping[str, Array], rng: Generator, trials: int) -> list[str]:
    text = f"""The second result's runs are {SLOWDOWN:.0%} slower. The recorded runs, in a random order, are scaled
        around their mean to the scatter of the column; *normal* are simulated runs. A cell is the share of trials that
        said SLOWER. Aim: {AIM_POWER:.0%} at 2 %, five after five. Runs in turns are independent here, too, so these
        rows don't show what pairs gain if the machine drifts."""
    sources: dict[str, Draw] = {f"`{name}`": without_return(standardised(of), rng) for name, of in times.items()}
    sources["normal"] = rng.standard_normal
    rows = []
    for (name, draw), order in product(sources.items(), ORDERS):
        found = [verdicts(slowed(draw, sd, order, trials), order)[Comparative.SLOWER] for sd in SCATTERS]
        rows.append([name, _shown(order), *(f"{hits / trials:.1%}" for hits in found)])
    head = ("runs of", "order", *(f"sd {scatter:.1%}" for scatter in SCATTERS))
    return [f"## A slowdown of {SLOWDOWN:.0%}, independent runs", "", *prose(text), *table(head, rows)]


def _shown(order: str) -> str:
    half = len(order) // 2
    return f"{half} pairs in turns" if in_turns(order) else f"{half} after {half}"

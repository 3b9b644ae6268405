"""Does the 95 % interval hold the truth? Counted on runs whose truth is known; pure simulation with a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from benchmarks.intervals import bootstrap_of_means, holds, over_runs, pooled
from benchmarks.report import prose, table, write
from benchmarks.simulated_run import OPERATION_S, SimulatedProcess, gradual, plateau, settled
from benchmarks.synthetic import EFFECTS, NOISES, SECOND_MODE_SHARE, Case
from dyno.measure.modes import multimodal
from dyno.measure.statistics import Interval, mean_interval, median, wilson_interval

SEED, TRIALS, TRIALS_SAMPLED = 20_130_608, 10_000, 1_000
AIM = (0.93, 0.97)
BOOTSTRAP_MAX = 5  # of more values there are too many resamples to count them all
SCATTERS = ((0.005, 0.02), (0.02, 0.02), (0.02, 0.005))  # between processes, inside them
DISTANCES = (0.02, 0.05, 0.1, 0.7)
RUN_COUNTS = (5, 10, 14, 20)
WARM_UPS = {"none": settled, "a plateau of 12 samples": plateau, "gradual, over tens of samples": gradual}

ONE_MODE = [Case(effect, noise, *scatter) for effect in EFFECTS for noise in NOISES for scatter in SCATTERS]
BEYOND = [Case("skewed", noise, *SCATTERS[1]) for noise in NOISES]
TWO_MODES = [Case("normal", "normal", 0.005, 0.02, runs, distance=d) for runs in RUN_COUNTS for d in DISTANCES]


@dataclass(frozen=True)
class Counted:
    """Of how many trials it is true; `shown`: MULTIMODAL and the second mode visited by some, but not by all runs."""

    trials: int
    covered: int
    raised: int
    covered_or_raised: int
    visited: int
    shown_covered_or_raised: int
    pooled: int
    bootstrap: int | None
    half_width: float  # median over the trials, as a share of the truth


def count(case: Case, rng: np.random.Generator, trials: int) -> Counted:
    """Draw `trials` sets of runs and ask Dyno's functions about each."""
    samples, visits = case.draw(rng, trials)
    visited = visits.any(axis=1) & ~visits.all(axis=1)
    intervals = [over_runs(runs) for runs in samples]
    covered = np.array([holds(interval, case.truth) for interval in intervals])
    medians = np.median(samples, axis=2)
    raised = np.array([multimodal(each) is not None for each in medians.tolist()])
    small = case.processes <= BOOTSTRAP_MAX
    return Counted(
        trials=trials,
        covered=int(covered.sum()),
        raised=int(raised.sum()),
        covered_or_raised=int((covered | raised).sum()),
        visited=int(visited.sum()),
        shown_covered_or_raised=int((visited & (covered | raised)).sum()),
        pooled=sum(holds(pooled(runs), case.truth) for runs in samples),
        bootstrap=sum(holds(bootstrap_of_means(m), case.truth) for m in medians.tolist()) if small else None,
        half_width=_half_width(intervals),
    )


def count_sampled(noise: str, warm_up: str, rng: np.random.Generator, trials: int) -> tuple[int, float, float, float]:
    """Five processes through the whole sampler, `trials` times; they scatter by 1 %, their samples by 2 %.

    Trials covered, median samples a run, share of runs called steady, bias of the value: the truth is 1.
    """
    covered, values, taken, steady = 0, [], [], 0
    for _ in range(trials):
        speeds = 1 + 0.01 * rng.standard_normal(5)
        runs = [SimulatedProcess(rng, speed, noise, 0.02, WARM_UPS[warm_up]).sampled() for speed in speeds]
        interval = mean_interval([median(run.samples) / OPERATION_S for run in runs])
        covered += holds(interval, 1.0)
        values.append(interval.value)
        taken += [len(run.samples) for run in runs]
        steady += sum(run.steady for run in runs)
    return covered, median(taken), steady / (5 * trials), float(np.mean(values)) - 1


def main(trials: int = TRIALS, trials_sampled: int = TRIALS_SAMPLED) -> None:
    write("coverage", "Does the interval hold the truth?", lines(trials, trials_sampled))


def lines(trials: int, trials_sampled: int) -> list[str]:
    rng = np.random.default_rng(SEED)
    return [
        *_preface(trials),
        *_one_mode({case: count(case, rng, trials) for case in ONE_MODE}),
        *prose("Beyond the aim, process effects that are skewed (exponential):"),
        *_one_mode_table({case: count(case, rng, trials) for case in BEYOND}),
        *_two_modes({case: count(case, rng, trials) for case in TWO_MODES}),
        *_sampled(rng, trials_sampled),
    ]


def _preface(trials: int) -> list[str]:
    return prose(
        f"""Simulated runs whose truth is known, {trials:,} trials a case (seed {SEED}). **Estimand:** the mean, over
        all processes there could be, of the median that a process's samples scatter around. **n** is the number of
        processes, 20 samples each. The interval is Dyno's own (`mean_interval` over the processes' medians); beside it
        what two usual ways give: *pooled*, the order-statistic interval of the median of all samples at once, and
        *bootstrap*, the percentile bootstrap of the mean of five medians, counted over all its resamples. With
        {trials:,} trials a share of 95 % is known to ±{_sampling_error(trials):.1%}."""
    )


def _one_mode(found: dict[Case, Counted]) -> list[str]:
    met = sum(AIM[0] <= counted.covered / counted.trials <= AIM[1] for counted in found.values())
    text = f"Aim: {AIM[0]:.0%} to {AIM[1]:.0%}; met in {met} of {len(found)} cases."
    return ["## One mode", "", *prose(text), *_one_mode_table(found)]


def _one_mode_table(found: dict[Case, Counted]) -> list[str]:
    head = ("processes", "samples", "sd between, within", "n", "holds the truth", "half-width", "pooled", "bootstrap")
    rows = [
        [
            case.effect,
            case.noise,
            f"{case.between:.1%}, {case.within:.1%}",
            case.processes,
            f"**{_share(of.covered, of.trials)}**",
            f"±{of.half_width:.2%}",
            _share(of.pooled, of.trials),
            _share(of.bootstrap, of.trials),
        ]
        for case, of in found.items()
    ]
    return table(head, rows)


def _two_modes(found: dict[Case, Counted]) -> list[str]:
    text = f"""{SECOND_MODE_SHARE:.0%} of all processes sit in a second mode, slower by the distance; scatter is normal,
        0.5 % over the processes of a mode and 2 % inside each. *Visited*: some runs, not all, were in the second mode.
        Runs that never visited it look exactly like those of a job with a single mode, so no rule can raise MULTIMODAL
        for them without raising it for every such job: what was not visited is what *holds or raised* lacks."""
    head = ("n", "distance", "visited", "interval holds", "MULTIMODAL", "holds or raised", "the same, if visited")
    rows = [
        [
            case.processes,
            f"{case.distance:.0%}",
            *(_share(each, of.trials) for each in (of.visited, of.covered, of.raised)),
            f"**{_share(of.covered_or_raised, of.trials)}**",
            _share(of.shown_covered_or_raised, of.visited),
        ]
        for case, of in found.items()
    ]
    of = found[replace(TWO_MODES[0], distance=DISTANCES[-1])]
    beside = f"""Of five runs with modes {DISTANCES[-1]:.0%} apart the pooled interval held the truth in
        {_share(of.pooled, of.trials)}, the bootstrap in {_share(of.bootstrap, of.trials)} of the trials."""
    return ["## Two modes", "", *prose(text), *table(head, rows), *prose(beside)]


def _sampled(rng: np.random.Generator, trials: int) -> list[str]:
    text = f"""The same question with the stopping rule and the search for warm-up at work, on simulated processes whose
        clock moves only while they execute: {trials:,} trials of five processes each (normal, 1 %; 2 % inside a
        process). The estimand is the time after warm-up. A change by less than a quarter of the target (1 %), or by
        less than can be told from the samples' scatter, isn't found: so much of a gradual warm-up stays in the value,
        of a sudden one nothing."""
    head = ("samples", "warm-up", "n", "holds the truth", "bias of the value", "samples a run", "runs called steady")
    rows = []
    for noise, warm_up in product(("normal", "skewed", "correlated"), WARM_UPS):
        covered, taken, steady, bias = count_sampled(noise, warm_up, rng, trials)
        share = f"**{_share(covered, trials)}**"
        rows.append([noise, warm_up, 5, share, f"{bias:+.2%}", f"{taken:.0f}", f"{steady:.1%}"])
    return ["## Through the whole sampler", "", *prose(text), *table(head, rows)]


def _half_width(intervals: Sequence[Interval]) -> float:
    return median([interval.rel_half_width or 0.0 for interval in intervals])


def _sampling_error(trials: int) -> float:
    interval = wilson_interval(round(0.95 * trials), trials)
    assert interval.low is not None
    return 0.95 - interval.low


def _share(hits: int | None, trials: int) -> str:
    return "–" if hits is None or trials == 0 else f"{hits / trials:.1%}"


if __name__ == "__main__":
    main()

"""Does the 95 % interval hold the truth? Counted on simulated runs, whose truth is known, and on recorded ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import coverage_grown, coverage_recorded, coverage_sampled
from benchmarks.aim import AIM, Section, share, within
from benchmarks.intervals import bootstrap_of_means, holds, over_runs, pooled
from benchmarks.report import prose, table, write
from benchmarks.synthetic import DEPENDENT, EFFECTS, NOISES, SECOND_MODE_SHARE, WAVE, Case
from dyno.measure.stability import multimodal
from dyno.measure.statistics import Interval, median, wilson_interval

SEED, TRIALS, TRIALS_SAMPLED = 20_130_608, 10_000, 1_000
BOOTSTRAP_MAX = 5  # of more values there are too many resamples to count them all
SCATTERS = ((0.005, 0.02), (0.02, 0.02), (0.02, 0.005))  # between processes, inside them
DISTANCES = (0.02, 0.05, 0.1, 0.7)
RUN_COUNTS = (5, 10, 14, 20)

ONE_MODE = [Case(effect, noise, *scatter) for effect in EFFECTS for noise in NOISES for scatter in SCATTERS]
SKEWED = [Case("skewed", noise, *SCATTERS[1]) for noise in NOISES]
NEIGHBOURS = [Case(effect, "normal", *SCATTERS[1], processes) for effect in DEPENDENT for processes in (5, 20)]
TWO_MODES = [Case("normal", "normal", 0.005, 0.02, runs, distance=d) for runs in RUN_COUNTS for d in DISTANCES]

_SKEWED = "Exponential, from their mean:"
_DEPENDENT = f"""The estimand of these rows is the mean of all processes there could be, at any time. Runs of one job
    are neighbours, and where one tells of the next (autoregressive with this coefficient, or on a wave {WAVE} processes
    long) they all lie on the same side of it. *On a line*: the machine slows down evenly during the job, and the truth
    is the mean of that stretch of time; the line widens the interval."""


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


def main(trials: int = TRIALS, trials_sampled: int = TRIALS_SAMPLED) -> None:
    write("coverage", "Does the interval hold the truth?", lines(trials, trials_sampled))


def lines(trials: int, trials_sampled: int) -> list[str]:
    found = sections(trials, trials_sampled)
    parts = [line for each in found for line in (f"## {each.title}", "", *each.lines)]
    return [*_preface(trials), *_summary(found), *parts]


def sections(trials: int, trials_sampled: int) -> list[Section]:
    """Each has a random stream of its own, so that none moves another's figures."""
    return [
        _one_mode("One mode", "", ONE_MODE, [SEED, 0], trials),
        _one_mode("Processes that are skewed", _SKEWED, SKEWED, [SEED, 1], trials),
        _one_mode("Processes that resemble their neighbours", _DEPENDENT, NEIGHBOURS, [SEED, 2], trials),
        coverage_recorded.section(coverage_recorded.forked()),
        coverage_grown.section(np.random.default_rng([SEED, 3]), trials),
        _two_modes(TWO_MODES, [SEED, 4], trials),
        coverage_sampled.section([SEED, 5], trials_sampled),
    ]


def _preface(trials: int) -> list[str]:
    return prose(
        f"""Simulated runs whose truth is known, {trials:,} trials a case (seed {SEED}). **Estimand:** the mean, over
        all processes there could be, of the median that a process's samples scatter around. **n** is the number of
        processes, 20 samples each. The interval is Dyno's own (`mean_interval` over the processes' medians); beside it
        what two usual ways give: *pooled*, the order-statistic interval of the median of all samples at once, and
        *bootstrap*, the percentile bootstrap of the mean of five medians, counted over all its resamples. With
        {trials:,} trials a share of 95 % is known to ±{_sampling_error(trials):.1%}. Pure simulation, but for the
        recorded runs."""
    )


def _summary(found: Sequence[Section]) -> list[str]:
    """What misses is counted beside what doesn't."""
    met, cases = sum(each.met for each in found), sum(each.cases for each in found)
    text = f"""Aim: {AIM[0]:.0%} to {AIM[1]:.0%}. **Met by {met} of {cases} figures**, all that are bold in the tables
        below; with two modes an interval that misses counts as one that holds where MULTIMODAL was raised. Those *on
        a line* hold too often, all others outside it too seldom."""
    rows = [[f"[{each.title}](#{_anchor(each.title)})", each.cases, each.met] for each in found]
    return [*prose(text), *table(("part", "figures", "within the aim"), rows)]


def _one_mode(title: str, text: str, cases: Sequence[Case], seed: list[int], trials: int) -> Section:
    rng = np.random.default_rng(seed)
    found = {case: count(case, rng, trials) for case in cases}
    met = sum(within(counted.covered, counted.trials) for counted in found.values())
    return Section(title, [*(prose(text) if text else []), *_one_mode_table(found)], met, len(found))


def _one_mode_table(found: dict[Case, Counted]) -> list[str]:
    head = ("processes", "samples", "sd between, within", "n", "holds the truth", "half-width", "pooled", "bootstrap")
    rows = [
        [
            case.effect,
            case.noise,
            f"{case.between:.1%}, {case.within:.1%}",
            case.processes,
            f"**{share(of.covered, of.trials)}**",
            f"±{of.half_width:.2%}",
            share(of.pooled, of.trials),
            share(of.bootstrap, of.trials),
        ]
        for case, of in found.items()
    ]
    return table(head, rows)


def _two_modes(cases: Sequence[Case], seed: list[int], trials: int) -> Section:
    rng = np.random.default_rng(seed)
    found = {case: count(case, rng, trials) for case in cases}
    text = f"""{SECOND_MODE_SHARE:.0%} of all processes sit in a second mode, slower by the distance; scatter is normal,
        0.5 % over the processes of a mode and 2 % inside each. *Visited*: some runs, not all, were in the second mode.
        Runs that never visited it look exactly like those of a job with a single mode, so no rule can raise MULTIMODAL
        for them without raising it for every such job: what was not visited is what *holds or raised* lacks."""
    head = ("n", "distance", "visited", "interval holds", "MULTIMODAL", "holds or raised", "the same, if visited")
    rows = [
        [
            case.processes,
            f"{case.distance:.0%}",
            *(share(each, of.trials) for each in (of.visited, of.covered, of.raised)),
            f"**{share(of.covered_or_raised, of.trials)}**",
            share(of.shown_covered_or_raised, of.visited),
        ]
        for case, of in found.items()
    ]
    of = found[replace(cases[0], distance=DISTANCES[-1])]
    beside = f"""Of five runs with modes {DISTANCES[-1]:.0%} apart the pooled interval held the truth in
        {share(of.pooled, of.trials)}, the bootstrap in {share(of.bootstrap, of.trials)} of the trials."""
    met = sum(of.covered_or_raised / of.trials >= AIM[0] for of in found.values())
    return Section("Two modes", [*prose(text), *table(head, rows), *prose(beside)], met, len(found))


def _half_width(intervals: Sequence[Interval]) -> float:
    return median([interval.rel_half_width or 0.0 for interval in intervals])


def _sampling_error(trials: int) -> float:
    interval = wilson_interval(round(0.95 * trials), trials)
    assert interval.low is not None
    return 0.95 - interval.low


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


if __name__ == "__main__":
    main()

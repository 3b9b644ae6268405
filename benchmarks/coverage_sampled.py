"""Does the interval hold the truth with the stopping rule and the search for warm-up at work?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.aim import Section, share, within
from benchmarks.intervals import holds
from benchmarks.report import prose, table
from benchmarks.simulated_run import OPERATION_S, SimulatedProcess, gradual, plateau, settled
from dyno.measure.statistics import mean_interval, median

NOISES = ("normal", "skewed", "correlated")
GRADUAL = "gradual, over tens of samples"
WARM_UPS = {"none": settled, "a plateau of 12 samples": plateau, GRADUAL: gradual}
PROCESSES = 5


@dataclass(frozen=True)
class Sampled:
    """Of `trials` jobs: how many intervals held the truth, which is 1, and in how many some run found no steady state.

    `taken`: median samples a run; `bias` of the value; `unsteady_runs` of all.
    """

    trials: int
    covered: int
    unsteady_jobs: int
    unsteady_runs: int
    taken: float
    bias: float


def count_sampled(noise: str, warm_up: str, rng: np.random.Generator, trials: int) -> Sampled:
    """Five processes through the whole sampler, `trials` times; they scatter by 1 %, their samples by 2 %."""
    covered, values, taken, unsteady = 0, [], [], []
    for _ in range(trials):
        speeds = 1 + 0.01 * rng.standard_normal(PROCESSES)
        runs = [SimulatedProcess(rng, speed, noise, 0.02, WARM_UPS[warm_up]).sampled() for speed in speeds]
        interval = mean_interval([median(run.samples) / OPERATION_S for run in runs])
        covered += holds(interval, 1.0)
        values.append(interval.value)
        taken += [len(run.samples) for run in runs]
        unsteady.append(sum(not run.steady for run in runs))
    return Sampled(trials, covered, sum(map(bool, unsteady)), sum(unsteady), median(taken), float(np.mean(values)) - 1)


def section(seed: list[int], trials: int) -> Section:
    """`seed`: of the section; each row has a stream of its own."""
    text = f"""The same question with the stopping rule and the search for warm-up at work, on simulated processes whose
        clock moves only while they execute: {trials:,} trials of five processes each (normal, 1 %; 2 % inside a
        process). The estimand is the time after warm-up. A change by less than a quarter of the target (1 %), or by
        less than can be told from the samples' scatter, isn't found: so much of a gradual warm-up stays in the value,
        of a sudden one nothing. *NO_STEADY_STATE*: of runs, and of jobs, one unsteady run of five being enough. Without
        warm-up it is a false alarm: a few samples of which each resembles the one before (0.9) look like a drift."""
    head = ("samples", "warm-up", "n", "holds the truth", "bias of the value", "samples a run", "NO_STEADY_STATE, runs")
    rows, found = [], []
    for place, (noise, warm_up) in enumerate(product(NOISES, WARM_UPS)):
        of = count_sampled(noise, warm_up, np.random.default_rng([*seed, place]), trials)
        figures = [f"**{share(of.covered, trials)}**", f"{of.bias:+.2%}", f"{of.taken:.0f}"]
        unsteady = [share(of.unsteady_runs, PROCESSES * trials), share(of.unsteady_jobs, trials)]
        rows.append([noise, warm_up, PROCESSES, *figures, *unsteady])
        found.append(within(of.covered, trials))
    return Section("Through the whole sampler", [*prose(text), *table((*head, "jobs"), rows)], sum(found), len(found))

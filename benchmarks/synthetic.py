"""Simulated runs with a known truth: processes that differ, and samples that scatter within each process.

The samples of a process scatter around a median; the truth is the mean of this median over all possible processes.
Every noise has the median 0 and every effect the mean 0, so the truth is 1. If a share of the processes is in a second
mode, it is 1 + share · distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyno.bench.measure.sampling import SamplingResult, sample
from dyno.bench.measure.stopping_rule import MAX_SAMPLES, StoppingRule

Array = NDArray[np.float64]
Generator = np.random.Generator
# Draws an array of this shape from a distribution with standard deviation 1. The last axis is time.
Draw = Callable[[Generator, tuple[int, ...]], Array]

SECOND_MODE_SHARE = 0.2
WAVE = 40  # length of a wave in processes: eight jobs of five runs
OPERATION_S = 0.02
_DRAWN = 4 * MAX_SAMPLES  # more than the sampler ever takes


def normal(rng: Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def heavy_tailed(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Student's t with 3 degrees of freedom: one value in 70 lies beyond three standard deviations."""
    return rng.standard_t(3, shape) / math.sqrt(3)


def exponential_from(centre: float) -> Draw:
    return lambda rng, shape: rng.exponential(size=shape) - centre


def drifting(rng: Generator, shape: tuple[int, ...]) -> Array:
    """A straight line through the samples makes up two thirds of the variance."""
    line = np.linspace(-1, 1, shape[-1]) * math.sqrt(2)
    return line + rng.standard_normal(shape) / math.sqrt(3)


def waving(rng: Generator, shape: tuple[int, ...]) -> Array:
    """A wave of WAVE places in a random phase makes up two thirds of the variance."""
    phase = rng.uniform(0, 2 * math.pi, (*shape[:-1], 1))
    wave = np.sin(phase + np.arange(shape[-1]) * 2 * math.pi / WAVE) * math.sqrt(4 / 3)
    noise: Array = wave + rng.standard_normal(shape) / math.sqrt(3)
    return noise


def autoregressive(coefficient: float) -> Draw:
    """Normal; each value resembles the one before."""

    def draw(rng: Generator, shape: tuple[int, ...]) -> Array:
        noise = rng.standard_normal(shape)
        fresh = math.sqrt(1 - coefficient**2)
        for index in range(1, shape[-1]):
            noise[..., index] = coefficient * noise[..., index - 1] + fresh * noise[..., index]
        return noise

    return draw


EFFECTS: dict[str, Draw] = {"normal": normal, "heavy-tailed": heavy_tailed}
# Each process predicts the next, so an interval over a few neighbours can't know how far away the others are.
DEPENDENT: dict[str, Draw] = {
    "correlated 0.4": autoregressive(0.4),
    "correlated 0.8": autoregressive(0.8),
    "on a wave": waving,
    "on a line": drifting,
}
EVERY_EFFECT = EFFECTS | DEPENDENT | {"skewed": exponential_from(1.0)}  # deviation from the mean
NOISES: dict[str, Draw] = {
    "normal": normal,
    "skewed": exponential_from(math.log(2)),  # deviation from the median
    "heavy-tailed": heavy_tailed,
    "drifting": drifting,
    "correlated": autoregressive(0.9),
}
# How much slower each sample is than the last ones: not at all; by a third for 12 samples, then not at all; by a fifth
# at first, and gradually less over tens of samples.
WARM_UPS: dict[str, Callable[[Array], Array]] = {
    "none": np.zeros_like,
    "a plateau of 12 samples": lambda index: np.where(index < 12, 0.33, 0.0),
    "gradual, over tens of samples": lambda index: 0.2 * np.exp(-index / 10),
}


@dataclass(frozen=True)
class Case:
    """`between`, `within`: standard deviations between and within processes. `distance`: of the second mode.

    All three are shares of the first mode's time, which is 1.
    """

    effect: str
    noise: str
    between: float
    within: float
    processes: int = 5
    samples: int = 20
    distance: float = 0.0

    @property
    def truth(self) -> float:
        return 1 + SECOND_MODE_SHARE * self.distance

    def draw(self, rng: Generator, trials: int) -> tuple[Array, NDArray[np.bool_]]:
        """Samples of shape (trials, processes, samples), and which processes are in the second mode."""
        shape = (trials, self.processes)
        visits = rng.random(shape) < SECOND_MODE_SHARE if self.distance else np.zeros(shape, bool)
        effect = EVERY_EFFECT[self.effect](rng, shape)
        centres = 1 + self.between * effect + self.distance * visits
        noise = NOISES[self.noise](rng, (*shape, self.samples))
        return centres[..., None] + self.within * noise, visits


class SimulatedProcess:
    """A process for Dyno's own sampler. It is also the clock: time passes only while it executes.

    `speed`: the factor of this process' times, 1 on average.
    """

    def __init__(self, rng: Generator, speed: float, noise: str, within: float, warm_up: str) -> None:
        rough = within * NOISES[noise](rng, (_DRAWN,)) + WARM_UPS[warm_up](np.arange(_DRAWN, dtype=float))
        self._times_s = (OPERATION_S * speed * (1 + rough)).tolist()
        self._taken, self._now_s = 0, 0.0

    def execute(self, count: int) -> None:
        self._now_s += count * self._times_s[self._taken]
        self._taken += 1

    def now_s(self) -> float:
        return self._now_s

    epoch_s = now_s

    def cpu_s(self) -> tuple[float, float]:
        return self._now_s, 0.0

    def sampled(self) -> SamplingResult:
        return sample(self.execute, StoppingRule(), self, lambda taken, expected: None)

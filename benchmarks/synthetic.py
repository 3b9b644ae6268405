"""Runs whose truth is known: processes that differ, and samples that scatter inside each of them.

The truth is the mean, over all processes there could be, of the median that each process's samples scatter around.
Every noise here has the median 0 and every effect the mean 0, so that it is 1 by construction, and 1 + share · distance
where a share of the processes sits in a second mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]  # of standard deviation 1; the last axis is time

SECOND_MODE_SHARE = 0.2
WAVE = 40  # processes: eight jobs of five


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def heavy_tailed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Student's t with 3 degrees of freedom: one value in 70 lies beyond three standard deviations."""
    return rng.standard_t(3, shape) / math.sqrt(3)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Exponential, from its median."""
    return rng.exponential(size=shape) - math.log(2)


def skewed_effect(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Exponential, from its mean."""
    return rng.exponential(size=shape) - 1


def drifting(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A straight line through the samples makes up two thirds of the variance."""
    line = np.linspace(-1, 1, shape[-1]) * math.sqrt(2)
    return line + rng.standard_normal(shape) / math.sqrt(3)


def waving(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A wave of WAVE places in a random phase makes up two thirds of the variance."""
    phase = rng.uniform(0, 2 * math.pi, (*shape[:-1], 1))
    wave = np.sin(phase + np.arange(shape[-1]) * 2 * math.pi / WAVE) * math.sqrt(4 / 3)
    noise: Array = wave + rng.standard_normal(shape) / math.sqrt(3)
    return noise


def resembling(coefficient: float) -> Draw:
    """Each value resembles the one before: autoregressive, normal."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        noise = rng.standard_normal(shape)
        fresh = math.sqrt(1 - coefficient**2)
        for index in range(1, shape[-1]):
            noise[..., index] = coefficient * noise[..., index - 1] + fresh * noise[..., index]
        return noise

    return draw


EFFECTS: dict[str, Draw] = {"normal": normal, "heavy-tailed": heavy_tailed}
# Processes of which one tells of the next: no interval over a few neighbours can know how far the others lie.
DEPENDENT: dict[str, Draw] = {
    "correlated 0.4": resembling(0.4),
    "correlated 0.8": resembling(0.8),
    "on a wave": waving,
    "on a line": drifting,
}
NOISES: dict[str, Draw] = {
    "normal": normal,
    "skewed": skewed,
    "heavy-tailed": heavy_tailed,
    "drifting": drifting,
    "correlated": resembling(0.9),
}


def effect_of(name: str) -> Draw:
    return (EFFECTS | DEPENDENT | {"skewed": skewed_effect})[name]


@dataclass(frozen=True)
class Case:
    """`between` and `within`: standard deviations over and inside processes; `distance`: how far the second mode lies.

    All three as shares of the first mode's time, which is 1.
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

    def draw(self, rng: np.random.Generator, trials: int) -> tuple[Array, NDArray[np.bool_]]:
        """Samples of shape (trials, processes, samples), and which processes are in the second mode."""
        shape = (trials, self.processes)
        visits = rng.random(shape) < SECOND_MODE_SHARE if self.distance else np.zeros(shape, bool)
        effect = effect_of(self.effect)(rng, shape)
        centres = 1 + self.between * effect + self.distance * visits
        noise = NOISES[self.noise](rng, (*shape, self.samples))
        return centres[..., None] + self.within * noise, visits

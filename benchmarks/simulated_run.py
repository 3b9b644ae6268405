"""A process that only exists as figures, sampled by Dyno's own sampler: stopping rule, search for warm-up and all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.synthetic import NOISES, Array
from dyno.measure.sampling import SamplingResult, sample
from dyno.measure.stopping_rule import MAX_SAMPLES, StoppingRule

OPERATION_S = 0.02
_DRAWN = 4 * MAX_SAMPLES  # more than the sampler ever takes


def gradual(sample_index: Array) -> Array:
    """Starts a fifth slower and gets faster over tens of samples."""
    return 0.2 * np.exp(-sample_index / 10)


def plateau(sample_index: Array) -> Array:
    """A third slower for the first 12 samples, then at once as fast as it ever gets."""
    return np.where(sample_index < 12, 0.33, 0.0)


def settled(sample_index: Array) -> Array:
    return np.zeros_like(sample_index)


class SimulatedProcess:
    """Also its own clock: time passes only while it executes. `speed`: how slow this process is, 1 on average."""

    def __init__(
        self, rng: np.random.Generator, speed: float, noise: str, within: float, warm_up: Callable[[Array], Array]
    ) -> None:
        rough = within * NOISES[noise](rng, (_DRAWN,))
        self._times_s = (OPERATION_S * speed * (1 + rough + warm_up(np.arange(_DRAWN, dtype=float)))).tolist()
        self._taken = 0
        self._now_s = 0.0

    def execute(self, count: int) -> None:
        self._now_s += count * self._times_s[self._taken]
        self._taken += 1

    def now_s(self) -> float:
        return self._now_s

    def epoch_s(self) -> float:
        return self._now_s

    def cpu_s(self) -> tuple[float, float]:
        return self._now_s, 0.0

    def sampled(self) -> SamplingResult:
        return sample(self.execute, StoppingRule(), self, lambda taken, expected: None)

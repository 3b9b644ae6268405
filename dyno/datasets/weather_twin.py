"""The synthetic twin of the weather: yearly and daily cycles, fronts that pass all stations, and noise."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dyno.datasets.weather_signals import HOURS, STATIONS

_DAY, _YEAR = 24, 24 * 365.25  # hours
_KEPT = 0.98  # of a front's strength from one hour to the next


def synthetic() -> NDArray[np.float32]:
    """Values (hours, 20) in the order and units of the real signals; always the same, and learnable."""
    random = np.random.Generator(np.random.SFC64(HOURS))
    hours = np.arange(HOURS)
    year, day = np.cos(2 * np.pi * hours / _YEAR), np.cos(2 * np.pi * (hours - 15) / _DAY)
    front = _drifting(random)
    turning = _drifting(random)
    columns = []
    for _ in STATIONS:
        noise = random.normal(0, 1, (4, HOURS))
        temp = 13 - 14 * np.cos(2 * np.pi * (hours + 59 * _DAY) / _YEAR) + 5 * day + 3 * front + 0.5 * noise[0]
        pressure = 1011 + 9 * year - 6 * front + 0.4 * noise[1]
        speed = np.abs(1.8 + 0.7 * day + 0.9 * front + 0.5 * noise[2])
        direction = np.round((180 + 60 * turning + 60 * day + 10 * noise[3]) / 22.5) * 22.5 % 360
        columns += [temp, pressure, speed, direction]
    return np.column_stack(columns).astype(np.float32)


def _drifting(random: np.random.Generator) -> NDArray[np.float64]:
    """A random walk drawn back to 0, of standard deviation 1: what a forecast can know for a day or two."""
    pushes = random.normal(0, np.sqrt(1 - _KEPT**2), HOURS).tolist()
    return np.fromiter(accumulate(pushes, lambda level, push: _KEPT * level + push), np.float64)

"""The clock that a core really runs at."""

from __future__ import annotations

from collections.abc import Sequence

from dyno.devices.bursts import best_rates_per_s
from dyno.devices.machine_code import CLOCK, NotHere, load


def measure_clock_hz(core: int) -> float | None:
    """Cycles per second of `core` under light load, at its fastest within 50 ms; None where it can't be measured.

    Runs on a thread of its own, so the caller stays on its cores.
    """
    try:
        return clocks_hz([core])[0]
    except (NotHere, OSError):
        return None


def clocks_hz(cores: Sequence[int]) -> list[float]:
    """The same for several cores busy at once, which is when turbo is lowest. Raises NotHere, OSError."""
    return [rate * CLOCK.amount for rate in best_rates_per_s(load(CLOCK), cores)]

"""Reading sensors around samples: before each, after the last, never inside one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from dyno.devices.sensors.source import Look, Source
from dyno.models.result import Sensors

# Looks take at most this share of the time: a slow sensor (NVML takes milliseconds on some drivers) is read rarely, so
# that the device doesn't cool down between samples.
COST_SHARE = 0.005
_ONE_LOOK = "the sensors are so slow that they were read but once in the sampled window"
_Timed = tuple[float, Look]


class Watch:
    """`look` is called before each sample, warm-up included; `over` once, right after the last."""

    def __init__(self, source: Source, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._source, self._now_s = source, now_s
        self._looks: list[tuple[int, _Timed]] = []  # (how many samples lay before it, when and what)
        self._samples, self._rest_until_s = 0, 0.0

    def look(self) -> None:
        if not self._looks or self._now_s() >= self._rest_until_s:
            self._looks.append((self._samples, self._timed()))
        self._samples += 1

    def over(self, warmup: int) -> Sensors:
        """What was seen from the sample after the first `warmup` ones to now."""
        last = self._timed()
        window = [timed for before, timed in self._looks if before >= warmup] + [last]
        looks, users = [look for _, look in window], self._source.users()
        reasons = self._source.reasons()
        joules, energy_s = _energy(window)
        if len(window) < 2:  # the sensors rested when the first sample began, and counters need two looks
            reasons |= {name: _ONE_LOOK for name in ("energy_j", "throttle_events") if name not in reasons}
        elif joules is not None and energy_s < self._source.least_energy_s:
            needed = f"{self._source.least_energy_s:g} s are needed (measure.min_s)"
            joules, reasons["energy_j"] = None, f"the counter was read over {energy_s:.1f} s; {needed}"
        throttled = [look.throttle_reasons for look in looks if look.throttle_reasons is not None]
        return Sensors(
            looks=len(looks),
            energy_j=joules,
            energy_s=None if joules is None else energy_s,
            energy_of=None if joules is None else self._source.energy_of,
            temperature_c=_largest(look.temperature_c for look in looks),
            clocks_hz=_medians(looks),
            throttle_reasons=sorted(frozenset().union(*throttled)) if throttled else None,
            throttled_share=sum(map(bool, throttled)) / len(throttled) if throttled else None,
            throttle_events=_counted([look.throttle_events for look in looks]),
            other_processes=users.other_processes,
            utilisation=users.utilisation,
            reasons=reasons,
        )

    def _timed(self) -> _Timed:
        began_s = self._now_s()
        look = self._source.look()
        ended_s = self._now_s()
        self._rest_until_s = ended_s + (ended_s - began_s) / COST_SHARE
        return ended_s, look


def _energy(window: Sequence[_Timed]) -> tuple[float | None, float]:
    """(joules, seconds) between the first look and the last."""
    (first_s, first), (last_s, last) = window[0], window[-1]
    if first.energy_j is None or last.energy_j is None or len(window) < 2:
        return None, 0.0
    return last.energy_j - first.energy_j, last_s - first_s


def _medians(looks: Sequence[Look]) -> dict[str, float]:
    names = sorted({name for look in looks for name in look.clocks_hz})
    return {name: median(look.clocks_hz[name] for look in looks if name in look.clocks_hz) for name in names}


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _counted(counts: Sequence[int | None]) -> int | None:
    first, last = counts[0], counts[-1]
    return None if first is None or last is None or len(counts) < 2 else last - first

"""How long jobs took beside what their workloads had estimated, one bounded series per workload and class of device.

`finish.lua` adds a reading in the step that ends a job that succeeded; what failed or was canceled says nothing of how
long the others will take. What is lost of a series costs an estimate of time and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from dyno.devices.device import Device
from dyno.models.spec import Spec
from dyno.store.queues import model_slug

KEPT = 20  # newest readings, `PACES_KEPT` of finish.lua: what a device was like long ago fades out
MIN_DURATIONS = 3  # readings that a median needs to withstand one that is far off
_ALIKE = 2.0  # of about as much work: within this factor of each other's estimate


@dataclass(frozen=True)
class Pace:
    """What a worker says of a job that succeeded: the series, and the seconds that were estimated for it there."""

    series: str
    expected_s: float


class Reading(NamedTuple):
    """One job: the estimate of its workload, and the time from its claim to its end."""

    expected_s: float
    took_s: float


def series_of(spec: Spec, device: Device) -> str:
    """Devices of one model share it. CPUs only with as many cores: what isn't parallel takes its time on any number."""
    cores = f"/{len(device.cores)}" if device.driven_as == "cpu" else ""
    return f"{spec.workload}:{spec.framework}:{device.kind}/{model_slug(device.model)}{cores}"


def readings_of(texts: Sequence[str]) -> list[Reading]:
    """Stored ones, without those that can't be read."""
    found = []
    for text in texts:
        try:
            expected_s, took_s = map(float, text.split(" "))
        except ValueError:
            continue
        if 0 < expected_s < math.inf and 0 <= took_s < math.inf:
            found.append(Reading(expected_s, took_s))
    return found


def likely_s(readings: Sequence[Reading], expected_s: float) -> float | None:
    """How long a job takes of which its workload estimates `expected_s`; null below MIN_DURATIONS readings.

    The estimate times the median of how far the readings were off theirs: of those of about as much work, where there
    are MIN_DURATIONS of them, since a small job's start weighs more; else of all.
    """
    if len(readings) < MIN_DURATIONS:
        return None
    alike = [each for each in readings if expected_s / _ALIKE <= each.expected_s <= expected_s * _ALIKE]
    chosen = alike if len(alike) >= MIN_DURATIONS else readings
    return expected_s * median(each.took_s / each.expected_s for each in chosen)

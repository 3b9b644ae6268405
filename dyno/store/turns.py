"""When waiting jobs come to their turn: what workers will claim, played through in the order in which they would."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Waiting:
    """A job in line. `takes_s`: seconds on each device that would take it; null where they aren't known."""

    id: str
    takes_s: Mapping[str, float | None]


class Played(NamedTuple):
    """`starts_s`: until each job is claimed, by its id. `free_s`: until each device is free for one that comes now.

    Null where it isn't known: of a job that no device takes, and behind jobs of which nothing is known.
    """

    starts_s: dict[str, float | None]
    free_s: dict[str, float | None]


def play(waiting: Iterable[Waiting], rests_s: Mapping[str, float | None]) -> Played:
    """Let each job, given in the order of claims, be claimed by the first device that is free for it.

    `rests_s`: until each device is free of what it runs, 0 where it is; null where that isn't known.
    """
    free_s = {device: math.inf if rest_s is None else rest_s for device, rest_s in rests_s.items()}
    found: dict[str, float | None] = {}
    for job in waiting:
        device = min(job.takes_s, key=free_s.__getitem__, default=None)
        if device is None:
            found[job.id] = None
            continue
        begins_s, takes_s = free_s[device], job.takes_s[device]
        found[job.id] = _known(begins_s)
        free_s[device] = math.inf if takes_s is None else begins_s + takes_s
    return Played(found, {device: _known(time_s) for device, time_s in free_s.items()})


def _known(time_s: float) -> float | None:
    return time_s if math.isfinite(time_s) else None

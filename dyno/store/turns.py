"""When waiting jobs come to their turn: what workers will claim, played through in the order in which they would."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A job in line. `takes_s`: seconds on each device that would take it; null where they aren't known."""

    id: str
    takes_s: Mapping[str, float | None]


def starts(waiting: Iterable[Waiting], rests_s: Mapping[str, float | None]) -> dict[str, float | None]:
    """Seconds until each job, given in the order of claims, is claimed by the first device that is free for it.

    `rests_s`: until each device is free, 0 where it is; null where that isn't known. Null is told of a job that no
    device takes, and of one that stands behind others of which nothing is known, on every device that takes it.
    """
    free_s = {device: math.inf if rest_s is None else rest_s for device, rest_s in rests_s.items()}
    found: dict[str, float | None] = {}
    for job in waiting:
        device = min(job.takes_s, key=free_s.__getitem__, default=None)
        if device is None:
            found[job.id] = None
            continue
        begins_s, takes_s = free_s[device], job.takes_s[device]
        found[job.id] = begins_s if math.isfinite(begins_s) else None
        free_s[device] = math.inf if takes_s is None else begins_s + takes_s
    return found

"""NOISY_NEIGHBOUR: did other work use the device's cores while this process sampled?

Three shares count. Steal: time in which the hypervisor ran another virtual machine (/proc/stat). Siblings: time in
which the other hyperthreads of these cores were busy; the run doesn't use them, but they share the cores' pipes and
caches. Others: time that the cores spent on other processes. This last share counts only as far as threads of this
process had to wait (run_delay in /proc/self/task/*/schedstat), or if the kernel doesn't count waiting. Waiting alone
isn't evidence: a framework with more threads than cores waits for itself.

What a quiet machine does anyway (the kernel, Dyno's own API, Redis and worker) is the same in every result and isn't a
neighbour's work, so `BACKGROUND` of the others' time doesn't count.

Beside a process that used one of two cores, a product ran at 81 instead of 181 GFLOP/s: the process took a third of the
cores' time, and the product lost more than half of its speed.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from dyno.devices.cpu import TOPOLOGY, siblings
from dyno.measure.sampling import Clock
from dyno.measure.warnings import EFFECT, EXCUSED, least_effect, warning
from dyno.models.result import CoreShares, Epoch, ResultWarning

PROC = Path("/proc")

BACKGROUND = 0.02  # of one core, on all cores together. Measured on two cores: 0.01 to 0.018
# Above what the ticks of /proc/stat can mean in a run of one second on two cores.
SPOILING = 0.05
_LEAST_S = 2.0  # /proc/stat counts in ticks of 10 ms: over 2 s on one core one tick is 0.5 %
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CoreUsage:
    """Seconds so far: busy and stolen on the watched cores, used and waited by this process, and busy on siblings."""

    now_s: float
    busy_s: float
    steal_s: float
    own_s: float
    waited_s: float | None
    siblings_s: float = 0.0


class HostNoise:
    """Watches `cores` from its creation on. The process must stay pinned to them, as a runner is."""

    def __init__(self, cores: Sequence[int], clock: Clock, proc: Path = PROC, topology: Path = TOPOLOGY) -> None:
        self._cores, self._clock, self._proc = frozenset(cores), clock, proc
        self._siblings = frozenset(siblings(cores, topology))
        self._before = self._look()

    def shares(self) -> CoreShares | None:
        """Shares since the creation; None if unknown (no cores, no /proc/stat)."""
        before, after = self._before, self._look()
        if before is None or after is None:
            return None
        return core_shares(before, after, len(self._cores))

    def _look(self) -> CoreUsage | None:
        ticks = _ticks(self._proc / "stat", self._cores)
        if not ticks:
            return None
        beside_s = _busy_s(_ticks(self._proc / "stat", self._siblings))
        steal_s = sum(row[7] for row in ticks) * _TICK_S
        own_s = sum(self._clock.cpu_s())
        return CoreUsage(self._clock.now_s(), _busy_s(ticks), steal_s, own_s, _waited_s(self._proc), beside_s)


def core_shares(before: CoreUsage, after: CoreUsage, cores: int) -> CoreShares | None:
    """Shares between two readings of `cores` cores; None if no time passed."""
    capacity_s = (after.now_s - before.now_s) * cores
    if capacity_s <= 0:
        return None
    waited_s = _difference(before.waited_s, after.waited_s)
    return CoreShares(
        others=max(0.0, after.busy_s - before.busy_s - (after.own_s - before.own_s)) / capacity_s,
        stolen=(after.steal_s - before.steal_s) / capacity_s,
        beside=(after.siblings_s - before.siblings_s) / capacity_s,
        waited=None if waited_s is None else waited_s / capacity_s,
    )


def noisy_neighbour(seen: CoreShares, cores: int, rel_half_width: float | None = None) -> ResultWarning | None:
    """Raised if others could have moved a figure whose interval is `rel_half_width`. `cores`: how many were watched."""
    moved = _moved(seen, cores)
    if moved <= least_effect(rel_half_width):
        return None
    return warning(
        "NOISY_NEIGHBOUR",
        f"Other processes used {seen.others:.1%} of the cores' time, other machines {seen.stolen:.1%}, "
        f"sibling hyperthreads {seen.beside:.1%}.",
        others_share=seen.others,
        steal_share=seen.stolen,
        siblings_share=seen.beside,
        run_delay_share=seen.waited,
        moved=moved,
    )


def spoils(seen: CoreShares | None, cores: int) -> bool:
    """Whether others took so much that a comparison of neighbouring runs is better made without this run."""
    return seen is not None and _moved(seen, cores) > SPOILING


def _moved(seen: CoreShares, cores: int) -> float:
    """The share of the time that the work may have lost.

    Parallel work waits for its slowest thread, so a core that others use for 1 % of the time can delay all by 1 %.
    """
    others = seen.others if seen.waited is None else min(seen.others, seen.waited)
    by_others = max(0.0, cores * others - BACKGROUND)
    return min(1.0, by_others + cores * (seen.stolen + seen.beside))


def runs_disturbed(seen: Sequence[CoreShares | None], cores: int, rel_half_width: float | None) -> ResultWarning | None:
    """As `noisy_neighbour`, for the mean of the runs, as the figure is. `evidence.runs` lists the affected ones."""
    known = [(run, shares) for run, shares in enumerate(seen) if shares is not None]
    if (
        not known
        or (raised := noisy_neighbour(_pooled([(1.0, shares) for _, shares in known]), cores, rel_half_width)) is None
    ):
        return None
    runs: list[JsonValue] = [run for run, shares in known if _moved(shares, cores) > EFFECT]
    return raised.model_copy(update={"evidence": {**raised.evidence, "runs": runs}})


def training_disturbed(epochs: Sequence[Epoch], cores: int) -> ResultWarning | None:
    """As `noisy_neighbour`, for the first epoch, or for the further ones together. `evidence.phase` names them.

    Shorter ones aren't judged, because /proc/stat counts in ticks. A training is timed once, so its figures have no
    interval, and the limit is that for a wide one.
    """
    for phase, part in (("first epoch", epochs[:1]), ("further epochs", epochs[1:])):
        seen = [(epoch.time_s, epoch.core_shares) for epoch in part if epoch.core_shares is not None]
        if math.fsum(time_s for time_s, _ in seen) >= _LEAST_S and (
            raised := noisy_neighbour(_pooled(seen), cores, EXCUSED)
        ):
            return raised.model_copy(update={"evidence": {**raised.evidence, "phase": phase}})
    return None


def _pooled(seen: Sequence[tuple[float, CoreShares]]) -> CoreShares:
    """The shares of all windows together, each (seconds, shares)."""
    whole_s = math.fsum(time_s for time_s, _ in seen)

    def share(name: str) -> float | None:
        parts = [(time_s, getattr(shares, name)) for time_s, shares in seen]
        known = all(value is not None for _, value in parts)
        return math.fsum(time_s * value for time_s, value in parts) / whole_s if known else None

    return CoreShares.model_validate({name: share(name) for name in CoreShares.model_fields})


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _ticks(stat: Path, cores: frozenset[int]) -> list[list[int]]:
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return []
    names = {f"cpu{core}" for core in cores}
    return [[int(word) for word in words[1:]] for line in lines if (words := line.split()) and words[0] in names]


def _busy_s(ticks: list[list[int]]) -> float:
    """Seconds in user, nice and system, columns 0 to 2; steal is column 7 (man 5 proc_stat)."""
    return sum(sum(row[:3]) for row in ticks) * _TICK_S


def _waited_s(proc: Path) -> float | None:
    """Seconds in which threads of this process were ready but not running; None if the kernel doesn't count them."""
    ran_ns = waited_ns = 0
    for file in proc.glob("self/task/*/schedstat"):
        try:
            ran, waited, _ = file.read_text().split()
        except (OSError, ValueError):  # the thread has ended
            continue
        ran_ns, waited_ns = ran_ns + int(ran), waited_ns + int(waited)
    return waited_ns / 1e9 if ran_ns else None

"""NOISY_NEIGHBOUR: could other work have slowed this process down while it sampled?

Work on the device's own cores is disturbed by other processes, other virtual machines (steal), and work on the sibling
hyperthreads, which share the cores' pipes and caches. Parallel work waits for its slowest thread, and threads that are
delayed at the same time delay the work only once. So the bound is the loss of the most disturbed core or thread, not
the sum of all losses. Measured with a product on 8 of 16 cores: a process that used 5 % of one core slowed the product
down by 0.6 % (± 1.9 %). Eight processes, each using 5 % of a core, slowed it down by 3.3 % (± 4.2 %). The sum of all
waits was 5 % and 39 %, and the longest wait of a thread was 5 % in both cases.

The time of other processes enters the bound only up to the longest time that a thread of this process waited for a core
(run_delay in /proc/self/task/*/schedstat). If the kernel doesn't count waiting, their whole time enters the bound.
Waiting alone isn't evidence: a framework with more threads than cores waits for itself. The work of a quiet machine
(the kernel, Dyno's own API, Redis and worker) is the same in every result, so it is subtracted (`BACKGROUND`,
`BACKGROUND_PER_CORE`). Interrupts don't add to run_delay, so they are counted for each core, like steal.

Work on the package's other cores shares the last cache, memory bandwidth and turbo. No counter reports the share that
such work takes, so each busy core is assumed to cause a typical measured loss (docs/dev/decisions/0037).
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from dyno.bench.devices.cpu import TOPOLOGY, package_cores, read_kernel_file, siblings
from dyno.bench.measure.sampling import Clock
from dyno.bench.measure.warnings import EFFECT, EXCUSED, least_effect, warning
from dyno.models.result import CoreShares, Epoch, ResultWarning

PROC = Path("/proc")

BACKGROUND = 0.02  # background load summed over all cores, as a share of one core. Measured on two cores: 0.01 to 0.018
BACKGROUND_PER_CORE = 0.0005  # the kernel's own work. On 16 quiet cores, no tick of 10 ms was counted in 8 s
# The loss of speed by one other busy core of a small package. Measured on two cores, n = 30: a product on the other
# core slowed a product and an addition down by 1 %. An addition of 402 MB on the other core slowed a product down by 8
# to 18 %, and an addition by 43 %. The other core's work is unknown, so this is the median of the measured losses. With
# their mean, 12 %, the core that runs Dyno's own API would raise the warning.
ONE_PACKAGE_CORE = 0.045
# The loss of speed by all other cores of a large package together. Measured on 16 cores, n = 20: 15 busy cores slowed
# an addition down by 41 % (± 10) and a product by 25 % (± 9); with 7 busy cores, it was 23 % (± 8) and 15 % (± 7). So
# each busy core is assumed to cause its share of this loss. No other number of cores was measured.
WHOLE_PACKAGE = 0.4
# A larger loss spoils a run. In a run of 1 s on two cores, errors from the ticks of /proc/stat stay below this loss.
SPOILING = 0.05
LOOK_EVERY_S = 0.2  # reading the counters of 31 threads takes 1.5 ms
_LEAST_S = 2.0  # /proc/stat counts in ticks of 10 ms: over 2 s on one core, one tick is 0.5 %
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CoreUsage:
    """Cumulative seconds. `steal_s`, `siblings_s` and `interrupts_s` have a value for each watched core.

    `waited_s`: for each thread of this process; None if the kernel doesn't count waiting. `busy_s`: processor seconds
    of all processes on the watched cores. `own_s`: processor seconds of this process and its children. `package_s`:
    busy seconds of the package's other cores, whose number is `package_cores`.
    """

    now_s: float
    busy_s: float
    own_s: float
    steal_s: Mapping[int, float]
    siblings_s: Mapping[int, float]
    interrupts_s: Mapping[int, float]
    waited_s: Mapping[str, float] | None
    package_s: float = 0.0
    package_cores: int = 0


class HostNoise:
    """Watch the load on `cores` from the creation of this object on. The process must stay pinned to these cores.

    `package`: also watch the package's other cores, whose work slows work on a CPU.
    """

    def __init__(
        self,
        cores: Sequence[int],
        clock: Clock,
        proc: Path = PROC,
        topology: Path = TOPOLOGY,
        *,
        package: bool = True,
    ) -> None:
        self._clock, self._proc = clock, proc
        self._siblings = {core: siblings([core], topology) - set(cores) for core in cores}
        self._package = package_cores(cores, topology) if package else set[int]()
        self._looks = [self._look()]

    def look(self) -> None:
        """Read the counters, at most every LOOK_EVERY_S. Call it before each sample, so `shares` can omit warm-up."""
        last = self._looks[-1]
        is_due = last is None or self._clock.now_s() - last.now_s >= LOOK_EVERY_S
        self._looks.append(self._look() if is_due else last)

    def shares(self, first: int | None = None) -> CoreShares | None:
        """Shares since the call of `look` with the number `first` (from 0), or since the creation of this object.

        None if unknown (no cores, no /proc/stat).
        """
        before, after = self._looks[0 if first is None else 1 + first], self._look()
        return None if before is None or after is None else core_shares(before, after)

    def _look(self) -> CoreUsage | None:
        ticks = _ticks(self._proc / "stat")
        watched = {core: ticks[core] for core in self._siblings if core in ticks}
        if not watched:
            return None
        return CoreUsage(
            now_s=self._clock.now_s(),
            busy_s=_seconds(watched.values(), _PROCESSES),
            own_s=sum(self._clock.cpu_s()) + live_children_s(self._proc),
            steal_s={core: row[_STEAL] * _TICK_S for core, row in watched.items()},
            siblings_s={
                core: _seconds((ticks[sibling] for sibling in self._siblings[core] if sibling in ticks), _BUSY)
                for core in watched
            },
            interrupts_s={core: _seconds([row], _INTERRUPTS) for core, row in watched.items()},
            waited_s=_waited_s(self._proc),
            package_s=_seconds((row for core, row in ticks.items() if core in self._package), _BUSY),
            package_cores=len(self._package & ticks.keys()),
        )


def core_shares(before: CoreUsage, after: CoreUsage) -> CoreShares | None:
    """Shares between two readings of the same cores; None if no time passed."""
    window_s, cores = after.now_s - before.now_s, len(after.steal_s)
    if window_s <= 0 or not cores:
        return None
    stolen = [after.steal_s[core] - before.steal_s[core] for core in after.steal_s]
    on_siblings = [after.siblings_s[core] - before.siblings_s[core] for core in after.steal_s]
    interrupted = [after.interrupts_s[core] - before.interrupts_s[core] for core in after.steal_s]
    waited = _since(before.waited_s, after.waited_s)
    return CoreShares(
        others=max(0.0, after.busy_s - before.busy_s - (after.own_s - before.own_s)) / window_s / cores,
        stolen=math.fsum(stolen) / window_s / cores,
        beside=math.fsum(on_siblings) / window_s / cores,
        waited=None if waited is None else math.fsum(waited) / window_s / cores,
        most_taken=max(map(sum, zip(stolen, on_siblings, interrupted, strict=True))) / window_s,
        most_waited=None if waited is None else max(waited, default=0.0) / window_s,
        package_busy=(after.package_s - before.package_s) / window_s,
        package_cores=after.package_cores,
    )


def noisy_neighbour(shares: CoreShares, cores: int, rel_half_width: float | None = None) -> ResultWarning | None:
    """Raised if other work could have moved a figure beyond its `rel_half_width`. `cores`: number of watched cores."""
    moved = _moved(shares, cores)
    if moved <= least_effect(rel_half_width):
        return None
    return warning(
        "NOISY_NEIGHBOUR",
        f"Other processes used {shares.others:.1%} of the cores' time, other machines {shares.stolen:.1%}, "
        f"sibling hyperthreads {shares.beside:.1%}, and with interrupts {shares.most_taken:.1%} of a core; "
        f"{shares.package_busy:.2f} other cores of the package were busy.",
        others_share=shares.others,
        steal_share=shares.stolen,
        siblings_share=shares.beside,
        run_delay_share=shares.waited,
        longest_run_delay_share=shares.most_waited,
        most_taken_of_a_core=shares.most_taken,
        package_cores_busy=shares.package_busy,
        moved=moved,
    )


def spoils(shares: CoreShares | None, cores: int) -> bool:
    """Whether other work slowed this run down so much that a comparison of pairs should leave the run out."""
    return shares is not None and _moved(shares, cores) > SPOILING


def _moved(shares: CoreShares, cores: int) -> float:
    """The largest share of the speed that the work may have lost."""
    others = cores * shares.others - max(BACKGROUND, BACKGROUND_PER_CORE * cores)
    by_others = others if shares.most_waited is None else min(others, shares.most_waited - BACKGROUND)
    by_package = shares.package_busy * min(ONE_PACKAGE_CORE, WHOLE_PACKAGE / max(1, shares.package_cores))
    return min(1.0, max(0.0, by_others) + shares.most_taken + by_package)


def runs_disturbed(
    by_run: Sequence[CoreShares | None], cores: int, rel_half_width: float | None
) -> ResultWarning | None:
    """Like `noisy_neighbour`, for the mean over the runs. `evidence.runs` lists the disturbed runs."""
    read = [(run, shares) for run, shares in enumerate(by_run) if shares is not None]
    if (
        not read
        or (warning_raised := noisy_neighbour(_pooled([(1.0, shares) for _, shares in read]), cores, rel_half_width))
        is None
    ):
        return None
    runs: list[JsonValue] = [run for run, shares in read if _moved(shares, cores) > EFFECT]
    return warning_raised.model_copy(update={"evidence": {**warning_raised.evidence, "runs": runs}})


def training_disturbed(epochs: Sequence[Epoch], cores: int) -> ResultWarning | None:
    """Like `noisy_neighbour`, for the first epoch, or for all further epochs together (`evidence.phase`).

    A phase shorter than 2 s isn't checked, because /proc/stat counts in ticks. A training is timed once, so its figures
    have no interval. They are checked with the limit for wide intervals (`EXCUSED`).
    """
    for phase, phase_epochs in (("first epoch", epochs[:1]), ("further epochs", epochs[1:])):
        windows = [(epoch.time_s, epoch.core_shares) for epoch in phase_epochs if epoch.core_shares is not None]
        if math.fsum(time_s for time_s, _ in windows) >= _LEAST_S and (
            warning_raised := noisy_neighbour(_pooled(windows), cores, EXCUSED)
        ):
            return warning_raised.model_copy(update={"evidence": {**warning_raised.evidence, "phase": phase}})
    return None


def _pooled(windows: Sequence[tuple[float, CoreShares]]) -> CoreShares:
    """The shares over all windows together; a window is (seconds, shares)."""
    whole_s = math.fsum(time_s for time_s, _ in windows)

    def share(name: str) -> float | None:
        values = [(time_s, getattr(shares, name)) for time_s, shares in windows]
        is_known = all(value is not None for _, value in values)
        return math.fsum(time_s * value for time_s, value in values) / whole_s if is_known else None

    averaged = {name: share(name) for name in CoreShares.model_fields if name != "package_cores"}
    return CoreShares.model_validate({**averaged, "package_cores": windows[0][1].package_cores})


# Columns of /proc/stat (man 5 proc_stat): user, nice and system; irq and softirq; steal.
_PROCESSES, _INTERRUPTS, _STEAL = (0, 1, 2), (5, 6), 7
_BUSY = (*_PROCESSES, *_INTERRUPTS)


def _ticks(stat: Path) -> dict[int, list[int]]:
    """The columns of /proc/stat by core."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return {}
    rows = (line.split() for line in lines if line.startswith("cpu"))
    return {int(row[0][3:]): [int(word) for word in row[1:]] for row in rows if row[0] != "cpu"}


def _seconds(rows: Iterable[Sequence[int]], columns: Sequence[int]) -> float:
    return sum(row[column] for row in rows for column in columns) * _TICK_S


def _since(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> list[float] | None:
    """The seconds that each living thread waited between two readings. A new thread started from zero."""
    if before is None or after is None:
        return None
    return [waited_s - before.get(thread, 0.0) for thread, waited_s in after.items()]


def _waited_s(proc: Path) -> dict[str, float] | None:
    """Seconds in which each thread of this process was ready but not running; None if the kernel doesn't count this."""
    ran_ns, waited_s = 0, dict[str, float]()
    for file in proc.glob("self/task/*/schedstat"):
        try:
            ran, waited, _ = file.read_text().split()
        except (OSError, ValueError):  # the thread has ended
            continue
        ran_ns, waited_s[file.parent.name] = ran_ns + int(ran), int(waited) / 1e9
    return waited_s if ran_ns else None


def live_children_s(proc: Path, process: str = "self") -> float:
    """Processor seconds of all living descendants. `Clock.cpu_s` includes the ended children."""
    seconds = 0.0
    for file in proc.glob(f"{process}/task/*/children"):
        for child in read_kernel_file(file).split():
            fields = read_kernel_file(proc / child / "stat").rpartition(")")[2].split()
            # The list begins with the state, field 3. utime, stime, cutime and cstime are fields 14 to 17 (man 5 proc).
            seconds += sum(int(field) for field in fields[11:15]) * _TICK_S + live_children_s(proc, child)
    return seconds

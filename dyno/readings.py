"""What was read of a process and of its device while samples were taken: time, memory, sensors, energy.

What no sensor told is null, never zero, and a reason says why.
"""

from __future__ import annotations

from dyno.job import Stored


class Cpu(Stored):
    """Processor time over the sampled window: user_s / wall_s is the number of cores kept busy."""

    wall_s: float
    user_s: float
    system_s: float


class CoreShares(Stored):
    """Who else was on a device's cores from the first warm-up to the last sample, as shares of those cores' time.

    `others`: other processes. `stolen`: other machines of the same hypervisor. `beside`: the hyperthreads beside these
    cores. `waited`: this process's own threads, ready to run and not running; null where the kernel doesn't count that.
    All of it is null in a run whose device has no cores, or whose system doesn't tell.
    """

    others: float
    stolen: float
    beside: float
    waited: float | None = None


class Memory(Stored):
    device_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    reason: str | None = None


class Sensors(Stored):
    """One sampled window of one run. Sensors are read between samples, never inside one; `looks` is how often.

    `reasons`: field -> why it is null. `energy_j` was used in `energy_s` seconds, the part of the window between its
    first and its last look, by what `energy_of` names. `temperature_c` is the highest seen, `clocks_hz` holds medians
    ("sm", "memory"), `throttle_reasons` all that were seen, in `throttled_share` of the looks; `throttle_events` counts
    how often a CPU lowered its clock. `other_processes` hold the device; `utilisation` is the share of time in which
    anything ran on it, by the device's own count (up to 1 s before the last look).
    """

    looks: int = 0
    energy_j: float | None = None
    energy_s: float | None = None
    energy_of: str | None = None
    temperature_c: float | None = None
    clocks_hz: dict[str, float] = {}
    throttle_reasons: list[str] | None = None
    throttled_share: float | None = None
    throttle_events: int | None = None
    other_processes: int | None = None
    utilisation: float | None = None
    reasons: dict[str, str] = {}


class Energy(Stored):
    """`joules` over the sampled windows of all runs together, `window_s` seconds; null with a reason.

    `joules_per_sample` is per training sample, image or whatever the throughput counts; null for pure arithmetic.
    `flop_per_joule` counts executed operations. `covers` says whose energy it is.
    """

    joules: float | None = None
    window_s: float | None = None
    joules_per_sample: float | None = None
    flop_per_joule: float | None = None
    covers: str | None = None
    reason: str | None = None

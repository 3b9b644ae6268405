"""Read a device's sensors: energy, temperature, clocks, throttling and other users of the device.

Dyno reads sensors before each sample and after the last sample, never inside a sample. A value that a sensor doesn't
report is None with a reason.

- CPU energy: RAPL counters in /sys/class/powercap (Intel, and AMD since Zen;
  Documentation/power/powercap/powercap.rst in the Linux kernel). Only root may read them since CVE-2020-8694.
- CPU temperature: /sys/class/hwmon (drivers coretemp, k10temp) or /sys/class/thermal.
- CPU throttling: counters in /sys/devices/system/cpu/cpu*/thermal_throttle, Intel only
  (Documentation/ABI/testing/sysfs-devices-system-cpu).
- GPU: NVML. A slice (MIG) has the temperature, clocks and throttling of its GPU, and its own processes.

Virtual machines have neither CPU temperatures nor throttling counters.
"""

import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

from dyno.bench.devices.cpu import read_kernel_file
from dyno.bench.devices.gpu import GpuUnit, nvml_session, units_of
from dyno.errors import DeviceUnavailable
from dyno.models.device import Device
from dyno.models.result import Sensors


@dataclass(frozen=True)
class SensorReading:
    """One reading of all sensors. A field is None if its sensor reports nothing.

    `energy_j`, `throttled_s` (by reason) and `throttle_events` are counters: only their differences are meaningful.
    """

    energy_j: float | None = None
    temperature_c: float | None = None
    clocks_hz: Mapping[str, float] = field(default_factory=dict)
    throttle_reasons: frozenset[str] | None = None
    throttled_s: Mapping[str, float] | None = None
    throttle_events: int | None = None


@dataclass(frozen=True)
class DeviceUsage:
    """Other processes on the device, and the share of time in which the device was busy; None if unknown."""

    other_processes: int | None = None
    utilisation: float | None = None


class SensorSource(Protocol):
    """`energy_of`: the parts that the energy counter covers. Over less than `least_energy_s`, it is too coarse."""

    energy_of: str
    least_energy_s: float

    def look(self, counters: bool = True) -> SensorReading:
        """Read all sensors, or all but the counters, which take milliseconds on some drivers; never raises."""

    def users(self) -> DeviceUsage:
        """Count other users. Called once, after the last sample, while this process holds the device; never raises."""

    def reasons(self) -> dict[str, str]:
        """Field of `dyno.models.result.Sensors` -> the reason why this source doesn't report the field."""


class NoSensors:
    """The source for a device without sensors: every field is null for the same reason."""

    energy_of, least_energy_s = "nothing", 0.0
    _FIELDS = (
        *("energy_j", "temperature_c", "clocks_hz", "throttle_reasons", "throttled_s", "throttle_events"),
        *("other_processes", "utilisation"),
    )

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def look(self, counters: bool = True) -> SensorReading:
        return SensorReading()

    def users(self) -> DeviceUsage:
        return DeviceUsage()

    def reasons(self) -> dict[str, str]:
        return dict.fromkeys(self._FIELDS, self._reason)


_HWMON_DRIVERS = {"coretemp", "k10temp", "zenpower", "cpu_thermal"}
_THERMAL_ZONES = {"x86_pkg_temp", "cpu-thermal", "cpu_thermal", "TCPU"}


def temperature_files(sys: Path) -> list[Path]:
    """Temperature files of the processor, in thousandths of a degree Celsius."""
    monitors = [
        folder for folder in (sys / "class/hwmon").glob("hwmon*") if read_kernel_file(folder / "name") in _HWMON_DRIVERS
    ]
    sensors = sorted(file for folder in monitors for file in folder.glob("temp*_input"))
    zones = [
        folder / "temp"
        for folder in (sys / "class/thermal").glob("thermal_zone*")
        if read_kernel_file(folder / "type") in _THERMAL_ZONES
    ]
    return sensors or sorted(zones)


def throttle_files(cores: Collection[int], sys: Path) -> list[Path]:
    """Counters of clock reductions for heat or power, of `cores` and of their packages."""
    folders = [sys / f"devices/system/cpu/cpu{core}/thermal_throttle" for core in cores]
    return sorted(file for folder in folders for file in folder.glob("*_count"))


def highest_temperature_c(files: Collection[Path]) -> float | None:
    values = [int(text) for file in files if (text := read_kernel_file(file)).lstrip("-").isdigit()]
    return max(values) / 1e3 if values else None


def throttle_events(files: Collection[Path]) -> int | None:
    """Sum of the counters. Every core counts its package's events, so the sum only shows whether any event occurred."""
    values = [int(text) for file in files if (text := read_kernel_file(file)).isdigit()]
    return sum(values) if values and len(values) == len(files) else None


POWERCAP = Path("class/powercap")  # below /sys
_PACKAGE = re.compile(r"^package-(\d+)")


class Rapl:
    """Energy of the processor packages `packages`, with counter wraps corrected.

    A counter wraps after 15 minutes at the earliest, so read it more often.
    """

    def __init__(self, packages: Collection[int], sys: Path) -> None:
        zones = sorted((sys / POWERCAP).glob("intel-rapl:[0-9]*"))
        self._zones = [zone for zone in zones if _package_of_zone(zone) in packages]
        self._last_uj: dict[Path, int] = {}
        self._used_uj = 0
        self.reason: str | None = None if self._zones else "there is no energy counter (RAPL) in /sys/class/powercap"

    def energy_j(self) -> float | None:
        """Joules since the first call; None, with `reason` set, if a counter can't be read."""
        if not self._zones:
            return None
        try:
            for zone in self._zones:
                self._count(zone)
        except (OSError, ValueError) as error:
            detail = error.strerror if isinstance(error, OSError) else error
            self.reason = f"the energy counter (RAPL) can't be read: {detail}; Linux lets only root read it"
            return None
        return self._used_uj / 1e6

    def _count(self, zone: Path) -> None:
        now_uj = int((zone / "energy_uj").read_text())
        used_uj = now_uj - self._last_uj.get(zone, now_uj)
        if used_uj < 0:
            used_uj += int((zone / "max_energy_range_uj").read_text())
        self._last_uj[zone] = now_uj
        self._used_uj += used_uj


def _package_of_zone(zone: Path) -> int | None:
    """The package number of a RAPL zone; None for a package's parts ("core", "dram") and for the whole board."""
    try:
        match = _PACKAGE.match((zone / "name").read_text())
    except OSError:
        return None
    return int(match[1]) if match else None


SYS = Path("/sys")
_NO_TEMPERATURE = "the kernel shows no temperature of the processor (/sys/class/hwmon, /sys/class/thermal)"
_NO_EVENTS = "the kernel counts no throttling here (cpu*/thermal_throttle); the measured clock of each run replaces it"
_NO_CLOCK = "a CPU's clock is measured after the samples of each run: see clock_hz of the run"
_NO_REASONS = "a CPU reports only a count: see throttle_events"
_NO_TIMES = "a CPU counts only how often its clock was lowered: see throttle_events"
_SHARED = "a CPU is always shared: see NOISY_NEIGHBOUR"
_NO_UTILISATION = "a CPU reports no utilisation: see the processor time in cpu of the run"


class HostSensors:
    """Sensors of the processor packages of `cores`. Values that a hypervisor hides are null."""

    energy_of, least_energy_s = "RAPL: the processor packages, all their cores, without memory", 0.0

    def __init__(self, cores: Sequence[int], sys: Path = SYS) -> None:
        self._rapl = Rapl({_package_of_core(core, sys) for core in cores}, sys)
        self._temperatures = temperature_files(sys)
        self._throttles = throttle_files(cores, sys)

    def look(self, counters: bool = True) -> SensorReading:
        return SensorReading(
            energy_j=self._rapl.energy_j() if counters else None,
            temperature_c=highest_temperature_c(self._temperatures),
            throttle_events=throttle_events(self._throttles) if counters else None,
        )

    def users(self) -> DeviceUsage:
        return DeviceUsage()

    def reasons(self) -> dict[str, str]:
        reasons = {"clocks_hz": _NO_CLOCK, "throttle_reasons": _NO_REASONS, "throttled_s": _NO_TIMES}
        reasons |= {"other_processes": _SHARED, "utilisation": _NO_UTILISATION}
        if self._rapl.reason is not None:
            reasons["energy_j"] = self._rapl.reason
        if highest_temperature_c(self._temperatures) is None:
            reasons["temperature_c"] = _NO_TEMPERATURE
        if throttle_events(self._throttles) is None:
            reasons["throttle_events"] = _NO_EVENTS
        return reasons


def _package_of_core(core: int, sys: Path) -> int:
    """The package (socket) of `core`; 0 if the kernel doesn't report it."""
    try:
        return int((sys / f"devices/system/cpu/cpu{core}/topology/physical_package_id").read_text())
    except (OSError, ValueError):
        return 0


T = TypeVar("T")

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h) that mean heat or power. A GPU that idles, has a clock set by
# a user or waits for a slower GPU of its group isn't throttled.
THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
# Counters of nvmlDeviceGetViolationStatus (nvmlPerfPolicyType_t in nvml.h): nanoseconds in which a power limit, heat or
# a limit of the board kept the clock below the requested clock. They also count between readings.
THROTTLE_COUNTERS = {0: "power cap", 1: "thermal slowdown", 3: "board limit"}
# The reasons that these counters cover. Working counters replace single readings of these bits.
COUNTED_REASONS = frozenset({"power cap", "software thermal slowdown", "hardware thermal slowdown"})
_ENERGY_OF_ALL_SLICES = "NVML counts the energy of the whole GPU, with all its slices (MIG)"
_UNSEEN = "NVML lists no process on this GPU, not even this one, because it can't see into this container"


class GpuSensors:
    """Sensors of the GPUs of one device, or of its slice. Energy and processes are summed over the GPUs;
    other figures are from the hottest, the slowest and the most throttled GPU.

    Since Volta, the energy counter changes about ten times a second, so over 10 s it is exact to 1 %. On an H100, NVML
    takes 4 ms to read it and 0.7 ms for each counter of throttling, but 1 us for a clock, a temperature or the reasons.
    """

    energy_of, least_energy_s = "NVML: the GPU with its memory and board", 10.0

    def __init__(self, nvml: Any, units: Sequence[GpuUnit], pid: int) -> None:
        self._nvml, self._units, self._pid = nvml, units, pid
        self._reasons: dict[str, str] = {"throttle_events": "NVML reports reasons, not events"}

    def look(self, counters: bool = True) -> SensorReading:
        nvml = self._nvml
        temperatures = self._each(
            "temperature_c", lambda unit: nvml.nvmlDeviceGetTemperature(unit.gpu, nvml.NVML_TEMPERATURE_GPU)
        )
        reasons = self._each("throttle_reasons", self._throttles)
        times = self._each("throttled_s", self._throttled_s) if counters else []
        return SensorReading(
            energy_j=self._energy_j() if counters else None,
            temperature_c=max(temperatures, default=None),
            clocks_hz=self._clocks_hz(),
            throttle_reasons=frozenset().union(*reasons) if reasons else None,
            throttled_s={name: max(gpu_times[name] for gpu_times in times) for name in times[0]} if times else None,
        )

    def users(self) -> DeviceUsage:
        others = self._each("other_processes", self._others)
        busy = self._each("utilisation", lambda unit: self._nvml.nvmlDeviceGetUtilizationRates(unit.handle).gpu)
        if None in others:
            self._reasons["other_processes"] = _UNSEEN
        counts = [count for count in others if count is not None]
        return DeviceUsage(
            sum(counts) if counts and len(counts) == len(others) else None, max(busy) / 100 if busy else None
        )

    def reasons(self) -> dict[str, str]:
        return dict(self._reasons)

    def _energy_j(self) -> float | None:
        if any(unit.is_slice for unit in self._units):
            self._reasons["energy_j"] = _ENERGY_OF_ALL_SLICES
            return None
        millijoules = self._each("energy_j", lambda unit: self._nvml.nvmlDeviceGetTotalEnergyConsumption(unit.gpu))
        return sum(millijoules) / 1e3 if millijoules else None

    def _clocks_hz(self) -> dict[str, float]:
        kinds = {"sm": self._nvml.NVML_CLOCK_SM, "memory": self._nvml.NVML_CLOCK_MEM}
        megahertz = {name: self._each("clocks_hz", partial(self._megahertz, kind)) for name, kind in kinds.items()}
        return {name: min(values) * 1e6 for name, values in megahertz.items() if values}

    def _megahertz(self, kind: int, unit: GpuUnit) -> int:
        return int(self._nvml.nvmlDeviceGetClockInfo(unit.gpu, kind))

    def _throttles(self, unit: GpuUnit) -> frozenset[str]:
        try:
            bits = self._nvml.nvmlDeviceGetCurrentClocksEventReasons(unit.gpu)
        except self._nvml.NVMLError:  # drivers before 535 only have the function's old name
            bits = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(unit.gpu)
        return frozenset(name for bit, name in THROTTLES.items() if bits & bit)

    def _throttled_s(self, unit: GpuUnit) -> dict[str, float]:
        status = self._nvml.nvmlDeviceGetViolationStatus
        return {name: status(unit.gpu, policy).violationTime / 1e9 for policy, name in THROTTLE_COUNTERS.items()}

    def _others(self, unit: GpuUnit) -> int | None:
        """The number of other processes. In a container, NVML may list this process by its pid on the host."""
        pids = {process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(unit.handle)}
        return len(pids - {self._pid}) if self._pid in pids else (len(pids) - 1 if pids else None)

    def _each(self, field: str, read: Callable[[GpuUnit], T]) -> list[T]:
        """The result of `read` for each GPU; empty, with a recorded reason, unless all GPUs support `read`."""
        try:
            return [read(unit) for unit in self._units]
        except self._nvml.NVMLError as error:
            self._reasons[field] = f"NVML says {error}"
            return []


# Maximum share of time for readings with the counters and, separately, for readings without them. Slow readings (NVML's
# counters take milliseconds) are therefore rare, and the device doesn't cool down between samples.
COST_SHARE = 0.0025
_STOOD_STILL = "the counters of throttling stood still although most readings showed throttling"
_ONE_READING = "the counters were read only once"


@dataclass(frozen=True)
class _TimedReading:
    """`before`: the number of samples before the reading. `counters`: whether the reading includes the counters."""

    before: int
    at_s: float
    counters: bool
    look: SensorReading


class SensorRecorder:
    """Call `look` before each sample, warm-up included, and `over` once, right after the last sample."""

    def __init__(self, source: SensorSource, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._source, self._now_s = source, now_s
        self._readings: list[_TimedReading] = []
        self._samples = 0
        self._rest_until_s = {True: -math.inf, False: -math.inf}  # whether with counters -> earliest next reading

    def look(self) -> None:
        now_s = self._now_s()
        counters = now_s >= self._rest_until_s[True]
        if counters or now_s >= self._rest_until_s[False]:
            self._readings.append(self._read(counters))
        self._samples += 1

    def over(self, warmup: int) -> Sensors:
        """Sensors over the window from the first sample after `warmup` samples until now.

        Slow counters may have no reading at the window's start. Their differences begin at the last reading before it.
        """
        last = self._read(counters=True)
        readings = [*self._readings, last]
        looks, users = [reading.look for reading in readings if reading.before >= warmup], self._source.users()
        counted = [reading for reading in readings if reading.counters]
        counted = counted[sum(reading.before <= warmup for reading in counted[1:-1]) :]
        reasons = self._source.reasons()
        joules, energy_s = _energy(counted)
        if len(counted) < 2:  # counters need two readings
            counters = ("energy_j", "throttled_s", "throttle_events")
            reasons |= {name: _ONE_READING for name in counters if name not in reasons}
        elif joules is not None and energy_s < self._source.least_energy_s:
            needed = f"{self._source.least_energy_s:g} s are needed (measure.min_s)"
            joules, reasons["energy_j"] = None, f"the counter was read over {energy_s:.1f} s; {needed}"
        throttled = _Throttling.over(looks, counted)
        if throttled.seconds is None and last.look.throttled_s is not None:
            reasons.setdefault("throttled_s", _STOOD_STILL)
        return Sensors(
            looks=len(looks),
            energy_j=joules,
            energy_s=None if joules is None else energy_s,
            energy_of=None if joules is None else self._source.energy_of,
            temperature_c=_largest(look.temperature_c for look in looks),
            clocks_hz=_medians(looks),
            throttle_reasons=throttled.reasons,
            throttled_share=throttled.share,
            throttled_s=throttled.seconds,
            throttle_events=_counted([reading.look.throttle_events for reading in counted]),
            other_processes=users.other_processes,
            utilisation=users.utilisation,
            reasons=reasons,
        )

    def _read(self, counters: bool) -> _TimedReading:
        began_s = self._now_s()
        look = self._source.look(counters)
        ended_s = self._now_s()
        self._rest_until_s[counters] = ended_s + (ended_s - began_s) / COST_SHARE
        return _TimedReading(self._samples, ended_s, counters, look)


@dataclass(frozen=True)
class _Throttling:
    """See `dyno.models.result.Sensors`: `throttle_reasons`, `throttled_share` and `throttled_s`."""

    reasons: list[str] | None
    share: float | None
    seconds: dict[str, float] | None

    @classmethod
    def over(cls, looks: Sequence[SensorReading], counted: Sequence[_TimedReading]) -> "_Throttling":
        by_look = [look.throttle_reasons for look in looks if look.throttle_reasons is not None]
        seconds, shares = _grown_s(counted), []
        if seconds is not None and not any(seconds.values()) and _share_of(by_look, COUNTED_REASONS) > 0.5:
            seconds = None  # most readings have a counted reason, so counters that didn't change don't work
        if seconds is not None:
            shares.append(min(1.0, max(seconds.values()) / (counted[-1].at_s - counted[0].at_s)))
            by_look = [reasons - COUNTED_REASONS for reasons in by_look]
        if by_look:
            shares.append(_share_of(by_look))
        grown = [name for name, grown_s in (seconds or {}).items() if grown_s > 0]
        reasons = sorted(frozenset(grown).union(*by_look)) if shares else None
        return cls(reasons, max(shares, default=None), seconds)


def _grown_s(counted: Sequence[_TimedReading]) -> dict[str, float] | None:
    """The throttled time between the first and the last reading, by reason; None without counters."""
    first, last = counted[0], counted[-1]
    if first.look.throttled_s is None or last.look.throttled_s is None or last.at_s <= first.at_s:
        return None
    before = first.look.throttled_s
    return {name: last.look.throttled_s[name] - before_s for name, before_s in before.items()}


def _share_of(by_look: Sequence[frozenset[str]], among: frozenset[str] | None = None) -> float:
    """The share of readings with any reason, or with a reason in `among`."""
    return sum(bool(reasons if among is None else reasons & among) for reasons in by_look) / max(1, len(by_look))


def _energy(counted: Sequence[_TimedReading]) -> tuple[float | None, float]:
    """(joules, seconds) between the first reading and the last."""
    first, last = counted[0], counted[-1]
    if first.look.energy_j is None or last.look.energy_j is None or len(counted) < 2:
        return None, 0.0
    return last.look.energy_j - first.look.energy_j, last.at_s - first.at_s


def _medians(looks: Sequence[SensorReading]) -> dict[str, float]:
    names = sorted({name for look in looks for name in look.clocks_hz})
    return {name: median(look.clocks_hz[name] for look in looks if name in look.clocks_hz) for name in names}


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _counted(counts: Sequence[int | None]) -> int | None:
    first, last = counts[0], counts[-1]
    return None if first is None or last is None or len(counts) < 2 else last - first


_NO_TPU_SENSORS = "Dyno reads no TPU sensors"


@contextmanager
def sensing(device: Device) -> Iterator[SensorSource]:
    """The sensors of `device`, open for the block. Never raises: a source without sensors gives the reason.

    An emulated device has the sensors of its CPU cores.
    """
    with ExitStack() as stack:
        yield _source(device, stack)


def _source(device: Device, stack: ExitStack) -> SensorSource:
    if device.driven_as == "cpu":
        return HostSensors(device.cores)
    if device.driven_as == "tpu":
        return NoSensors(_NO_TPU_SENSORS)
    try:
        nvml = stack.enter_context(nvml_session())
        gpus = units_of(nvml, device)
    except DeviceUnavailable as absent:
        return NoSensors(absent.detail)
    return GpuSensors(nvml, gpus, os.getpid())

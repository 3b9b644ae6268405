"""CPU and GPU sensors, and the recorder of their readings.

CPU readings come from recorded folders of /sys and from this machine. NVML's responses are recorded, because these
tests run without a GPU. The tests supply the recorder's time and readings.
"""

import os
import types

import pytest

from dyno.bench.devices import sensors as nvml_sensors
from dyno.bench.devices.gpu import GpuUnit
from dyno.bench.devices.sensors import (
    DeviceUsage,
    GpuSensors,
    HostSensors,
    NoSensors,
    SensorReading,
    SensorRecorder,
    sensing,
)
from dyno.bench.measure.sampling import HostClock, sample
from dyno.bench.measure.stopping_rule import StoppingRule
from dyno.models.device import Device
from tests.nvml import recorded_nvml

FIELDS = {
    *("energy_j", "temperature_c", "clocks_hz", "throttle_reasons", "throttled_s", "throttle_events"),
    *("other_processes", "utilisation"),
}


def write(sys, **files):
    for name, value in files.items():
        path = sys / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def zone(sys, number, name, energy_uj, most_uj=262143328850):
    folder = f"class/powercap/intel-rapl:{number}"
    write(sys, **{f"{folder}/name": name, f"{folder}/energy_uj": energy_uj, f"{folder}/max_energy_range_uj": most_uj})


@pytest.fixture
def sys(tmp_path):
    """Two sockets of two cores each, and a zone of the whole board, which counts both again."""
    for core, package in enumerate((0, 0, 1, 1)):
        folder = f"devices/system/cpu/cpu{core}"
        write(tmp_path, **{f"{folder}/topology/physical_package_id": package})
        write(tmp_path, **{f"{folder}/thermal_throttle/{kind}_throttle_count": 3 for kind in ("core", "package")})
    for package in (0, 1):
        zone(tmp_path, f"{package}", f"package-{package}", 1_000_000)
        zone(tmp_path, f"{package}:0", "core", 500_000)
        zone(tmp_path, f"{package}:1", "dram", 500_000)
    zone(tmp_path, "2", "psys", 5_000_000)
    monitor = "class/hwmon/hwmon3"
    write(tmp_path, **{f"{monitor}/name": "coretemp", f"{monitor}/temp1_input": 61000, f"{monitor}/temp2_input": 64500})
    write(tmp_path, **{"class/hwmon/hwmon4/name": "nvme", "class/hwmon/hwmon4/temp1_input": 99000})
    return tmp_path


def test_in_recorded_counters_the_energy_is_that_of_the_packages_that_the_cores_are_in(sys):
    one, both = HostSensors([0, 1], sys), HostSensors([1, 2], sys)
    assert (one.look().energy_j, both.look().energy_j) == (0.0, 0.0)
    zone(sys, "0", "package-0", 31_000_000)
    zone(sys, "1", "package-1", 3_500_000)
    assert (one.look().energy_j, both.look().energy_j) == (30.0, 32.5)


def test_a_recorded_counter_that_wrapped_goes_on_from_its_largest_value(sys):
    zone(sys, "0", "package-0", 99_000_000, most_uj=100_000_000)
    source = HostSensors([0], sys)
    source.look()
    zone(sys, "0", "package-0", 4_000_000, most_uj=100_000_000)
    assert source.look().energy_j == pytest.approx(5.0)


def test_a_recorded_counter_that_only_root_may_read_is_null_with_that_reason(sys):
    energy = sys / "class/powercap/intel-rapl:0/energy_uj"
    energy.unlink()
    energy.mkdir()  # unreadable for root too, which these tests may run as
    source = HostSensors([0], sys)
    assert source.look().energy_j is None
    assert "only root" in source.reasons()["energy_j"]


def test_the_recorded_temperature_is_the_processors_hottest_one(sys):
    assert HostSensors([0], sys).look().temperature_c == 64.5
    (sys / "class/hwmon/hwmon3/name").write_text("drivetemp\n")
    write(sys, **{"class/thermal/thermal_zone0/type": "x86_pkg_temp", "class/thermal/thermal_zone0/temp": 58000})
    assert HostSensors([0], sys).look().temperature_c == 58.0


def test_recorded_counters_of_throttling_are_those_of_the_devices_cores(sys):
    source, beside = HostSensors([0, 1], sys), HostSensors([2], sys)
    watch, watch_beside = SensorRecorder(source), SensorRecorder(beside)
    watch.look()
    watch_beside.look()
    write(sys, **{"devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": 5})
    assert watch.over(0).throttle_events == 2
    assert watch_beside.over(0).throttle_events == 0


def test_a_machine_without_sensors_gives_a_reason_for_each(tmp_path):
    source = HostSensors([0], tmp_path)
    look = source.look()
    assert (look.energy_j, look.temperature_c, look.throttle_events) == (None, None, None)
    assert source.reasons().keys() >= {"energy_j", "temperature_c", "throttle_events"}


def test_this_machine_reports_each_figure_or_a_reason():
    cores = sorted(os.sched_getaffinity(0))
    with sensing(Device(id="cpu:0", kind="cpu", model="x", host="h", cores=cores, memory_bytes=1)) as source:
        watch = SensorRecorder(source)
        watch.look()
        found = watch.over(0)
    for field in FIELDS:
        assert (getattr(found, field) in (None, {})) == (field in found.reasons), field


def test_a_device_without_sensors_gives_a_reason_for_each_figure():
    assert NoSensors("none").reasons().keys() == FIELDS


OWN = 4242
GPU, SECOND = GpuUnit("0", "GPU-0", 0, 0), GpuUnit("1", "GPU-1", 1, 1)
SLICE = GpuUnit("0:1", "MIG-1", handle=101, gpu=0)
STILL = {"power cap": 0.0, "thermal slowdown": 0.0, "board limit": 0.0}


def recorded(**answers):
    """NVML with one busy GPU, used only by this process."""
    quiet = {
        "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: 7_500_000,
        "nvmlDeviceGetTemperature": lambda gpu, sensor: 61 + gpu,
        "nvmlDeviceGetClockInfo": lambda gpu, kind: {1: 1980 - 30 * gpu, 2: 3201}[kind],
        "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: 0,
        "nvmlDeviceGetViolationStatus": lambda gpu, policy: violation(0),
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: running(OWN),
        "nvmlDeviceGetUtilizationRates": lambda gpu: types.SimpleNamespace(gpu=97, memory=40),
    }
    return recorded_nvml(**quiet | answers)


def violation(nanoseconds):
    return types.SimpleNamespace(referenceTime=1_700_000_000_000_000, violationTime=nanoseconds)


def running(*pids):
    return [types.SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]


def unsupported(*_):
    raise RuntimeError("Not Supported")


def test_a_recorded_gpu_reports_energy_heat_and_clocks_and_is_not_throttled():
    source = GpuSensors(recorded(), [GPU], OWN)
    clocks = {"sm": 1.98e9, "memory": 3.201e9}
    assert source.look() == SensorReading(7500.0, 61, clocks, throttle_reasons=frozenset(), throttled_s=STILL)
    assert source.users() == DeviceUsage(other_processes=0, utilisation=0.97)
    assert source.reasons().keys() == {"throttle_events"}


def test_recorded_gpus_of_one_device_add_up_and_the_hottest_and_slowest_count():
    times = {0: 2_500_000_000, 1: 4_000_000_000}
    capped = recorded(nvmlDeviceGetViolationStatus=lambda gpu, policy: violation(times[gpu] if policy == 0 else 0))
    look = GpuSensors(capped, [GPU, SECOND], OWN).look()
    assert (look.energy_j, look.temperature_c, look.clocks_hz["sm"]) == (15_000.0, 62, 1.95e9)
    assert look.throttled_s == STILL | {"power cap": 4.0}


def test_a_recorded_slice_has_the_heat_of_its_gpu_its_own_processes_and_no_energy():
    asked: list[int] = []

    def processes(handle):
        asked.append(handle)
        return running(OWN, 7)

    nvml = recorded(nvmlDeviceGetComputeRunningProcesses=processes, nvmlDeviceGetUtilizationRates=unsupported)
    source = GpuSensors(nvml, [SLICE], OWN)
    look = source.look()
    assert (look.energy_j, look.temperature_c, look.clocks_hz["sm"]) == (None, 61, 1.98e9)
    assert source.users() == DeviceUsage(other_processes=1, utilisation=None)
    assert asked == [SLICE.handle]
    assert "with all its slices" in source.reasons()["energy_j"]


def test_the_throttle_counters_match_nvml():
    import pynvml

    names = ("POWER", "THERMAL", "BOARD_LIMIT")
    assert list(nvml_sensors.THROTTLE_COUNTERS) == [getattr(pynvml, f"NVML_PERF_POLICY_{name}") for name in names]
    assert set(nvml_sensors.THROTTLES.values()) > nvml_sensors.COUNTED_REASONS


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x1 | 0x2 | 0x10 | 0x100, set()),  # idle, clocks set by a user, a slower GPU in its group, a display
        (0x4, {"power cap"}),
        (0x8 | 0x40, {"hardware slowdown", "hardware thermal slowdown"}),
        (0x20 | 0x1, {"software thermal slowdown"}),
        (0x80, {"power brake"}),
    ],
)
def test_recorded_reasons_count_where_they_mean_heat_or_power(bits, reasons):
    nvml = recorded(nvmlDeviceGetCurrentClocksEventReasons=lambda gpu: bits)
    assert GpuSensors(nvml, [GPU], OWN).look().throttle_reasons == reasons


def test_a_recorded_old_driver_reports_reasons_under_the_old_name():
    old = {"nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x40}
    nvml = recorded(nvmlDeviceGetCurrentClocksEventReasons=unsupported, **old)
    assert GpuSensors(nvml, [GPU], OWN).look().throttle_reasons == {"hardware thermal slowdown"}


def test_the_throttle_bits_match_nvml():
    import pynvml

    names = ("SwPowerCap", "HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
    bits = {getattr(pynvml, f"nvmlClocksEventReason{name}") for name in names}
    assert nvml_sensors.THROTTLES.keys() == bits


@pytest.mark.parametrize(
    ("pids", "others"),
    [((OWN,), 0), ((OWN, 7), 1), ((OWN, 7, 8), 2), ((31337,), 0), ((31337, 7), 1), ((), None)],
)
def test_recorded_other_processes_are_counted_under_any_pid_of_this_one(pids, others):
    source = GpuSensors(recorded(nvmlDeviceGetComputeRunningProcesses=lambda gpu: running(*pids)), [GPU], OWN)
    assert source.users().other_processes == others
    assert ("other_processes" in source.reasons()) == (others is None)


def test_unsupported_sensors_of_a_recorded_gpu_are_null_with_nvmls_error():
    answers = {name: unsupported for name in vars(recorded()) if name.startswith("nvmlDeviceGet")}
    old = {"nvmlDeviceGetCurrentClocksThrottleReasons": unsupported}
    source = GpuSensors(recorded(**answers, **old), [GPU], OWN)
    assert source.look() == SensorReading()
    assert source.users() == DeviceUsage()
    reasons = {field: reason for field, reason in source.reasons().items() if field != "throttle_events"}
    assert set(reasons.values()) == {"NVML says Not Supported"}
    assert reasons.keys() >= {"energy_j", "temperature_c", "clocks_hz", "throttle_reasons", "other_processes"}


@pytest.mark.parametrize("kind", ["gpu", "tpu"])
def test_sensors_that_cannot_be_opened_give_a_reason_in_every_field(kind, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    device = Device.model_validate({"id": f"{kind}:0", "kind": kind, "model": "x", "host": "h", "memory_bytes": 1})
    with sensing(device) as source:
        assert (source.look(), source.users()) == (SensorReading(), DeviceUsage())
        reasons = source.reasons()
    assert len(set(reasons.values())) == 1
    assert {"energy_j", "temperature_c", "throttle_reasons", "other_processes"} <= reasons.keys()


class Replayed:
    """Returns `looks` in order and repeats the last. Each read takes `cost_s`; otherwise time stands still."""

    energy_of, least_energy_s = "a replayed counter", 10.0

    def __init__(self, looks, cost_s=0.0):
        self._looks, self._cost_s = list(looks), cost_s
        self.now_s, self.taken = 0.0, 0

    def look(self, counters=True):
        self.taken += 1
        self.now_s += self._cost_s
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def users(self):
        return DeviceUsage(other_processes=2, utilisation=0.5)

    def reasons(self):
        return {}


def watched(source, samples, sample_s, warmup=0):
    watch = SensorRecorder(source, lambda: source.now_s)
    for _ in range(samples):
        watch.look()
        source.now_s += sample_s
    return watch.over(warmup)


def test_energy_is_counted_from_the_first_sample_after_warm_up_to_the_end_of_the_last():
    counter = [SensorReading(energy_j=joules) for joules in (100.0, 900.0, 1000.0, 1200.0, 1500.0)]
    found = watched(Replayed(counter), samples=4, sample_s=10.0, warmup=2)
    assert (found.energy_j, found.energy_s, found.energy_of) == (500.0, 20.0, "a replayed counter")


def test_a_window_too_short_for_the_counter_has_no_energy_and_a_reason_with_the_minimum():
    counter = [SensorReading(energy_j=0.0), SensorReading(energy_j=90.0)]
    found = watched(Replayed(counter), samples=1, sample_s=9.0)
    assert (found.energy_j, found.energy_s) == (None, None)
    assert found.reasons["energy_j"] == "the counter was read over 9.0 s; 10 s are needed (measure.min_s)"


def test_a_single_reading_of_the_counters_counts_nothing_and_gives_a_reason():
    counter = SensorReading(energy_j=5.0, throttle_events=3, temperature_c=50.0)
    found = watched(Replayed([counter]), samples=0, sample_s=0.1)
    assert (found.looks, found.temperature_c) == (1, 50.0)
    assert (found.energy_j, found.throttle_events) == (None, None)
    assert found.reasons.keys() == {"energy_j", "throttled_s", "throttle_events"}


def test_the_hottest_moment_the_median_clock_and_every_reason_are_recorded():
    hot = SensorReading(temperature_c=81.0, clocks_hz={"sm": 1.2e9}, throttle_reasons=frozenset({"power cap"}))
    cool = SensorReading(temperature_c=60.0, clocks_hz={"sm": 1.9e9}, throttle_reasons=frozenset())
    found = watched(Replayed([cool, hot, cool, cool]), samples=3, sample_s=0.1)
    assert (found.looks, found.temperature_c, found.clocks_hz) == (4, 81.0, {"sm": 1.9e9})
    assert (found.throttle_reasons, found.throttled_share) == (["power cap"], 0.25)
    assert (found.other_processes, found.utilisation) == (2, 0.5)


def counted(power_s, *reasons):
    return SensorReading(throttle_reasons=frozenset(reasons), throttled_s=STILL | {"power cap": power_s})


@pytest.mark.parametrize(
    ("looks", "reasons", "share", "power_s"),
    [
        # Looks that happen to miss a power cap, which the counter saw for 3 of 10 seconds.
        ([counted(100.0), counted(101.0), counted(103.0)], ["power cap"], 0.3, 3.0),
        # A look that happens to catch a power cap of 20 ms.
        ([counted(100.0), counted(100.0, "power cap"), counted(100.02)], ["power cap"], 0.002, 0.02),
        # What no counter covers counts by looks.
        ([counted(5.0), counted(5.0, "power brake"), counted(5.0)], ["power brake"], 1 / 3, 0.0),
        # Time from before the window.
        ([counted(1e6), counted(1e6), counted(1e6)], [], 0.0, 0.0),
    ],
)
def test_the_counted_time_of_throttling_over_the_window_outweighs_single_looks(looks, reasons, share, power_s):
    found = watched(Replayed(looks), samples=2, sample_s=5.0)
    assert found.throttle_reasons == reasons
    assert found.throttled_share == pytest.approx(share)
    assert found.throttled_s == pytest.approx(STILL | {"power cap": power_s})


def test_counters_that_stand_still_while_most_looks_read_their_reason_are_not_believed():
    found = watched(Replayed([counted(0.0, "power cap")]), samples=3, sample_s=5.0)
    assert (found.throttle_reasons, found.throttled_share, found.throttled_s) == (["power cap"], 1.0, None)
    assert "stood still" in found.reasons["throttled_s"]


def test_throttling_between_two_slow_readings_of_the_counters_is_not_lost():
    """No reading of the counters at the start of the window: they count from the one before it."""
    source = Replayed([counted(7.0, "power cap"), counted(7.0, "power cap"), counted(8.0)], cost_s=0.01)
    found = watched(source, samples=3, sample_s=0.5, warmup=1)
    assert found.throttle_reasons == ["power cap"]
    assert found.throttled_s == STILL | {"power cap": 1.0}


def test_readings_during_warm_up_do_not_count():
    looks = [
        SensorReading(temperature_c=90.0, throttle_events=1),
        *(SensorReading(temperature_c=50.0, throttle_events=4),) * 3,
    ]
    found = watched(Replayed(looks), samples=3, sample_s=0.1, warmup=1)
    assert (found.looks, found.temperature_c, found.throttle_events) == (3, 50.0, 0)


def test_a_device_without_readings_leaves_every_figure_null():
    found = watched(Replayed([SensorReading()]), samples=3, sample_s=20.0)
    silent = found.model_dump(exclude={"looks", "reasons", "other_processes", "utilisation"})
    assert {str(value) for value in silent.values()} == {"None", "{}"}


@pytest.mark.parametrize(("cost_s", "looks"), [(0.0001, 101), (0.002, 27)])
def test_a_slow_sensor_takes_at_most_half_a_percent_of_the_time(cost_s, looks):
    source = Replayed([SensorReading()], cost_s)
    watched(source, samples=100, sample_s=0.11)
    assert source.taken == looks


class SlowCounters(Replayed):
    """As a real H100: the counters take 6 ms, the other sensors nothing. The first clock is that of an idle GPU."""

    least_energy_s = 1.0

    def look(self, counters=True):
        self.now_s += 0.006 if counters else 0.0
        self.taken += 1
        clock_hz = 1.2e9 if self.taken == 1 else 1.4e9 + 1e6 * self.taken
        return SensorReading(energy_j=self.now_s if counters else None, clocks_hz={"sm": clock_hz})


def test_slow_counters_cover_the_window_and_leave_the_clock_to_be_read_before_each_sample():
    found = watched(SlowCounters([]), samples=40, sample_s=0.05, warmup=1)
    assert found.looks == 40
    assert found.clocks_hz == {"sm": pytest.approx(1.4215e9)}
    assert found.energy_s == pytest.approx(2.0, abs=0.01)
    assert found.energy_j == pytest.approx(found.energy_s)


def test_recorded_counters_are_read_only_where_they_are_asked_for():
    nvml = recorded(nvmlDeviceGetTotalEnergyConsumption=unsupported, nvmlDeviceGetViolationStatus=unsupported)
    source = GpuSensors(nvml, [GPU], OWN)
    look = source.look(counters=False)
    assert (look.energy_j, look.throttled_s, look.clocks_hz["sm"]) == (None, None, 1.98e9)
    assert source.reasons().keys() == {"throttle_events"}


def test_sensors_are_read_right_before_each_sample_and_warm_up_is_counted_the_same_way():
    events: list[str] = []
    rule = StoppingRule(min_samples=10, min_s=0.0, max_s=5.0, target_rel_ci=10.0, min_sample_s=1e-4)

    def execute(count):
        events.append("sample")
        sum(range(2000 * count))

    def look():
        events.append("look")

    def ignore(*_):
        return

    taken = sample(execute, rule, HostClock(), ignore, look)
    assert events == ["look", "sample"] * (len(taken.warmup) + len(taken.samples))

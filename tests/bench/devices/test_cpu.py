"""Core lists, cgroup limits, processor identity and topology, from recorded trees and this host."""

import os
import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.bench.devices.cpu import (
    Cache,
    CgroupLimits,
    cgroup_limits,
    core_to_reserve,
    data_caches,
    format_cpulist,
    parse_cpulist,
    processor,
    read_topology,
)
from dyno.models.spec import DEVICE_ID


@pytest.mark.parametrize(
    ("text", "cores"), [("0", [0]), ("0-0", [0]), ("0-2,5", [0, 1, 2, 5]), ("3,1,1-2\n", [1, 2, 3])]
)
def test_a_cpulist_yields_its_cores_sorted_without_duplicates(text, cores):
    assert parse_cpulist(text) == cores


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "2-1", "0,,1", "0 1", "1000000"])
def test_an_invalid_cpulist_is_refused(text):
    with pytest.raises(ValueError, match=r"not a list of cores|reversed"):
        parse_cpulist(text)


@pytest.mark.parametrize(("cores", "text"), [([0], "0-0"), ([1, 0], "0-1"), ([0, 1, 2, 4], "0-2,4"), ([1, 3], "1,3")])
def test_cores_are_written_as_short_as_possible(cores, text):
    assert format_cpulist(cores) == text


@pytest.mark.parametrize(
    ("cores", "named", "reserved"),
    [
        (range(3), (), set()),
        (range(4), (), {0}),
        (range(8, 16), (), {8}),
        (range(4), (0, 1), {2}),
        (range(4), range(4), set()),
    ],
)
def test_the_first_of_four_or_more_cores_is_reserved_unless_a_device_names_it(tmp_path, cores, named, reserved):
    assert core_to_reserve(cores, named, tmp_path) == reserved


def test_a_core_is_reserved_with_its_hyperthreads(tmp_path):
    for core in range(8):
        write(tmp_path, {f"cpu{core}/topology/thread_siblings_list": f"{core % 4},{core % 4 + 4}"})
    assert core_to_reserve(range(8), (), tmp_path) == {0, 4}
    assert core_to_reserve(range(8), (4,), tmp_path) == {1, 5}
    assert core_to_reserve(range(6), (), tmp_path) == {0, 4}
    assert core_to_reserve([1, 2, 3, 4], (), tmp_path) == {1}  # this process may not use its other thread


@given(st.sets(st.integers(0, 99999), min_size=1))
def test_every_set_of_cores_survives_writing_and_reading_and_fits_in_a_device_id(cores):
    text = format_cpulist(cores)
    assert parse_cpulist(text) == sorted(cores)
    assert DEVICE_ID.match(f"cpu:{text}")


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def test_version_2_takes_the_tightest_limit_of_the_group_and_its_ancestors(tmp_path):
    mount = write(
        tmp_path / "cgroup",
        {
            "cpu.max": "max 100000",
            "job/cpu.max": "150000 100000",
            "job/memory.max": "1073741824",
            "job/inner/cpu.max": "max 100000",
            "job/inner/memory.max": "max",
        },
    )
    write(tmp_path, {"membership": "0::/job/inner"})
    assert cgroup_limits(mount, tmp_path / "membership") == CgroupLimits(1.5, 2**30)


def test_version_1_reads_quota_period_and_bytes(tmp_path):
    mount = write(
        tmp_path / "cgroup",
        {
            "cpu,cpuacct/box/cpu.cfs_quota_us": "50000",
            "cpu,cpuacct/box/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "memory/box/memory.limit_in_bytes": "536870912",
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    write(tmp_path, {"membership": "4:memory:/box\n2:cpu,cpuacct:/box"})
    assert cgroup_limits(mount, tmp_path / "membership") == CgroupLimits(0.5, 2**29)


def test_without_cgroup_files_or_membership_there_are_no_limits(tmp_path):
    assert cgroup_limits(tmp_path, tmp_path / "none") == CgroupLimits(None, None)


def test_the_limits_of_this_machine_are_read_without_an_error():
    limits = cgroup_limits()
    assert limits.cpu_cores is None or limits.cpu_cores > 0
    assert limits.memory_bytes is None or limits.memory_bytes > 0


EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1
flags\t\t: fpu sse4_2 avx2 fma avx512f avx512_bf16 unheard_of

processor\t: 1
vendor_id\t: Other
"""
GRAVITON = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd asimdhp asimddp sve bf16 i8mm
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1
"""
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n"


def named(tmp_path, text):
    (tmp_path / "cpuinfo").write_text(text)
    return processor(tmp_path / "cpuinfo")


def test_x86_is_identified_by_vendor_family_and_model_not_by_its_marketing_name(tmp_path):
    found = named(tmp_path, EPYC)
    assert found.model == "AuthenticAMD family 25 model 17 stepping 1"
    assert (found.vendor, found.family, found.number) == ("AuthenticAMD", 25, 17)


def test_only_instruction_sets_that_matter_for_matrices_are_kept(tmp_path):
    assert named(tmp_path, EPYC).isa == ("sse4_2", "avx2", "fma", "avx512f", "avx512_bf16")


def test_arm_is_identified_by_implementer_and_part(tmp_path):
    found = named(tmp_path, GRAVITON)
    assert found.model == "Arm implementer 0x41 part 0xd40 variant 0x1 revision 1"
    assert found.family is None
    assert "bf16" in found.isa


@pytest.mark.parametrize(
    ("text", "model"), [(POWER, "POWER9, altivec supported"), ("uarch : sifive,u74-mc", "sifive,u74-mc")]
)
def test_other_processors_are_identified_by_the_available_fields(tmp_path, text, model):
    assert named(tmp_path, text).model == model


def test_without_cpuinfo_the_model_is_the_machine_type(tmp_path):
    assert processor(tmp_path / "none").model


CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
model name\t: Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz
stepping\t: 6
cpu MHz\t\t: 3400.125
flags\t\t: fpu sse4_2 avx2 fma avx512f hypervisor
"""
MEMINFO = "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\nSwapTotal:       1000000 kB\n"


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _cache(folder, index, level, kind, size, shared):
    facts = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared, "coherency_line_size": "64"}
    for name, text in {**facts, "ways_of_associativity": "8"}.items():
        _write(folder / f"index{index}" / name, text)


@pytest.fixture
def recorded(tmp_path):
    """Two sockets of two cores of two threads: processors 0-3 on socket 0 (0 and 2 on one core), 4-7 on socket 1."""
    cpu = tmp_path / "sys/devices/system/cpu"
    _write(tmp_path / "proc/cpuinfo", CPUINFO)
    _write(tmp_path / "proc/meminfo", MEMINFO)
    _write(cpu / "online", "0-7")
    _write(cpu / "cpu0/cpufreq/cpuinfo_min_freq", "800000")
    _write(cpu / "cpu0/cpufreq/cpuinfo_max_freq", "3400000")
    for number in range(8):
        first = number // 4 * 4
        siblings = f"{number % 2 + first},{number % 2 + first + 2}"
        _write(cpu / f"cpu{number}/topology/physical_package_id", str(number // 4))
        _write(cpu / f"cpu{number}/topology/thread_siblings_list", siblings)
        caches = cpu / f"cpu{number}/cache"
        _cache(caches, 0, 1, "Data", "48K", siblings)
        _cache(caches, 1, 1, "Instruction", "32K", siblings)
        _cache(caches, 2, 2, "Unified", "1280K", siblings)
        _cache(caches, 3, 3, "Unified", "60M", f"{first}-{first + 3}")
    for node in (0, 1):
        _write(tmp_path / f"sys/devices/system/node/node{node}/cpulist", f"{4 * node}-{4 * node + 3}")
    return tmp_path


def test_sockets_cores_and_threads_are_distinguished(recorded):
    found = read_topology("x86_64", recorded)
    assert (found.sockets, found.cores, found.threads, found.processors) == (2, 4, 8, "0-7")
    assert found.nodes == {"node0": "0-3", "node1": "4-7"}


def test_a_cache_shared_by_processors_counts_once(recorded):
    data, instruction, second, third = read_topology("x86_64", recorded).caches
    assert data == Cache(1, "data", 48 << 10, 4, 64, 8)
    assert (instruction.name, instruction.count) == ("L1i", 4)
    assert (second.name, second.each_bytes, second.count) == ("L2", 1280 << 10, 4)
    assert (third.name, third.each_bytes, third.count) == ("L3", 60 << 20, 2)


def test_data_caches_are_those_of_the_cores_together(recorded):
    """Processors 0 and 2 are hyperthreads of one core, and 4 is on the other socket."""
    cpu = recorded / "sys/devices/system/cpu"
    assert data_caches([0, 2], cpu) == {"L1d": 48 << 10, "L2": 1280 << 10, "L3": 60 << 20}
    assert data_caches([0, 4], cpu) == {"L1d": 96 << 10, "L2": 2560 << 10, "L3": 120 << 20}


def test_clocks_and_memory_are_in_hertz_and_bytes(recorded):
    found = read_topology("x86_64", recorded)
    assert (found.shown_hz, found.least_hz, found.most_hz) == (3400.125e6, 800e6, 3.4e9)
    assert (found.memory_bytes, found.available_bytes) == (16_000_000 * 1024, 8_000_000 * 1024)
    assert found.swap_bytes == 1_000_000 * 1024
    assert found.virtual
    assert found.marketing_name == "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz"


def test_hidden_facts_are_null_or_empty(tmp_path):
    _write(tmp_path / "proc/meminfo", "MemTotal: 1024 kB")
    _write(tmp_path / "proc/cpuinfo", "processor : 0\n\nprocessor : 1")
    found = read_topology("aarch64", tmp_path)
    assert (found.threads, found.processors, found.caches, found.nodes) == (2, "0-1", (), {})
    assert (found.shown_hz, found.most_hz, found.marketing_name, found.virtual) == (None, None, None, False)


def test_the_topology_of_this_machine_matches_python_s_figures():
    found = read_topology(platform.machine())
    assert found.threads >= len(os.sched_getaffinity(0))
    assert 1 <= found.sockets <= found.cores <= found.threads
    assert found.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

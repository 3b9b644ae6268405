"""The same facts from a recorded machine with two sockets, and from this one."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from dyno.devices.topology import Cache, topology

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


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _cache(folder: Path, index: int, level: int, kind: str, size: str, shared: str) -> None:
    facts = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared, "coherency_line_size": "64"}
    for name, text in {**facts, "ways_of_associativity": "8"}.items():
        _write(folder / f"index{index}" / name, text)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
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


def test_sockets_cores_and_threads_are_told_apart(recorded: Path) -> None:
    found = topology("x86_64", recorded)
    assert (found.sockets, found.cores, found.threads, found.processors) == (2, 4, 8, "0-7")
    assert found.nodes == {"node0": "0-3", "node1": "4-7"}


def test_each_cache_counts_once_however_many_processors_share_it(recorded: Path) -> None:
    data, instruction, second, third = topology("x86_64", recorded).caches
    assert data == Cache(1, "data", 48 << 10, 4, 64, 8)
    assert (instruction.name, instruction.count) == ("L1i", 4)
    assert (second.name, second.each_bytes, second.count) == ("L2", 1280 << 10, 4)
    assert (third.name, third.each_bytes, third.count) == ("L3", 60 << 20, 2)


def test_clocks_and_memory_are_in_hertz_and_bytes(recorded: Path) -> None:
    found = topology("x86_64", recorded)
    assert (found.shown_hz, found.least_hz, found.most_hz) == (3400.125e6, 800e6, 3.4e9)
    assert (found.memory_bytes, found.available_bytes) == (16_000_000 * 1024, 8_000_000 * 1024)
    assert found.swap_bytes == 1_000_000 * 1024
    assert found.virtual
    assert found.marketing_name == "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz"


def test_what_a_machine_hides_is_null_or_empty(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemTotal: 1024 kB")
    _write(tmp_path / "proc/cpuinfo", "processor : 0\n\nprocessor : 1")
    found = topology("aarch64", tmp_path)
    assert (found.threads, found.processors, found.caches, found.nodes) == (2, "0-1", (), {})
    assert (found.shown_hz, found.most_hz, found.marketing_name, found.virtual) == (None, None, None, False)


def test_this_machine_has_what_python_says_it_has() -> None:
    found = topology(platform.machine())
    assert found.threads >= len(os.sched_getaffinity(0))
    assert 1 <= found.sockets <= found.cores <= found.threads
    assert found.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

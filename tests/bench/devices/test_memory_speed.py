"""The memory bandwidth of this machine's cores."""

import os
import threading

from dyno.bench.devices import memory_speed
from dyno.bench.devices.cpu import streamed_bytes

CORES = sorted(os.sched_getaffinity(0))
MIB = 1 << 20


def test_the_bandwidth_is_plausible():
    found = memory_speed.measure_memory_bandwidth(CORES, 16 * MIB)
    assert (found.unit, found.provenance) == ("bytes/s", "measured here")
    assert 1e8 < found.value < 1e13


def test_measuring_leaves_the_caller_on_its_cores():
    memory_speed.measure_memory_bandwidth(CORES[:1], MIB)
    assert sorted(os.sched_getaffinity(0)) == CORES


def test_a_late_core_gives_a_reason(monkeypatch):
    monkeypatch.setattr(memory_speed, "_PATIENCE_S", 0.001)
    pinned, late = os.sched_setaffinity, threading.Event()
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda pid, cores: late.wait(0.1) if cores == {-1} else pinned(pid, cores)
    )
    found = memory_speed.measure_memory_bandwidth([CORES[0], -1], MIB)
    assert (found.value, found.reason) == (None, "the cores were too busy to be measured together")


def test_a_missing_core_and_missing_memory_give_a_reason():
    assert "Invalid argument" in memory_speed.measure_memory_bandwidth([CORES[0], 4096], MIB).reason
    assert "no memory" in memory_speed.measure_memory_bandwidth(CORES, 1 << 60).reason


def test_an_array_is_larger_than_the_caches_and_fits_in_the_memory():
    assert streamed_bytes(32 * MIB, 64 << 30) == 128 * MIB
    assert streamed_bytes(None, 64 << 30) == 64 * MIB
    assert streamed_bytes(480 * MIB, 16 << 30) == 1024 * MIB

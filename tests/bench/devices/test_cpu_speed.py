"""The measured clock and peak of the cores that run these tests."""

import hashlib
import mmap
import os
import platform
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dyno.bench.devices import cpu_speed
from dyno.bench.devices.cpu import Processor, processor
from dyno.bench.devices.cpu_speed import (
    CLOCK,
    FMA_AVX2,
    FMA_AVX512,
    KNOWN_CORES,
    LoopUnavailable,
    best_rates_per_s,
    clocks_hz,
    flop_per_cycle,
    fma_rate_flop_per_s,
    load_loop,
    measure_clock_hz,
    measure_cpu_peaks,
)

HOG = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print("on", flush=True)
while True:
    pass
"""
# In a separate process with one thread: its processor time excludes the work of other processes.
MULTIPLY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
import time
import numpy as np
side = 768
matrix = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
times = []
for _ in range(5):
    start_s = time.process_time()
    matrix @ matrix
    times.append(time.process_time() - start_s)
print(2 * side**3 / min(times))
"""
CORES = sorted(os.sched_getaffinity(0))[:2]
FACTS = processor()
alone, verify = pytest.mark.alone, pytest.mark.verify
x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the loops are x86-64 machine code")
# sha256 of the code that GNU as 2.40 makes of the source in the comments
ASSEMBLED = {"clock": "96b80b55f306bece", "avx2": "fb5b83fcc717be26", "avx512": "57a3e55cf15f8ed1"}
avx2 = pytest.mark.skipif(not {"avx2", "fma"} <= set(FACTS.isa), reason="no AVX2 multiply-add here")


def core(vendor, family, number, *isa):
    return Processor("x", "x", vendor, family, number, isa)


@x86_64
def test_the_clock_is_plausible_for_a_modern_processor():
    hz = measure_clock_hz(CORES[0])
    assert 0.5e9 < hz < 7e9


@alone
@x86_64
def test_cores_measured_together_and_alone_agree_within_the_effect_of_turbo_and_wide_vectors():
    alone, together = clocks_hz(CORES[:1]), clocks_hz(CORES)
    assert len(together) == len(CORES)
    assert 0.5 < together[0] / alone[0] < 2


@alone
@verify
@x86_64
@avx2
def test_a_busy_process_on_the_core_does_not_lower_its_peak():
    core_alone = fma_rate_flop_per_s(CORES[:1], FACTS)
    with subprocess.Popen([sys.executable, "-P", "-c", HOG, str(CORES[0])], stdout=subprocess.PIPE) as hog:
        try:
            assert hog.stdout.readline() == b"on\n"
            beside = fma_rate_flop_per_s(CORES[:1], FACTS)
        finally:
            hog.kill()
    assert beside > 0.75 * core_alone


@x86_64
def test_measuring_leaves_the_caller_on_its_cores():
    before = os.sched_getaffinity(0)
    measure_clock_hz(CORES[-1])
    assert os.sched_getaffinity(0) == before


@alone
@x86_64
@avx2
def test_the_rate_of_multiply_adds_is_within_the_limits_of_pipes_and_clock():
    """At most two 512-bit pipes (64 FLOP per cycle), at least one 128-bit pipe (8), whatever the vectors' clock."""
    peak = measure_cpu_peaks(CORES)["float32"]
    per_cycle = peak.value / sum(clocks_hz(CORES))
    assert 4 < per_cycle < 80
    assert peak.provenance in ("measured here", "measured clock")


@alone
@verify
@x86_64
@avx2
def test_the_peak_is_above_the_rate_of_numpy_products():
    peak = measure_cpu_peaks(CORES[:1])["float32"].value
    words = [sys.executable, "-P", "-c", MULTIPLY, str(CORES[0])]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    reached = subprocess.run(words, env=environment, check=True, capture_output=True, timeout=60).stdout
    assert 0.05 * peak < float(reached) < 1.05 * peak


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_an_unknown_peak_is_null_with_a_reason(dtype):
    peak = measure_cpu_peaks(CORES[:1])[dtype]
    assert peak.value is None
    assert peak.reason


def test_another_architecture_gets_nulls_with_a_reason(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert measure_clock_hz(CORES[0]) is None
    if {"avx2", "fma"} <= set(FACTS.isa):
        assert "aarch64" in (measure_cpu_peaks(CORES[:1])["float32"].reason or "")


def test_forbidden_executable_memory_gives_a_reason_instead_of_a_crash(monkeypatch):
    monkeypatch.setattr(mmap, "PROT_EXEC", 0x40000000)  # an invalid protection flag: EINVAL
    with pytest.raises(LoopUnavailable, match=r"no executable memory|only on x86-64"):
        load_loop(CLOCK)


@x86_64
@avx2
def test_cores_that_do_not_start_together_give_a_reason_instead_of_a_crash(monkeypatch):
    monkeypatch.setattr(cpu_speed, "_PATIENCE_S", 0.0)
    peak = measure_cpu_peaks([CORES[0], CORES[0]])["float32"]
    assert peak.value is None
    assert peak.reason == "the cores were too busy to be measured together"


def test_an_error_on_one_core_is_raised_and_leaves_no_thread_waiting():
    with pytest.raises(OSError, match="Invalid argument"):
        best_rates_per_s(lambda count: None, [CORES[0], 100_000])


def test_best_rates_of_different_rounds_are_not_added_up():
    """Each core is ten times as fast in every other round, so the two cores are never fast together."""
    here, rounds = threading.local(), 4
    lock, places = threading.Lock(), iter(range(2))

    def spin(iterations):
        if not hasattr(here, "calls"):
            with lock:
                here.calls, here.place = 0, next(places)
        burst = here.calls - 2  # the first two calls find how many iterations make a burst
        here.calls += 1
        fast = burst >= 0 and burst % 2 == here.place
        end_ns = time.thread_time_ns() + (1_000_000 if fast else 10_000_000)
        while time.thread_time_ns() < end_ns:
            pass

    rates = best_rates_per_s(spin, [CORES[0], CORES[0]], rounds)
    assert max(rates) > 5 * min(rates)


@pytest.mark.parametrize(
    ("rates", "bursts", "highest"),
    [
        ([3.0] * 40, 9, 3.0),  # steady at once
        ([1.0, 2.0, 2.9, 3.0, 2.0, 3.0] + [2.99] * 40, 12, 3.0),  # rising, then disturbed
        ([1.0 + 0.1 * place for place in range(60)], 40, 4.9),  # rising to the end
    ],
)
def test_the_clock_is_measured_until_it_rises_no_more(monkeypatch, rates, bursts, highest):
    """The bursts' durations are given: a rate of 1 makes an iteration a second."""
    made: list[float] = []

    def burst_s(loop, iterations):
        made.append(rates[len(made)])
        return iterations / made[-1]

    monkeypatch.setattr(cpu_speed, "_iterations_per_burst", lambda loop, seconds: 1000)
    monkeypatch.setattr(cpu_speed, "_duration_s", burst_s)
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(cpu_speed._highest_rate_per_s, lambda count: None, CORES[0]).result()
    assert found == pytest.approx(highest)
    assert len(made) == bursts


def test_the_loops_match_the_assembler_output():
    digests = {code.name: hashlib.sha256(code.code).hexdigest()[:16] for code in (CLOCK, FMA_AVX2, FMA_AVX512)}
    assert digests == ASSEMBLED


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (core("GenuineIntel", 6, 63, "fma", "avx2"), 32),
        (core("GenuineIntel", 6, 106, "fma", "avx2", "avx512f"), 64),
        (core("GenuineIntel", 6, 106, "fma", "avx2"), 32),  # a hypervisor that hides AVX-512
        (core("GenuineIntel", 6, 85, "fma", "avx2", "avx512f"), None),  # one or two pipes under one number
        (core("AuthenticAMD", 23, 1, "fma", "avx2"), 16),
        (core("AuthenticAMD", 25, 1, "fma", "avx2"), 32),
        (core("AuthenticAMD", 25, 17, "fma", "avx2", "avx512f"), 32),
        (core("AuthenticAMD", 26, 2, "fma", "avx2", "avx512f"), 64),
        (core("AuthenticAMD", 26, 0x24, "fma", "avx2", "avx512f"), None),
        (core("0x41", 8, 1), None),
    ],
)
def test_only_known_cores_have_a_figure_per_cycle(facts, expected):
    assert flop_per_cycle(facts) == expected


def test_no_core_is_listed_twice_and_each_has_a_source():
    seen: set[tuple[str, int, int]] = set()
    for known in KNOWN_CORES:
        assert known.source
        for low, high in known.models:
            numbers = {(known.vendor, known.family, number) for number in range(low, high + 1)}
            assert not numbers & seen
            seen |= numbers

"""Measure the real clock and the peak FLOP/s of CPU cores.

Only machine-code loops of a known length in clock cycles can measure a core's real clock. `/proc/cpuinfo` has the value
that a hypervisor reports (2.60 GHz instead of the real 3.66). Loops in Python or NumPy wait for memory, calls and the
interpreter. The loops are for x86-64 with the System V calling convention: the iteration count is in rdi, and all
vector registers may be overwritten. GNU as 2.40 assembles the source in the comments to these bytes.

The table of known cores lists float32 operations per cycle: vector width x pipes x 2 (a multiply-add counts as two).
It omits hybrids, whose cores differ, and Intel family 6 model 85, because Skylake-SP and Cascade Lake have one or two
512-bit pipes under this number.

Measuring the peaks keeps all cores busy for 0.2 s. Do it in a short-lived child process while no benchmark runs.
"""

import ctypes
import mmap
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dyno.bench.devices.cpu import Processor, physical_cores, processor
from dyno.models.device import PeakFigure

MachineLoop = Callable[[int], object]  # takes the number of iterations; ctypes releases the GIL during the call
CHAINS = 12  # independent multiply-adds: two pipes with a latency of 5 (Haswell) or 4 cycles need 10 or 8


@dataclass(frozen=True)
class MachineCode:
    """`amount`: the cycles (clock loop) or floating-point operations (other loops) of one iteration."""

    name: str
    flag: str | None  # the required ISA flag
    amount: int
    code: bytes


def _hex(*parts: str) -> bytes:
    return bytes.fromhex(" ".join(parts))


# Sixteen dependent additions take one cycle each on every x86-64 core. They add a register to a register, because
# Golden Cove and later execute additions of small constants during register renaming, in zero cycles.
CLOCK = MachineCode(
    "clock",
    None,
    16,
    _hex(
        "31c0",  # xor eax, eax
        "b901000000",  # mov ecx, 1
        *["4801c8"] * 16,  # 1: add rax, rcx
        "48ffcf",  # dec rdi
        "75cb",  # jnz 1b
        "c3",  # ret
    ),
)

# Multiply-adds of 1.0, in registers only: acc = 1 x 1 + acc stays finite because it stops growing at 2**24.
FMA_AVX2 = MachineCode(
    "avx2",
    "avx2",
    CHAINS * 8 * 2,
    _hex(
        "c4410576ff",  # vpcmpeqd ymm15, ymm15, ymm15
        "c4c10572d719",  # vpsrld ymm15, ymm15, 25
        "c4c10572f717",  # vpslld ymm15, ymm15, 23: 0x3f800000 is 1.0
        *(f"c57c29{0xF8 + i:02x}" for i in range(8)),  # vmovaps ymm0..7, ymm15
        *(f"c4417c28{0xC7 + 8 * i:02x}" for i in range(4)),  # vmovaps ymm8..11, ymm15
        *(f"c4c205b8{0xC7 + 8 * i:02x}" for i in range(8)),  # 1: vfmadd231ps ymm0..7, ymm15, ymm15
        *(f"c44205b8{0xC7 + 8 * i:02x}" for i in range(4)),  # vfmadd231ps ymm8..11, ymm15, ymm15
        "48ffcf",  # dec rdi
        "75bf",  # jnz 1b
        "c5f877",  # vzeroupper
        "c3",  # ret
    ),
)
FMA_AVX512 = MachineCode(
    "avx512",
    "avx512f",
    CHAINS * 16 * 2,
    _hex(
        "6203054025ffff",  # vpternlogd zmm31, zmm31, zmm31, 0xff
        "6291054072d719",  # vpsrld zmm31, zmm31, 25
        "6291054072f717",  # vpslld zmm31, zmm31, 23
        *(f"62917c4828{0xC7 + 8 * i:02x}" for i in range(8)),  # vmovaps zmm0..7, zmm31
        *(f"62117c4828{0xC7 + 8 * i:02x}" for i in range(4)),  # vmovaps zmm8..11, zmm31
        *(f"62920540b8{0xC7 + 8 * i:02x}" for i in range(8)),  # 1: vfmadd231ps zmm0..7, zmm31, zmm31
        *(f"62120540b8{0xC7 + 8 * i:02x}" for i in range(4)),  # vfmadd231ps zmm8..11, zmm31, zmm31
        "48ffcf",  # dec rdi
        "75b3",  # jnz 1b
        "c5f877",  # vzeroupper
        "c3",  # ret
    ),
)


class LoopUnavailable(Exception):
    """This host can't run the loops; the message says why. Users see a null and a reason."""


def load_loop(code: MachineCode) -> MachineLoop:
    """`code` as a function. Raises LoopUnavailable except on x86-64, or if the system forbids new executable memory.

    The caller must check that the core has the ISA flag `code.flag`: an unsupported instruction ends the process.
    """
    if platform.machine() not in ("x86_64", "AMD64") or os.name != "posix":
        raise LoopUnavailable(f"the clock is measured only on x86-64; this is {platform.machine()}")
    page = mmap.mmap(-1, mmap.PAGESIZE)
    page.write(code.code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise LoopUnavailable(f"no executable memory: mprotect failed with {os.strerror(ctypes.get_errno())}")
    return _LoadedLoop(page, ctypes.CFUNCTYPE(None, ctypes.c_uint64)(address))


@dataclass(frozen=True)
class _LoadedLoop:
    """A function that keeps its memory page alive."""

    page: mmap.mmap
    function: Callable[[int], object]

    def __call__(self, iterations: int) -> object:
        return self.function(iterations)


BURST_S = 0.004  # long compared with a clock reading and a thread's wake-up (0.05 ms), short compared with a time slice
ROUNDS = 10  # the first few rounds raise the clock; another process rarely disturbs all later rounds
_PROBE_ITERATIONS = 100_000
_PATIENCE_S = 10.0


def best_rates_per_s(loop: MachineLoop, cores: Sequence[int], rounds: int = ROUNDS) -> list[float]:
    """Iterations per second of each core, with all cores running at once, in the round with the highest sum.

    It uses the best round, not the mean, because disturbances can only slow down a loop of known length. All rates come
    from one round: cores that boost in turns never reach the sum of their best rates together. The measurement takes
    (rounds + 2) x 4 ms on an idle machine with any number of cores. With a busy process on each core it takes longer,
    and the rates agree within 2 %.
    """
    barrier = threading.Barrier(len(cores), timeout=_PATIENCE_S)
    rates = [[0.0] * len(cores) for _ in range(rounds)]
    failures: list[BaseException] = []

    def work(position: int, core: int) -> None:
        try:
            os.sched_setaffinity(0, {core})  # pins only this thread
            iterations = _iterations_per_burst(loop)
            for of_round in rates:
                barrier.wait()
                of_round[position] = iterations / _duration_s(loop, iterations)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=at, daemon=True) for at in enumerate(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise next((error for error in failures if not isinstance(error, threading.BrokenBarrierError)), failures[0])
    return max(rates, key=sum)


def _iterations_per_burst(loop: MachineLoop, burst_s: float = BURST_S) -> int:
    loop(_PROBE_ITERATIONS)
    return max(1, int(_PROBE_ITERATIONS * burst_s / _duration_s(loop, _PROBE_ITERATIONS)))


def _duration_s(loop: MachineLoop, iterations: int) -> float:
    """The thread's processor time: with another busy process, the wall clock would give half the rate in all bursts."""
    start_ns = time.thread_time_ns()
    loop(iterations)
    return (time.thread_time_ns() - start_ns) / 1e9


CLOCK_BURST_S = 0.001  # reading the clock takes 0.3 us, so a burst is exact to 0.1 %
_STEADY_BURSTS = 8  # about 10 ms: longer than a governor's delay, or an interruption by another process
_MOST_BURSTS = 40
# A burst is faster only if it exceeds the best burst by this share, a sixth of the scatter of whole measurements.
_CLOCK_RESOLUTION = 0.002


def measure_clock_hz(core: int) -> float | None:
    """The highest clock of `core` under light load, in cycles per second; None if it can't be measured.

    The result is the best burst of 1 ms. The loop ends when eight bursts in a row don't exceed the best by 0.2 %:
    after 10 ms as a rule, 40 ms at most. The loop runs in its own thread, so the caller's affinity doesn't change.
    """
    try:
        with ThreadPoolExecutor(1) as thread:
            return CLOCK.amount * thread.submit(_highest_rate_per_s, load_loop(CLOCK), core).result()
    except (LoopUnavailable, OSError):
        return None


def _highest_rate_per_s(loop: MachineLoop, core: int) -> float:
    os.sched_setaffinity(0, {core})  # pins only this thread
    iterations = _iterations_per_burst(loop, CLOCK_BURST_S)
    best, steady = 0.0, 0
    for _ in range(_MOST_BURSTS):
        rate = iterations / _duration_s(loop, iterations)
        steady = 0 if rate > best * (1 + _CLOCK_RESOLUTION) else steady + 1
        best = max(best, rate)
        if steady >= _STEADY_BURSTS:
            break
    return best


def clocks_hz(cores: Sequence[int]) -> list[float]:
    """Cycles per second of `cores`, all busy at once, when turbo is lowest. Raises LoopUnavailable or OSError."""
    return [rate * CLOCK.amount for rate in best_rates_per_s(load_loop(CLOCK), cores)]


_UOPS = "uops.info, VFMADD231PS throughput"


@dataclass(frozen=True)
class KnownCore:
    """`models` are inclusive ranges of model numbers. `avx512` is None if the core has no 512-bit registers."""

    name: str
    vendor: str
    family: int
    models: tuple[tuple[int, int], ...]
    avx2: int
    avx512: int | None
    source: str

    def fits(self, processor: Processor) -> bool:
        number = processor.number
        alike = (processor.vendor, processor.family) == (self.vendor, self.family)
        return alike and number is not None and any(low <= number <= high for low, high in self.models)


def _models(*models: int) -> tuple[tuple[int, int], ...]:
    return tuple((model, model) for model in models)


KNOWN_CORES = (
    KnownCore("Haswell", "GenuineIntel", 6, _models(60, 63, 69, 70), 32, None, f"{_UOPS}: HSW 0.5 (YMM)"),
    KnownCore("Broadwell", "GenuineIntel", 6, _models(61, 71, 79, 86), 32, None, f"{_UOPS}: BDW 0.5 (YMM)"),
    KnownCore("Skylake", "GenuineIntel", 6, _models(78, 94), 32, None, f"{_UOPS}: SKL 0.5 (YMM)"),
    KnownCore("Coffee Lake", "GenuineIntel", 6, _models(142, 158), 32, None, f"{_UOPS}: CFL 0.5 (YMM)"),
    KnownCore("Ice Lake-SP", "GenuineIntel", 6, _models(106), 32, 64, "Intel ARK, Xeon 8380: 2 AVX-512 FMA units"),
    KnownCore("Sapphire Rapids", "GenuineIntel", 6, _models(143), 32, 64, "Intel ARK, Xeon 8480+: 2 AVX-512 FMA units"),
    KnownCore("Emerald Rapids", "GenuineIntel", 6, _models(207), 32, 64, "Intel ARK, Xeon 8592+: 2 AVX-512 FMA units"),
    KnownCore("Zen, Zen+", "AuthenticAMD", 23, _models(1, 8, 17, 24), 16, None, f"{_UOPS}: ZEN+ 1.0 (YMM)"),
    KnownCore("Zen 2", "AuthenticAMD", 23, _models(49, 96, 104, 113, 144), 32, None, f"{_UOPS}: ZEN2 0.5 (YMM)"),
    KnownCore(
        *("Zen 3", "AuthenticAMD", 25, ((0x00, 0x0F), (0x20, 0x2F), (0x40, 0x5F))),
        *(32, None, f"{_UOPS}: ZEN3 0.5 (YMM)"),
    ),
    KnownCore(
        *("Zen 4", "AuthenticAMD", 25, ((0x10, 0x1F), (0x60, 0x7F), (0xA0, 0xAF))),
        *(32, 32, f"{_UOPS}: ZEN4 0.5 (YMM), 1.0 (ZMM)"),
    ),
    KnownCore(
        *("Zen 5 server", "AuthenticAMD", 26, ((0x00, 0x1F),)),
        *(32, 64, "AMD, Software Optimization Guide for the Zen5 Microarchitecture (58455), 2.11"),
    ),
)


def flop_per_cycle(processor: Processor) -> int | None:
    """FLOP per cycle of one core with the widest vectors in its ISA flags; None if the table lacks the core."""
    for core in KNOWN_CORES:
        if core.fits(processor):
            wide = core.avx512 if "avx512f" in processor.isa else None
            return wide or (core.avx2 if "fma" in processor.isa else None)
    return None


# Use the table's peak (FLOP per cycle x clock) if the loop reaches this share of it. If the loop reaches only half, the
# hypervisor hides pairs of hyperthreads, or this model has one pipe. A lower clock under wide vectors costs less than a
# quarter.
_MIN_CONFIRMED_SHARE = 0.75
_DTYPE_FLAGS = {"bfloat16": ("avx512_bf16", "amx_bf16", "bf16"), "float16": ("avx512_fp16", "amx_fp16", "asimdhp")}


def measure_cpu_peaks(cores: Sequence[int]) -> dict[str, PeakFigure]:
    """Peak FLOP/s by dtype of `cores` working together; null with a reason if unknown."""
    facts = processor()
    return {
        "float32": _float32_peak(cores, facts),
        **{dtype: _narrow_dtype_peak(dtype, facts) for dtype in _DTYPE_FLAGS},
    }


def fma_rate_flop_per_s(cores: Sequence[int], facts: Processor) -> float | None:
    """FLOP/s of a register-only multiply-add loop on all `cores` at once; None without AVX2. Raises LoopUnavailable."""
    fitting = [code for code in (FMA_AVX2, FMA_AVX512) if code.flag in facts.isa and "fma" in facts.isa]
    rates = [sum(best_rates_per_s(load_loop(code), cores)) * code.amount for code in fitting]
    return max(rates, default=None)


def _float32_peak(cores: Sequence[int], facts: Processor) -> PeakFigure:
    try:
        reached = fma_rate_flop_per_s(cores, facts)
        if reached is None:
            return PeakFigure(value=None, reason="this core has no AVX2 multiply-add, which the measuring loop needs")
        per_cycle = flop_per_cycle(facts)
        table = per_cycle * _cycles_per_s(cores) if per_cycle else None
    except (LoopUnavailable, OSError) as error:
        return PeakFigure(value=None, reason=str(error))
    except threading.BrokenBarrierError:
        return PeakFigure(value=None, reason="the cores were too busy to be measured together")
    if table is not None and reached >= _MIN_CONFIRMED_SHARE * table:
        return PeakFigure(value=max(table, reached), provenance="measured clock")
    return PeakFigure(value=reached, provenance="measured here")


def _cycles_per_s(cores: Sequence[int]) -> float:
    """The sum over physical cores, because two hyperthreads of one core share its pipes."""
    clocks = clocks_hz(cores)
    return sum(clocks) / len(clocks) * physical_cores(list(cores))


def _narrow_dtype_peak(dtype: str, facts: Processor) -> PeakFigure:
    units = [flag for flag in _DTYPE_FLAGS[dtype] if flag in facts.isa]
    if units:
        return PeakFigure(value=None, reason=f"the rate of this core's {units[0]} unit is not known to this version")
    return PeakFigure(value=None, reason=f"this core has no {dtype} unit; it computes in float32")

"""Three loops in machine code whose speed is known in clock cycles: the only way to see a core's real clock.

`/proc/cpuinfo` shows what a hypervisor likes to show (2.60 GHz where 3.66 was real), and a loop in Python or NumPy
waits for memory, calls and interpreters. x86-64 only, System V calling convention: the count comes in rdi, and all
vector registers may be overwritten. Bytes as GNU as 2.40 writes them from the source beside.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass

Loop = Callable[[int], object]  # runs so many iterations; ctypes lets go of the interpreter's lock meanwhile
CHAINS = 12  # of independent multiply-adds: two pipes times a latency of 5 (Haswell) or 4 cycles need 10 or 8


@dataclass(frozen=True)
class Code:
    """`amount` is what one iteration does: cycles for the clock loop, floating-point operations for the others."""

    name: str
    flag: str | None  # the ISA flag it needs
    amount: int
    code: bytes


def _hex(*parts: str) -> bytes:
    return bytes.fromhex(" ".join(parts))


# Sixteen additions, each waiting for the one before: one cycle each on every x86-64 core. Register to register,
# because Golden Cove and later carry out additions of small constants while renaming, in no time at all.
CLOCK = Code(
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

# Multiply-adds of 1.0 in registers alone: acc = 1 x 1 + acc stays finite (it stops growing at 2**24).
FMA_AVX2 = Code(
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
FMA_AVX512 = Code(
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


class NotHere(Exception):
    """This host can't run the loops; the text says why. For `dyno.devices` alone: callers see a null and a reason."""


def load(code: Code) -> Loop:
    """`code` as a function. Raises NotHere off x86-64 or where the system allows no new executable memory.

    The caller must have seen `code.flag` among the core's ISA flags: the wrong instruction ends the process.
    """
    if platform.machine() not in ("x86_64", "AMD64") or os.name != "posix":
        raise NotHere(f"the clock is measured on x86-64 alone; this is {platform.machine()}")
    page = mmap.mmap(-1, mmap.PAGESIZE)
    page.write(code.code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise NotHere(f"no executable memory may be made here: {os.strerror(ctypes.get_errno())}")
    return _Loaded(page, ctypes.CFUNCTYPE(None, ctypes.c_uint64)(address))


@dataclass(frozen=True)
class _Loaded:
    """Keeps the page alive as long as the function."""

    page: mmap.mmap
    function: Callable[[int], object]

    def __call__(self, iterations: int) -> object:
        return self.function(iterations)

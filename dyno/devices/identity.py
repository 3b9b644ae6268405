"""Which processor this is, from what the processor itself says: vendor, family and model, never the marketing name.

Marketing names lie: two machines that both called themselves "AMD EPYC" differed threefold in speed.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

# What decides how fast matrices multiply, in the kernel's spelling.
ISA_OF_INTEREST = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx_vnni_int8", "avx_ne_convert"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_fp16", "amx_int8"),
    *("asimd", "asimdhp", "asimddp", "asimdfhm", "bf16", "i8mm", "sve", "sve2", "svebf16", "sme", "sme2"),
    *("altivec", "vsx", "mma", "vx", "vxe"),
)


@dataclass(frozen=True)
class Processor:
    """`model` is for reading and for routing; family and model numbers are null off x86."""

    model: str
    vendor: str
    family: int | None
    number: int | None
    isa: tuple[str, ...]


def processor(cpuinfo: Path = CPUINFO) -> Processor:
    """The first processor that `cpuinfo` lists; where that says nothing, the machine's name stands for the model."""
    fields = _first_block(cpuinfo)
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    isa = tuple(flag for flag in ISA_OF_INTEREST if flag in flags)
    if "vendor_id" in fields and "cpu family" in fields:
        return _x86(fields, isa)
    if "cpu implementer" in fields:
        return _arm(fields, isa)
    name = fields.get("cpu") or fields.get("uarch") or fields.get("model name") or platform.machine() or "unknown"
    return Processor(name, fields.get("vendor_id", ""), None, None, isa)


def _first_block(cpuinfo: Path) -> dict[str, str]:
    try:
        block = cpuinfo.read_text().split("\n\n", 1)[0]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip().lower(): value.strip() for key, value in pairs}


def _x86(fields: dict[str, str], isa: tuple[str, ...]) -> Processor:
    vendor, family, number = fields["vendor_id"], fields["cpu family"], fields.get("model", "")
    model = f"{vendor} family {family} model {number} stepping {fields.get('stepping', 'unknown')}"
    return Processor(model, vendor, _number(family), _number(number), isa)


def _arm(fields: dict[str, str], isa: tuple[str, ...]) -> Processor:
    vendor = fields["cpu implementer"]
    words = [f"Arm implementer {vendor}"]
    words += [f"{key} {fields[f'cpu {key}']}" for key in ("part", "variant", "revision") if f"cpu {key}" in fields]
    return Processor(" ".join(words), vendor, None, None, isa)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None

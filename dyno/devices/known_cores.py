"""Floating-point operations per cycle of known x86-64 cores: float32, multiply-add counted as two.

Width of a vector x pipes x 2. Intel family 6 model 85 is left out on purpose: Skylake-SP and Cascade Lake come with
one or with two 512-bit pipes under the same number. So are hybrids, whose cores differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from dyno.devices.identity import Processor

_UOPS = "uops.info, VFMADD231PS throughput"


@dataclass(frozen=True)
class KnownCore:
    """`models` are inclusive ranges of model numbers; `avx512` is None where the core has no 512-bit registers."""

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


def _one(*models: int) -> tuple[tuple[int, int], ...]:
    return tuple((model, model) for model in models)


KNOWN_CORES = (
    KnownCore("Haswell", "GenuineIntel", 6, _one(60, 63, 69, 70), 32, None, f"{_UOPS}: HSW 0.5 (YMM)"),
    KnownCore("Broadwell", "GenuineIntel", 6, _one(61, 71, 79, 86), 32, None, f"{_UOPS}: BDW 0.5 (YMM)"),
    KnownCore("Skylake", "GenuineIntel", 6, _one(78, 94), 32, None, f"{_UOPS}: SKL 0.5 (YMM)"),
    KnownCore("Coffee Lake", "GenuineIntel", 6, _one(142, 158), 32, None, f"{_UOPS}: CFL 0.5 (YMM)"),
    KnownCore("Ice Lake-SP", "GenuineIntel", 6, _one(106), 32, 64, "Intel ARK, Xeon 8380: 2 AVX-512 FMA units"),
    KnownCore("Sapphire Rapids", "GenuineIntel", 6, _one(143), 32, 64, "Intel ARK, Xeon 8480+: 2 AVX-512 FMA units"),
    KnownCore("Emerald Rapids", "GenuineIntel", 6, _one(207), 32, 64, "Intel ARK, Xeon 8592+: 2 AVX-512 FMA units"),
    KnownCore("Zen, Zen+", "AuthenticAMD", 23, _one(1, 8, 17, 24), 16, None, f"{_UOPS}: ZEN+ 1.0 (YMM)"),
    KnownCore("Zen 2", "AuthenticAMD", 23, _one(49, 96, 104, 113, 144), 32, None, f"{_UOPS}: ZEN2 0.5 (YMM)"),
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
    """Per core, with the widest vectors that the kernel shows; None for a core that isn't known for certain."""
    for core in KNOWN_CORES:
        if core.fits(processor):
            wide = core.avx512 if "avx512f" in processor.isa else None
            return wide or (core.avx2 if "fma" in processor.isa else None)
    return None

"""The most a CPU could do. Takes 0.2 s of all its cores: run it in a short-lived child while nothing else measures."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dyno.devices.bursts import best_rates_per_s
from dyno.devices.clock import clocks_hz
from dyno.devices.cpu import physical_cores
from dyno.devices.device import PeakFigure
from dyno.devices.identity import Processor, processor
from dyno.devices.known_cores import flop_per_cycle
from dyno.devices.machine_code import FMA_AVX2, FMA_AVX512, NotHere, load

# A table times a clock is believed if the loop reaches this share of it. Half would mean that two of the cores are
# one (hyperthreads that the hypervisor doesn't show) or that this model has one pipe; a lower clock under wide
# vectors costs less than a quarter.
_CONFIRMED = 0.75
_UNITS = {"bfloat16": ("avx512_bf16", "amx_bf16", "bf16"), "float16": ("avx512_fp16", "amx_fp16", "asimdhp")}


def measure_cpu_peaks(cores: Sequence[int]) -> dict[str, PeakFigure]:
    """Peak FLOP/s by dtype of `cores` working together; null with a reason where it isn't known."""
    facts = processor()
    return {"float32": _float32(cores, facts), **{dtype: _narrow(dtype, facts) for dtype in _UNITS}}


def fma_rate_flop_per_s(cores: Sequence[int], facts: Processor) -> float | None:
    """What a register-only multiply-add loop reaches on all `cores` at once; None without AVX2. Raises NotHere."""
    fitting = [code for code in (FMA_AVX2, FMA_AVX512) if code.flag in facts.isa and "fma" in facts.isa]
    rates = [sum(best_rates_per_s(load(code), cores)) * code.amount for code in fitting]
    return max(rates, default=None)


def _float32(cores: Sequence[int], facts: Processor) -> PeakFigure:
    try:
        reached = fma_rate_flop_per_s(cores, facts)
        if reached is None:
            return PeakFigure(value=None, reason="no AVX2 multiply-add here, and no loop for anything else")
        per_cycle = flop_per_cycle(facts)
        table = per_cycle * _cycles_per_s(cores) if per_cycle else None
    except (NotHere, OSError) as error:
        return PeakFigure(value=None, reason=str(error))
    except threading.BrokenBarrierError:
        return PeakFigure(value=None, reason="the cores were too busy to be measured together")
    if table is not None and reached >= _CONFIRMED * table:
        return PeakFigure(value=max(table, reached), provenance="measured clock")
    return PeakFigure(value=reached, provenance="measured here")


def _cycles_per_s(cores: Sequence[int]) -> float:
    """Summed over cores of silicon: two logical cores of one share its pipes."""
    clocks = clocks_hz(cores)
    return sum(clocks) / len(clocks) * physical_cores(list(cores))


def _narrow(dtype: str, facts: Processor) -> PeakFigure:
    units = [flag for flag in _UNITS[dtype] if flag in facts.isa]
    if units:
        return PeakFigure(value=None, reason=f"the rate of this core's {units[0]} unit is not known to this version")
    return PeakFigure(value=None, reason=f"this core has no {dtype} unit; it computes in float32")

"""Checks of how the work was executed: completely, before the clock stopped, on the fast path.

Each check looks only at its arguments. `dyno.runner.checks` takes the readings after the samples, and
`dyno.runner.case_sampling` notes between samples what was compiled.

SLOW_PATH: did slower kernels run than the device has? Flags, instructions and settings tell; nothing is timed. The
cost of a flag differs with the work and is not measured here: the warning names the flag, and the figure stays a
valid figure of that path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from dyno.devices.device import Device
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning
from dyno.models.runner_protocol import RunRecord

# An honest drain finds nothing left to wait for: 0.02 to 0.2 ms were measured. Half a sample lasts 25 ms at least.
DRAIN_LIMIT = 0.05
DRAIN_FLOOR_S = 1e-3
# Of the time that added work should take, how much it has to take: the rest is left to noise.
GROWTH_SHARE = 0.5
TELLING_SHARE = 0.25  # of a single execution: less can't be told from noise
# A training counts three times its forward pass. Of its first layer no gradient for the inputs is needed, so that where
# that layer is nearly all of it two thirds are done; a unit that is wrong is so by a factor of two.
UNIT_LIMIT = 5 / 3
_NAMED = 5


@dataclass(frozen=True)
class DrainReading:
    """One reading: the clock stopped after `execution_s`, and the device had finished `drain_s` later.

    `idle_s`: how long it takes to be told so where there is nothing to wait for, on a busy host many milliseconds.
    """

    execution_s: float
    drain_s: float
    idle_s: float = 0.0

    @property
    def late(self) -> bool:
        return self.drain_s - self.idle_s > max(DRAIN_FLOOR_S, DRAIN_LIMIT * self.execution_s)


@dataclass(frozen=True)
class WorkGrowth:
    """The work took `single_s`, and `times` as much of it `grown_s`.

    `least_s`: what the single work takes at the highest rate that the device could have.
    """

    times: float
    single_s: float
    grown_s: float
    least_s: float = math.inf

    @property
    def grew(self) -> bool:
        """By half at least of what the added work should take."""
        return self._added_s >= GROWTH_SHARE * (self.times - 1) * self.single_s

    @property
    def telling(self) -> bool:
        """Whether the added work must show, even at the highest rate."""
        return self._needed_s >= TELLING_SHARE * min(self.single_s, self.grown_s)  # more work bounds less of it

    @property
    def eliminated(self) -> bool:
        """The added work went by faster than the device could do half of it."""
        return self._added_s < self._needed_s

    @property
    def _added_s(self) -> float:
        return self.grown_s - self.single_s

    @property
    def _needed_s(self) -> float:
        return GROWTH_SHARE * (self.times - 1) * min(self.single_s, self.least_s)


def async_timing(readings: Sequence[DrainReading]) -> ResultWarning | None:
    """After every reading the device was still busy, for more than 1 ms and 5 % of the time taken."""
    if not readings or not all(reading.late for reading in readings):
        return None
    least = min(readings, key=lambda reading: reading.drain_s)
    return warning(
        "ASYNC_TIMING",
        f"The clock stopped {1e3 * least.drain_s:.1f} ms before the device had finished.",
        execution_s=least.execution_s,
        drain_s=least.drain_s,
        idle_s=least.idle_s,
        readings=len(readings),
        limit=DRAIN_LIMIT,
    )


def work_eliminated(growth: WorkGrowth, work: str) -> ResultWarning | None:
    """More of the `work`, in words, took no longer."""
    if not growth.telling or not growth.eliminated:
        return None
    return warning(
        "WORK_ELIMINATED",
        f"{growth.times:g} times the {work} took {growth.grown_s / growth.single_s:.2f} times as long.",
        times=growth.times,
        single_s=growth.single_s,
        grown_s=growth.grown_s,
        least_added_s=growth._needed_s,
    )


def unit_mismatch(declared: float, counted: float) -> ResultWarning | None:
    """FLOP of one execution, as declared and as the framework counts them: one is more than 5/3 of the other."""
    if max(declared, counted) <= UNIT_LIMIT * min(declared, counted):
        return None
    message = f"The figure counts {declared:.3g} FLOP per execution; the framework counts {counted:.3g}."
    return warning("UNIT_MISMATCH", message, declared_flop=declared, counted_flop=counted, limit=UNIT_LIMIT)


def steps_mismatch(asked: int, made: int, skipped: int = 0) -> ResultWarning | None:
    """Training steps that the figure counts, and those that the optimiser made; up to `skipped` may be fewer."""
    if asked - skipped <= made <= asked:
        return None
    message = f"The figure counts {asked} training steps; the optimiser made {made}."
    return warning("UNIT_MISMATCH", message, counted_steps=asked, made_steps=made)


def compile_in_timing(names: Sequence[str]) -> ResultWarning | None:
    """These functions were traced or compiled between the first sample's start and the last one's end."""
    if not names:
        return None
    return warning("COMPILE_IN_TIMING", times=len(names), functions=_first_names(names))


def retraced(before: Sequence[str], since: Sequence[str]) -> ResultWarning | None:
    """Of the functions that had been traced `before` the first look, some were traced again `since`."""
    known = set(before)
    again = [name for name in since if name in known]
    if not again:
        return None
    return warning("RETRACED", times=len(again), functions=_first_names(again))


def _first_names(names: Sequence[str]) -> list[JsonValue]:
    """Each once, the first few."""
    return [*list(dict.fromkeys(names))[:_NAMED]]


_ONEDNN = frozenset({"tensorflow", "torch"})
_XLA = frozenset({"xla"})
_ANY = frozenset({"cpu", "gpu", "tpu"})
_CPU, _GPU = frozenset({"cpu"}), frozenset({"gpu"})


@dataclass(frozen=True)
class _Switch:
    """An environment flag whose value, matching `pattern`, switches fast kernels off for those who read it."""

    flag: str
    pattern: str
    readers: frozenset[str]  # frameworks, or "xla"
    kinds: frozenset[str] = _ANY


# Not NVIDIA_TF32_OVERRIDE: who wants float32 sets it, and where TF32 was asked for PRECISION_MISMATCH tells.
_SWITCHES = (
    _Switch("TF_ENABLE_ONEDNN_OPTS", r"^(0|false)$", frozenset({"tensorflow"}), _CPU),
    _Switch("TF_DETERMINISTIC_OPS", r"^(1|true)$", frozenset({"tensorflow"}), _GPU),
    _Switch("TF_CUDNN_DETERMINISTIC", r"^(1|true)$", frozenset({"tensorflow"}), _GPU),
    _Switch("MKL_ENABLE_INSTRUCTIONS", r"^(SSE4_2|AVX|AVX2)$", frozenset({"torch"}), _CPU),
    _Switch("XLA_FLAGS", r"--xla_backend_optimization_level=[012]\b", _XLA),
    _Switch("XLA_FLAGS", r"--xla_disable_all_hlo_passes(=true)?(\s|$)", _XLA),
    _Switch("XLA_FLAGS", r"--xla_cpu_multi_thread_eigen=false\b", _XLA, _CPU),
    _Switch("XLA_FLAGS", r"--xla_gpu_autotune_level=0\b", _XLA, _GPU),
    _Switch("XLA_FLAGS", r"--xla_gpu_(deterministic_ops|exclude_nondeterministic_ops)(=true)?(\s|$)", _XLA, _GPU),
)
# Limits on a CPU's instructions: (flag, what stands before the level, who reads it).
_ISA_LIMITS = (
    ("ONEDNN_MAX_CPU_ISA", "^", _ONEDNN),
    ("DNNL_MAX_CPU_ISA", "^", _ONEDNN),
    ("XLA_FLAGS", "--xla_cpu_max_isa=", _XLA),
)
_ISA_LEVELS = (
    "SSE",
    "AVX",
    "AVX2",
    "AVX2_VNNI",
    "AVX512",
    "AVX512_VNNI",
    "AVX512_BF16",
    "AVX512_FP16",
    "AMX",
    "AMX_FP16",
)
# The level that brings an instruction, and the dtypes whose products it makes faster; null: all of them.
_BRINGS: Mapping[str, tuple[str, frozenset[str] | None]] = {
    "avx": ("AVX", None),
    "avx2": ("AVX2", None),
    "avx_vnni": ("AVX2_VNNI", frozenset({"int8"})),
    "avx512f": ("AVX512", None),
    "avx512_vnni": ("AVX512_VNNI", frozenset({"int8"})),
    "avx512_bf16": ("AVX512_BF16", frozenset({"bfloat16"})),
    "avx512_fp16": ("AVX512_FP16", frozenset({"float16"})),
    "amx_bf16": ("AMX", frozenset({"bfloat16"})),
    "amx_int8": ("AMX", frozenset({"int8"})),
    "amx_fp16": ("AMX_FP16", frozenset({"float16"})),
}
_NATIVE: Mapping[str, frozenset[str]] = {
    "bfloat16": frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"}),
    "float16": frozenset({"avx512_fp16", "amx_fp16", "asimdhp"}),
    "int8": frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm"}),
}


@dataclass(frozen=True)
class _Executed:
    """What the runs tell: who computed, with which flags, in which dtypes."""

    device: Device
    kind: str
    readers: frozenset[str]
    flags: Mapping[str, str]
    dtypes: frozenset[str]
    details: Mapping[str, Any]
    asked_for_xla: bool


def slow_path(device: Device, params: Any, records: Sequence[RunRecord]) -> ResultWarning | None:
    """One warning with every reason why something faster than what ran is there."""
    ran = _executed(device, params, records[0])
    reasons = [*_switched_off(ran), *_limited(ran), *_wider(ran), *_unfused(ran), *_without_xla(ran)]
    if not reasons:
        return None
    return warning("SLOW_PATH", f"A slower kernel ran than the device has: {'; '.join(reasons)}.", reasons=[*reasons])


def path_unknown(device: Device) -> bool:
    """Whether it isn't known what the device could do: a CPU that doesn't tell its instructions."""
    return device.driven_as == "cpu" and not device.isa


def _executed(device: Device, params: Any, record: RunRecord) -> _Executed:
    environment, details = record.environment, record.details
    framework = str(environment.get("framework", ""))
    dtypes = {case.dtype for case in record.cases} or {getattr(params, "dtype", "float32")}
    # Of TensorFlow's work, only what was asked for, and its products of int8, goes through XLA.
    products = "int8" in dtypes and "engine" not in details
    by_xla = framework == "jax" or details.get("jit_compile") is True or products
    return _Executed(
        device=device,
        kind=device.driven_as,
        readers=frozenset({framework}) | (_XLA if by_xla else frozenset()),
        flags=environment.get("flags", {}),
        dtypes=frozenset(name for each in dtypes for name in each.split("+")),
        details=details,
        asked_for_xla=getattr(params, "jit_compile", None) is True,
    )


def _switched_off(ran: _Executed) -> Iterator[str]:
    for switch in _SWITCHES:
        if ran.kind in switch.kinds and switch.readers & ran.readers:
            found = re.search(switch.pattern, ran.flags.get(switch.flag, ""), re.IGNORECASE)
            if found is not None:
                yield f"{switch.flag} has {found.group().strip()}"


def _limited(ran: _Executed) -> Iterator[str]:
    """A limit on instructions below one that the core has and the work could use."""
    for flag, before, readers in _ISA_LIMITS:
        found = re.search(f"{before}([A-Z0-9_]+)", ran.flags.get(flag, ""), re.IGNORECASE)
        level = _level(found.group(1).upper()) if found else None
        if level is None or not readers & ran.readers or ran.kind != "cpu":
            continue
        kept = [
            instruction
            for instruction, (brought_by, dtypes) in _BRINGS.items()
            if instruction in ran.device.isa
            and _ISA_LEVELS.index(brought_by) > level
            and (dtypes is None or dtypes & ran.dtypes)
        ]
        if kept:
            yield f"{flag} allows {_ISA_LEVELS[level]} at most, the core has {', '.join(kept)}"


def _level(name: str) -> int | None:
    """oneDNN writes AVX512_CORE_VNNI where XLA writes AVX512_VNNI; both know levels that aren't in the list."""
    short = name.replace("AVX512_CORE", "AVX512").replace("AVX512_AMX", "AMX")
    short = "SSE" if short.startswith("SSE") else short
    return _ISA_LEVELS.index(short) if short in _ISA_LEVELS else None


def _wider(ran: _Executed) -> Iterator[str]:
    """Arithmetic that a CPU doesn't have is done in float32 or int32, with conversions."""
    if ran.kind != "cpu" or not ran.device.isa:
        return
    for dtype in sorted(ran.dtypes & _NATIVE.keys()):
        if not _NATIVE[dtype] & set(ran.device.isa):
            yield f"the core has no instructions for products of {dtype} and computes wider"


def _unfused(ran: _Executed) -> Iterator[str]:
    """Keras' rule says whether cuDNN computes a recurrent layer (`dyno.workloads.training.recurrent.rnn_kernel`)."""
    chosen = ran.details.get("rnn_kernel")
    kernel = chosen.get("kernel", "") if isinstance(chosen, dict) else ""
    if ran.kind != "gpu" or not kernel:
        return
    if not kernel.startswith("fused"):
        yield f"the recurrent layers ran as {kernel}, not in cuDNN's fused kernel"
    elif "tensorflow" in ran.readers and ran.details.get("jit_compile") is True:
        yield "XLA can't compile cuDNN's fused recurrent kernel, and was asked to compile all"


def _without_xla(ran: _Executed) -> Iterator[str]:
    if ran.asked_for_xla and ran.details.get("jit_compile") is False:
        yield "XLA was asked for (jit_compile) and not used"

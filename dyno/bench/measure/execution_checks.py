"""Check that the timed work was complete, finished before the clock stopped, and took the fast path.

Each check uses only its arguments. `dyno.bench.runner.checks` takes the readings after the samples, and
`dyno.bench.runner.case_sampling` counts compilations between samples.

SLOW_PATH: did the work run on a slower kernel although the device supports a faster one? The check uses flags,
instructions and settings, not timings. Dyno doesn't measure how much time a flag costs, which depends on the work. The
warning names the flag, and the figure is valid for the slower path.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from dyno.bench.measure.warnings import warning
from dyno.models.device import Device
from dyno.models.result import ResultWarning
from dyno.models.runner_protocol import RunRecord

# The drain's maximum share of the execution time, which is about 20 ms. After all work, a drain takes 0.02 to 0.2 ms.
DRAIN_LIMIT = 0.05
DRAIN_FLOOR_S = 1e-3
# Added work must take at least this share of its expected time; the rest allows for noise.
GROWTH_SHARE = 0.5
TELLING_SHARE = 0.25  # share of a single execution's time; a smaller share is within the noise
# Largest accepted factor between declared and counted FLOP. A training declares three times its forward pass's FLOP.
# Its first layer needs no gradient for its inputs, so a training with hardly any other layer does two thirds of the
# declared work. Wrong units are off by a factor of two.
UNIT_LIMIT = 5 / 3
_NAMED = 5


@dataclass(frozen=True)
class DrainReading:
    """One reading: the clock stopped after `execution_s`, and the device had finished `drain_s` later.

    `idle_s`: the time that a drain of an idle device takes, which is many milliseconds on a busy host.
    """

    execution_s: float
    drain_s: float
    idle_s: float = 0.0

    @property
    def late(self) -> bool:
        return self.drain_s - self.idle_s > max(DRAIN_FLOOR_S, DRAIN_LIMIT * self.execution_s)


@dataclass(frozen=True)
class WorkGrowth:
    """`single_s`: the time of the work. `grown_s`: the time of `times` times as much work.

    `least_s`: the time of the single work at the device's highest possible rate.
    """

    times: float
    single_s: float
    grown_s: float
    least_s: float = math.inf

    @property
    def grew(self) -> bool:
        """Whether the time grew by at least half of the time that the added work should take."""
        return self._added_s >= GROWTH_SHARE * (self.times - 1) * self.single_s

    @property
    def telling(self) -> bool:
        """Whether the time of the added work must be visible even at the device's highest rate."""
        single_s = min(self.single_s, self.grown_s)  # less work can't take longer than more
        return self.least_added_s >= TELLING_SHARE * single_s

    @property
    def eliminated(self) -> bool:
        """Whether the added work took less time than the device needs for half of it."""
        return self._added_s < self.least_added_s

    @property
    def least_added_s(self) -> float:
        """The time that the device needs for half of the added work."""
        return GROWTH_SHARE * (self.times - 1) * min(self.single_s, self.least_s)

    @property
    def _added_s(self) -> float:
        return self.grown_s - self.single_s


def async_timing(readings: Sequence[DrainReading]) -> ResultWarning | None:
    """Raised if, after every reading, the device was still busy for more than 1 ms and 5 % of the execution time."""
    if not readings or not all(reading.late for reading in readings):
        return None
    shortest = min(readings, key=lambda reading: reading.drain_s)
    return warning(
        "ASYNC_TIMING",
        f"The clock stopped {1e3 * shortest.drain_s:.1f} ms before the device had finished.",
        execution_s=shortest.execution_s,
        drain_s=shortest.drain_s,
        idle_s=shortest.idle_s,
        readings=len(readings),
        limit=DRAIN_LIMIT,
    )


def work_eliminated(growth: WorkGrowth, work: str) -> ResultWarning | None:
    """Raised if added work took almost no time (see `WorkGrowth.eliminated`). `work`: a noun for the message."""
    if not growth.telling or not growth.eliminated:
        return None
    return warning(
        "WORK_ELIMINATED",
        f"{growth.times:g} times the {work} took {growth.grown_s / growth.single_s:.2f} times as long.",
        times=growth.times,
        single_s=growth.single_s,
        grown_s=growth.grown_s,
        least_added_s=growth.least_added_s,
    )


def unit_mismatch(declared: float, counted: float, unit: str = "FLOP") -> ResultWarning | None:
    """Raised if the declared and the counted FLOP or bytes per execution differ by a factor of more than 5/3."""
    if max(declared, counted) <= UNIT_LIMIT * min(declared, counted):
        return None
    message = f"The figure counts {declared:.3g} {unit} per execution; the framework counts {counted:.3g}."
    evidence = {f"declared_{unit.lower()}": declared, f"counted_{unit.lower()}": counted}
    return warning("UNIT_MISMATCH", message, **evidence, limit=UNIT_LIMIT)


def steps_mismatch(counted: int, made: int, skipped: int = 0) -> ResultWarning | None:
    """Raised if the optimiser made more steps than the figure counts, or if more than `skipped` steps are missing."""
    if counted - skipped <= made <= counted:
        return None
    message = f"The figure counts {counted} training steps; the optimiser made {made}."
    return warning("UNIT_MISMATCH", message, counted_steps=counted, made_steps=made)


def compile_in_timing(names: Sequence[str]) -> ResultWarning | None:
    """Raised for `names`: functions traced or compiled between the first sample's start and the last sample's end."""
    if not names:
        return None
    return warning("COMPILE_IN_TIMING", times=len(names), functions=_first_names(names))


def retraced(before: Sequence[str], since: Sequence[str]) -> ResultWarning | None:
    """Raised if the framework traced a function both before sampling (`before`) and afterwards (`since`)."""
    traced = set(before)
    again = [name for name in since if name in traced]
    if not again:
        return None
    return warning("RETRACED", times=len(again), functions=_first_names(again))


def _first_names(names: Sequence[str]) -> list[JsonValue]:
    """The first few names, without duplicates."""
    return [*list(dict.fromkeys(names))[:_NAMED]]


_ONEDNN = frozenset({"tensorflow", "torch"})
_XLA = frozenset({"xla"})
_ANY = frozenset({"cpu", "gpu", "tpu"})
_CPU, _GPU = frozenset({"cpu"}), frozenset({"gpu"})


@dataclass(frozen=True)
class _Switch:
    """An environment flag that disables fast kernels for its readers if its value matches `pattern`."""

    flag: str
    pattern: str
    readers: frozenset[str]  # frameworks, or "xla"
    kinds: frozenset[str] = _ANY


# The table omits NVIDIA_TF32_OVERRIDE: users set it to get float32, and PRECISION_MISMATCH covers requests for TF32.
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
# Limits on a CPU's instructions: (flag, prefix of the level, readers).
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
# For each instruction: the level that adds it, and the dtypes whose products it speeds up (None means all dtypes).
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
    """How the work ran: its libraries, flags and dtypes."""

    device: Device
    kind: str
    readers: frozenset[str]
    flags: Mapping[str, str]
    dtypes: frozenset[str]
    details: Mapping[str, Any]
    asked_for_xla: bool


def slow_path(device: Device, params: Any, records: Sequence[RunRecord]) -> ResultWarning | None:
    """One warning with all reasons why the work didn't run on the fastest path."""
    ran = _executed(device, params, records[0])
    reasons = [*_switched_off(ran), *_limited(ran), *_wider(ran), *_unfused(ran), *_without_xla(ran)]
    if not reasons:
        return None
    message = f"The work ran on a slower kernel than the device supports: {'; '.join(reasons)}."
    return warning("SLOW_PATH", message, reasons=[*reasons])


def path_unknown(device: Device) -> bool:
    """Whether the device is a CPU whose instructions are unknown."""
    return device.driven_as == "cpu" and not device.isa


def _executed(device: Device, params: Any, record: RunRecord) -> _Executed:
    environment, details = record.environment, record.details
    framework = str(environment.get("framework", ""))
    dtypes = {case.dtype for case in record.cases} or {getattr(params, "dtype", "float32")}
    # TensorFlow uses XLA only on request (jit_compile) and for int8 products.
    products = "int8" in dtypes and "engine" not in details
    by_xla = framework == "jax" or details.get("jit_compile") is True or products
    return _Executed(
        device=device,
        kind=device.driven_as,
        readers=frozenset({framework}) | (_XLA if by_xla else frozenset()),
        flags=environment.get("flags", {}),
        dtypes=frozenset(name for dtype in dtypes for name in dtype.split("+")),
        details=details,
        asked_for_xla=getattr(params, "jit_compile", None) is True,
    )


def _switched_off(ran: _Executed) -> Iterator[str]:
    for switch in _SWITCHES:
        if ran.kind in switch.kinds and switch.readers & ran.readers:
            match = re.search(switch.pattern, ran.flags.get(switch.flag, ""), re.IGNORECASE)
            if match is not None:
                yield f"{switch.flag} has {match.group().strip()}"


def _limited(ran: _Executed) -> Iterator[str]:
    """Limits below an instruction level that the core has and the work could use."""
    for flag, before, readers in _ISA_LIMITS:
        match = re.search(f"{before}([A-Z0-9_]+)", ran.flags.get(flag, ""), re.IGNORECASE)
        level = _level(match.group(1).upper()) if match else None
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
    """The level's number; None for an unknown level. oneDNN writes AVX512_CORE_VNNI for XLA's AVX512_VNNI."""
    short = name.replace("AVX512_CORE", "AVX512").replace("AVX512_AMX", "AMX")
    short = "SSE" if short.startswith("SSE") else short
    return _ISA_LEVELS.index(short) if short in _ISA_LEVELS else None


def _wider(ran: _Executed) -> Iterator[str]:
    """CPUs without native arithmetic for a dtype compute in float32 or int32, with conversions."""
    if ran.kind != "cpu" or not ran.device.isa:
        return
    for dtype in sorted(ran.dtypes & _NATIVE.keys()):
        if not _NATIVE[dtype] & set(ran.device.isa):
            yield f"the core has no instructions for {dtype} products and computes in a wider dtype"


def _unfused(ran: _Executed) -> Iterator[str]:
    """Recurrent layers that cuDNN doesn't compute, by Keras' rule (`dyno.bench.training.recurrent.rnn_kernel`)."""
    chosen = ran.details.get("rnn_kernel")
    kernel = chosen.get("kernel", "") if isinstance(chosen, dict) else ""
    if ran.kind != "gpu" or not kernel:
        return
    if not kernel.startswith("fused"):
        yield f"the recurrent layers ran as {kernel} instead of cuDNN's fused kernel"
    elif "tensorflow" in ran.readers and ran.details.get("jit_compile") is True:
        yield "jit_compile is on, and XLA can't compile cuDNN's fused recurrent kernel"


def _without_xla(ran: _Executed) -> Iterator[str]:
    chosen = ran.details.get("jit_compile_choice")
    if ran.asked_for_xla and ran.details.get("jit_compile") is False:
        yield "XLA was requested (jit_compile) but not used"
    elif ran.kind != "cpu" and isinstance(chosen, dict) and "xla_error" in chosen:  # on a CPU, XLA is rarely faster
        yield f"XLA failed to compile the step ({chosen['xla_error']})"

"""SLOW_PATH: did slower kernels run than the device has? Flags, instructions and settings tell; nothing is timed.

What a flag costs was not measured here and differs with the work: the warning says which one it is, and the figure is
still a figure, of that path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dyno.devices.device import Device
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning
from dyno.models.runner_protocol import RunRecord

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
_LIMITS = (
    ("ONEDNN_MAX_CPU_ISA", "^", _ONEDNN),
    ("DNNL_MAX_CPU_ISA", "^", _ONEDNN),
    ("XLA_FLAGS", "--xla_cpu_max_isa=", _XLA),
)
_LEVELS = ("SSE", "AVX", "AVX2", "AVX2_VNNI", "AVX512", "AVX512_VNNI", "AVX512_BF16", "AVX512_FP16", "AMX", "AMX_FP16")
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
class _Ran:
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
    ran = _ran(device, params, records[0])
    reasons = [*_switched_off(ran), *_limited(ran), *_wider(ran), *_unfused(ran), *_without_xla(ran)]
    if not reasons:
        return None
    return warning("SLOW_PATH", f"A slower kernel ran than the device has: {'; '.join(reasons)}.", reasons=[*reasons])


def unseen_path(device: Device) -> bool:
    """Whether it isn't known what the device could do: a CPU that doesn't tell its instructions."""
    return device.driven_as == "cpu" and not device.isa


def _ran(device: Device, params: Any, record: RunRecord) -> _Ran:
    environment, details = record.environment, record.details
    framework = str(environment.get("framework", ""))
    dtypes = {case.dtype for case in record.cases} or {getattr(params, "dtype", "float32")}
    # Of TensorFlow's work, only what was asked for, and its products of int8, goes through XLA.
    products = "int8" in dtypes and "engine" not in details
    by_xla = framework == "jax" or details.get("jit_compile") is True or products
    return _Ran(
        device=device,
        kind=device.driven_as,
        readers=frozenset({framework}) | (_XLA if by_xla else frozenset()),
        flags=environment.get("flags", {}),
        dtypes=frozenset(name for each in dtypes for name in each.split("+")),
        details=details,
        asked_for_xla=getattr(params, "jit_compile", None) is True,
    )


def _switched_off(ran: _Ran) -> Iterator[str]:
    for switch in _SWITCHES:
        if ran.kind in switch.kinds and switch.readers & ran.readers:
            found = re.search(switch.pattern, ran.flags.get(switch.flag, ""), re.IGNORECASE)
            if found is not None:
                yield f"{switch.flag} has {found.group().strip()}"


def _limited(ran: _Ran) -> Iterator[str]:
    """A limit on instructions below one that the core has and the work could use."""
    for flag, before, readers in _LIMITS:
        found = re.search(f"{before}([A-Z0-9_]+)", ran.flags.get(flag, ""), re.IGNORECASE)
        level = _level(found.group(1).upper()) if found else None
        if level is None or not readers & ran.readers or ran.kind != "cpu":
            continue
        kept = [
            instruction
            for instruction, (brought_by, dtypes) in _BRINGS.items()
            if instruction in ran.device.isa
            and _LEVELS.index(brought_by) > level
            and (dtypes is None or dtypes & ran.dtypes)
        ]
        if kept:
            yield f"{flag} allows {_LEVELS[level]} at most, the core has {', '.join(kept)}"


def _level(name: str) -> int | None:
    """oneDNN writes AVX512_CORE_VNNI where XLA writes AVX512_VNNI; both know levels that aren't in the list."""
    short = name.replace("AVX512_CORE", "AVX512").replace("AVX512_AMX", "AMX")
    short = "SSE" if short.startswith("SSE") else short
    return _LEVELS.index(short) if short in _LEVELS else None


def _wider(ran: _Ran) -> Iterator[str]:
    """Arithmetic that a CPU doesn't have is done in float32 or int32, with conversions."""
    if ran.kind != "cpu" or not ran.device.isa:
        return
    for dtype in sorted(ran.dtypes & _NATIVE.keys()):
        if not _NATIVE[dtype] & set(ran.device.isa):
            yield f"the core has no instructions for products of {dtype} and computes wider"


def _unfused(ran: _Ran) -> Iterator[str]:
    """Keras' rule says whether cuDNN computes a recurrent layer (`dyno.workloads._recurrent.rnn_kernel`)."""
    chosen = ran.details.get("rnn_kernel")
    kernel = chosen.get("kernel", "") if isinstance(chosen, dict) else ""
    if ran.kind != "gpu" or not kernel:
        return
    if not kernel.startswith("fused"):
        yield f"the recurrent layers ran as {kernel}, not in cuDNN's fused kernel"
    elif "tensorflow" in ran.readers and ran.details.get("jit_compile") is True:
        yield "XLA can't compile cuDNN's fused recurrent kernel, and was asked to compile all"


def _without_xla(ran: _Ran) -> Iterator[str]:
    if ran.asked_for_xla and ran.details.get("jit_compile") is False:
        yield "XLA was asked for (jit_compile) and not used"

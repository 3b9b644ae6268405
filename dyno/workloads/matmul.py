"""Matrix products, the classic of throughput: 2·M·N·K FLOP each, `repeats` of them in one execution.

Two modes. `chain`: one compiled graph multiplies an N(0, 1) matrix `repeats` times by an orthogonal one and reads
the sum of the product back; dispatch is hidden. `dispatch`: one call per product over rotating operands that
together exceed the last cache, and the sum of the last product drains the queue.

`float32` means float32 here, also on devices that would multiply it as TF32 by default; `tf32` asks for that. `int8`
sums in int32 and counts OP, not FLOP. A list of `sizes` is measured one after the other, each as if alone.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dyno.devices.device import Device
from dyno.errors import FieldError, RunFailed
from dyno.measure.result_checks import pow2_only, width_uneven
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName
from dyno.workloads._articles import CPU, GPU, HARNESS, TPU
from dyno.workloads._cost import rate_flop_per_s, runtime_bytes, sampling_s
from dyno.workloads._integers import IntegerDispatch
from dyno.workloads._matmul_params import MatmulParams
from dyno.workloads._products import Chain, Dispatch
from dyno.workloads._sizes import Sizes
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Workload

_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 1e13, "tpu": 2e13}  # per CPU core, per accelerator; half a typical rate
_NATIVE_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
_INT8_ON_CPU = 0.5  # of the float32 rate: measured 0.8 to 1.0 with AVX-512 VNNI, less is likely without
_EMULATED = 0.1  # of the float32 rate; measured 0.07 on a core without bfloat16 instructions
_REACHED = 0.6  # of the peak, by a large product; published: 0.8 to 0.9
_ASSUMED_LAST_CACHE_BYTES = 32 << 20
_SMALL_CACHE_BYTES = 4 << 20  # every device in use has more
_TF32_FROM = 80  # compute capability 8.0, Ampere
_MAX_ROTATION = 4096  # pairs of operands; below this size a product is all dispatch anyway


def flops(params: MatmulParams) -> float:
    """2·M·N·K for each of the `repeats` products of one execution; of several sizes that of the first."""
    m, k, n = params.sides
    return 2.0 * m * n * k * params.repeats


def rotation(params: MatmulParams, last_cache_bytes: int | None) -> int:
    """Pairs of operands that `dispatch` rotates over: together twice the last cache, so that none is found there."""
    m, k, n = params.sides
    pair_bytes = (m * k + k * n) * params.item_bytes
    wanted = math.ceil(2 * (last_cache_bytes or _ASSUMED_LAST_CACHE_BYTES) / pair_bytes)
    return min(max(2, wanted), _MAX_ROTATION)


def estimate(
    params: MatmulParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> Estimate:
    """Every buffer that is held at once, and the default sampling budget at 0.6 of the peak or an assumed rate."""
    each = [_of_one(size, device) for size in params.each]
    memory_bytes = sum(one.memory_bytes for one in each) + runtime_bytes(device)
    return Estimate(sum(one.time_s for one in each) + 1.0, memory_bytes)


def _of_one(params: MatmulParams, device: Device) -> Estimate:
    m, k, n = params.sides
    item = params.item_bytes
    operands = m * k + k * n
    pairs = rotation(params, device.last_cache_bytes) if params.mode == "dispatch" else 1
    on_device = pairs * operands * item + 2 * m * n * params.product_bytes
    making = operands * 4  # float32 on the host, before the cast
    checking = operands * 4 + k * n * 8 + m * n * 4  # read back, one operand in float64
    on_host = max(making, checking)
    assumed = {kind: rate * _share(params, device) for kind, rate in _ASSUMED_FLOP_PER_S.items()}
    execution_s = flops(params) / rate_flop_per_s(device, params.dtype, _REACHED, assumed)
    if device.driven_as == "cpu":
        on_device += on_host
    return Estimate(2 * execution_s + sampling_s(execution_s) + pairs * operands * 2e-8, on_device)


def _share(params: MatmulParams, device: Device) -> float:
    """Of the float32 rate, where the peak for the dtype isn't known."""
    if device.driven_as != "cpu":
        return 1.0
    if params.dtype == "bfloat16" and not _NATIVE_BFLOAT16 & set(device.isa):
        return _EMULATED
    return _INT8_ON_CPU if params.dtype == "int8" else 1.0


def refuses(params: MatmulParams, device: Device) -> list[FieldError]:
    """TF32 where there is none: everywhere but on NVIDIA GPUs from compute capability 8.0 on."""
    capability = next((flag for flag in device.isa if flag.startswith("sm_")), None)
    old = capability is not None and int(capability.removeprefix("sm_")) < _TF32_FROM
    if params.dtype != "tf32" or (device.kind == "gpu" and not old):
        return []
    detail = f"{device.model} has no tf32; NVIDIA GPUs have it from compute capability 8.0 on"
    return [FieldError("/dtype", "dtype_unsupported", detail)]


def build(params: MatmulParams, context: BuildContext) -> Built:
    """Raises RunFailed (unsupported, dtype_unsupported) on a device that lacks the dtype."""
    if context.device is not None and (refused := refuses(params, context.device)):
        raise RunFailed("unsupported", refused[0].code, refused[0].detail)
    built = [_built(size, context) for size in params.each]
    return built[0] if params.sizes is None else Sizes(params.each, built)


def _built(params: MatmulParams, context: BuildContext) -> Built:
    if params.mode == "chain":
        return Chain(params, flops(params), context)
    last_cache_bytes = context.device.last_cache_bytes if context.device else None
    kind = IntegerDispatch if params.dtype == "int8" else Dispatch
    return kind(params, flops(params), rotation(params, last_cache_bytes), context)


def lint(params: MatmulParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    """What sizes tell before they run; whether the device's own cache holds them is found when they have."""
    sides = [side for size in params.each for side in size.sides]
    small = next((raised for size in params.each if (raised := _small(size))), None)
    on_tpu = device is not None and device.kind == "tpu"
    uneven = width_uneven({str(side): side for side in sides}) if on_tpu else None
    return [raised for raised in (pow2_only(sides), small, uneven) if raised is not None]


def _small(params: MatmulParams) -> ResultWarning | None:
    """A chain's matrices fit in any cache; `dispatch` rotates, so that they don't."""
    working_set_bytes = 4 * params.n**2 * params.item_bytes
    if params.mode == "dispatch" or working_set_bytes > _SMALL_CACHE_BYTES:
        return None
    message = f"The matrices take {working_set_bytes} bytes, less than any device's last cache holds."
    return warning("CACHE_RESIDENT", message, working_set_bytes=working_set_bytes)


_SESSIONS = "One of two sessions of the same code, 0.47e12 and 0.53e12."
_K80 = "The K80 that Colab lent then peaks at 8.74e12; the figure equals a V100's float32 datasheet."
_COMPILING = "Whether compiling is part of it isn't said."
_OVERFLOW = "The float32 it names is computed as bfloat16 there, and a chain of random matrices this long overflows."


_RATIOS = "29 is by 0.53e12 of the CPU, 75 and 338 are by 0.47e12; no interval, and each figure has doubts of its own."


REFERENCES = (
    HARNESS.figure(CPU, "throughput", 0.47e12, "FLOP/s", _SESSIONS),
    HARNESS.figure(CPU, "throughput", 0.53e12, "FLOP/s", _SESSIONS),
    HARNESS.figure(GPU, "throughput", 15.70e12, "FLOP/s", _K80),
    HARNESS.figure(TPU, "cold_throughput", 35.47e12, "FLOP/s", _COMPILING),
    HARNESS.figure(TPU, "throughput", 158.91e12, "FLOP/s", _OVERFLOW),
    HARNESS.figure("GPU against CPU (Colab)", "speed_up", 29.0, "times", _RATIOS),
    HARNESS.figure("TPU, cold, against CPU (Colab)", "speed_up", 75.0, "times", _RATIOS),
    HARNESS.figure("TPU against CPU (Colab)", "speed_up", 338.0, "times", _RATIOS),
)

METRICS = (
    MetricSpec("throughput", "FLOP/s", "higher", "Floating-point operations per second, 2·M·N·K per product"),
    MetricSpec("execution_time", "s", "lower", "Time of one execution: `repeats` products", amount="execution"),
)


def metrics_of(params: MatmulParams) -> tuple[MetricSpec, ...]:
    """Integer operations are no floating-point ones."""
    if params.dtype != "int8":
        return METRICS
    return tuple(replace(spec, unit="OP/s") if spec.unit == "FLOP/s" else spec for spec in METRICS)


WORKLOAD = Workload(
    name="matmul",
    description="Matrix products: the throughput of the device's multiply-add units",
    params=MatmulParams,
    metrics=METRICS,
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=REFERENCES,
    refuses=refuses,
    metrics_of=metrics_of,
    cases_of=lambda params: () if params.sizes is None else tuple(size.label for size in params.each),
    executions=lambda params: f"{params.repeats} products, and the sum of the last one read back",
)

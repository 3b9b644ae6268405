"""Time STREAM's four kernels on arrays of given sizes: copy, scale, add and triad, in bytes per second.

McCalpin 1995, "Memory Bandwidth and Machine Balance in Current High Performance Computers":

- copy: y = x, two arrays
- scale: y = s·x, two arrays
- add: y = x + z, three arrays
- triad: y = z + s·x, three arrays

Bytes are arrays x elements x 4 (float32), as STREAM counts them: a processor that reads a cache line before it writes
the line moves more. By default an array is four times as large as the last-level cache. Smaller arrays show the caches.

The values of x and z are odd integers for which y fits the 24 bits of float32, but not the 11 bits of a coarser
precision. So y is known exactly, and the check compares all of its values. On a CPU, arrays below LARGE_BYTES take a
loop of many kernels inside one compiled function, because a call would take longer than the kernel. There s grows by 1
with each kernel of scale and triad, so y shows how many turns the loop made. This takes bits of s, so copy and add of
arrays below 32 KiB leave the precision unknown.

XLA compiles the kernels, on TensorFlow too. It would remove a copy, so copy and add multiply by an s of 1 that XLA
doesn't know: there they are the same instructions as scale and triad. PyTorch calls its own kernels one by one. A call
takes 2 us, so small arrays show the call instead of the cache.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from dyno.bench import contract, estimates
from dyno.bench.devices.cpu import data_caches, streamed_bytes
from dyno.bench.frameworks.interface import STREAM, Framework, StreamKernel, StreamOperands
from dyno.bench.workloads import _exact as exact
from dyno.bench.workloads._exact import ITEM_BYTES, MOST_CASES, Array, ArrayBytes
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.spec import FrameworkName

ARRAYS: dict[StreamKernel, int] = {"copy": 2, "scale": 2, "add": 3, "triad": 3}

LARGE_BYTES = 32 << 20  # from here on, a call costs about 1 % of a kernel: 50 us of 4 ms
_LOOPED_BYTES = 128 << 20  # of x in all kernels of one loop
_LEAST_KERNELS = 128  # TensorFlow writes y once more at the start of a loop: at most 0.4 % of the bytes
_ACCELERATOR_BYTES = 1 << 30  # more than any cache


class MemoryBandwidthParams(contract.Params):
    kernels: list[StreamKernel] = Field(
        ["triad", "copy", "scale", "add"],
        min_length=1,
        max_length=len(ARRAYS),
        description="In this order; the first has the headline figures",
    )
    array_bytes: ArrayBytes | None = Field(
        None,
        description="Size of an array; null: four times the last-level cache, at least 64 MiB; on accelerators 1 GiB",
    )
    sizes: list[ArrayBytes] | None = Field(
        None, min_length=1, max_length=MOST_CASES, description="Several sizes of an array, instead of `array_bytes`"
    )

    def conflicts(self) -> list[FieldError]:
        return exact.conflicts_of_sizes(self, "kernels", "array_bytes")

    def arrays(self, device: Device | None) -> list[int]:
        """The bytes of an array, in each size."""
        if self.sizes or self.array_bytes:
            return self.sizes or [self.array_bytes or 0]
        if device is None:
            return [LARGE_BYTES]
        if device.driven_as == "cpu":
            return [streamed_bytes(device.last_cache_bytes, device.memory_bytes)]
        # A kernel takes at least 0.2 ms, several times as long as its call.
        return [min(_ACCELERATOR_BYTES, device.memory_bytes // 16 // 64 * 64)]

    def cases(self, device: Device | None = None) -> list[tuple[str, StreamKernel, int]]:
        """(name, kernel, bytes of an array) of each case."""
        return exact.named_cases(self.kernels, self.arrays(device), several=self.sizes is not None)


def kernels_in(array_bytes: int, kind: str) -> int:
    """The number of kernels in one execution."""
    if kind != "cpu" or array_bytes >= LARGE_BYTES:
        return 1
    return max(_LEAST_KERNELS, _LOOPED_BYTES // array_bytes)


def bytes_of(kernel: StreamKernel, array_bytes: int, times: int) -> int:
    """The bytes of `times` kernels, as STREAM counts them."""
    return times * ARRAYS[kernel] * array_bytes


class _Operands:
    """The arrays x and z of one size, on the host and on the device. All kernels of the size share them."""

    def __init__(self, size_bytes: int, context: contract.BuildContext) -> None:
        self._framework, count = context.framework, size_bytes // ITEM_BYTES
        self.times = kernels_in(size_bytes, context.device.driven_as if context.device else "cpu")
        with context.phase("data"):
            below = exact.LARGEST // (2 + self.times) // 2
            self._on_host = exact.odd_integers([context.seed, size_bytes], (2, count), below)
        with context.phase("build"):
            self._on_device = [self._framework.array(array, "float32") for array in self._on_host]

    def of(self, kernel: StreamKernel) -> StreamOperands:
        first_and_step = 1 + _step(kernel), _step(kernel)
        scalars = (self._framework.array(np.array(value, np.float32), "float32") for value in first_and_step)
        return StreamOperands(*self._on_device, *scalars)

    def expected(self, kernel: StreamKernel) -> Array:
        """The values of y after an execution."""
        x, z = self._on_host
        y: Array = STREAM[kernel](x, z, np.float32(1 + self.times * _step(kernel)))
        return y

    def bytes(self, kernel: StreamKernel) -> int:
        """The size of the framework's arrays in one kernel; y is as large as x."""
        elements: int = math.prod(self._on_device[0].shape)
        return ARRAYS[kernel] * elements * ITEM_BYTES

    def empty(self) -> Any:
        """An array for y. Its values are NaN, so a kernel that doesn't write all of them is found."""
        return self._framework.array(np.full_like(self._on_host[0], math.nan), "float32")


def _step(kernel: StreamKernel) -> int:
    return 1 if kernel in ("scale", "triad") else 0


class _Kernel:
    """One kernel on arrays of one size. `name`: the name of its case."""

    def __init__(
        self, name: str, kernel: StreamKernel, size_bytes: int, operands: _Operands, context: contract.BuildContext
    ) -> None:
        self.name, self.size_bytes, self._kernel, self._operands = name, size_bytes, kernel, operands
        self._framework: Framework = context.framework
        self._times, self._bytes = operands.times, bytes_of(kernel, size_bytes, operands.times)
        with context.phase("build"):
            self._y = operands.empty()

    def compile(self) -> None:
        self.execute = self._compiled(self._times)

    def _compiled(self, times: int) -> Callable[[int], None]:
        call = self._framework.stream(self._kernel, times, self._operands.of(self._kernel))

        def execute(count: int) -> None:
            for _ in range(count):
                self._y = call(self._y)
            self._framework.scalar(self._y[0])

        return execute

    def _grown(self, times: float) -> Callable[[int], None] | None:
        """An execution with `times` as many kernels; None if that isn't a whole number."""
        kernels = self._times * times
        return self._compiled(int(kernels)) if kernels >= 1 and kernels == int(kernels) else None

    def case(self) -> contract.Case:
        return contract.Case(
            name=self.name,
            work=float(self._bytes),
            flops=0.0,  # the memory limits the speed: a share of the peak would say nothing
            dtype="float32",
            execute=lambda count: self.execute(count),
            grown=self._grown,
            bytes=float(self._bytes),
            counted_bytes=lambda: float(self._times * self._operands.bytes(self._kernel)),
        )

    def check(self) -> exact.Check:
        """Compare all values of y."""
        facts = {"array_bytes": self.size_bytes, "bytes": self._bytes, "kernels": self._times}
        return exact.check(self.name, self._framework.numpy(self._y), self._operands.expected(self._kernel), **facts)


class Stream(contract.CaseByCase):
    """All kernels and sizes of a job, as cases."""

    def __init__(self, params: MemoryBandwidthParams, context: contract.BuildContext) -> None:
        by_size = {size: _Operands(size, context) for size in params.arrays(context.device)}
        self._kernels = [
            _Kernel(name, kernel, size, by_size[size], context) for name, kernel, size in params.cases(context.device)
        ]
        self._several = params.sizes is not None
        self._caches = data_caches(context.device.cores) if context.device else {}  # of an accelerator none
        super().__init__(self._kernels, [kernel.case() for kernel in self._kernels])

    def verify(self) -> contract.Verification:
        # Users give several sizes to measure caches, too.
        working_set = {} if self._several else {"working_set_bytes": self._kernels[0].size_bytes}
        checks = {kernel.name: kernel.check() for kernel in self._kernels}
        return exact.verification(checks, "kernels", caches=self._caches, **working_set)


_ASSUMED_BYTES_PER_S = {"cpu": 5e9, "gpu": 3e11, "tpu": 3e11}
_START_S = 0.2  # tracing and compiling a kernel
_MAKING_S = 2e-8  # a random value, and its check on the host


def estimate(
    params: MemoryBandwidthParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    cases, kind = params.cases(device), device.driven_as
    per_s = _ASSUMED_BYTES_PER_S[kind]
    times_s = tuple(bytes_of(kernel, size, kernels_in(size, kind)) / per_s for _, kernel, size in cases)
    sizes = params.arrays(device)
    # x and z of each size; y of each case, one more that TensorFlow writes, and the state of a loop
    arrays = 2 * sum(sizes) + sum(size for _, _, size in cases) + 2 * max(sizes)
    on_host = 2 * sum(sizes) + 3 * max(sizes)
    memory_bytes = arrays + estimates.runtime_bytes(device) + (on_host if kind == "cpu" else 0)
    elements = sum(size for _, _, size in cases) / ITEM_BYTES
    return contract.Estimate(
        _START_S * len(cases) + _MAKING_S * elements + 2 * math.fsum(times_s), memory_bytes, executions_s=times_s
    )


def flops(params: MemoryBandwidthParams) -> float:
    """0: the kernels are bound by memory, so a share of the peak would say nothing."""
    return 0.0


WORKLOAD = contract.Workload(
    name="memory_bandwidth",
    description="STREAM's copy, scale, add and triad, on arrays larger than the caches or of given sizes",
    params=MemoryBandwidthParams,
    metrics=(contract.MetricSpec("bandwidth", "bytes/s", "higher", "Bytes read and written per second, as in STREAM"),),
    flops=flops,
    estimate=estimate,
    build=Stream,
    cases_of=lambda params: tuple(name for name, _, _ in params.cases()),
    executions=lambda params: "one kernel, or a loop of kernels; the first value of the last y is read back",
    smoke=contract.Smoke({"array_bytes": 65536}, details=frozenset({"kernels"})),
    bench={},
    options="4 kernels; one or several array sizes",
)

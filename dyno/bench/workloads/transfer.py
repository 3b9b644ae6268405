"""Time copies between the host's memory and an accelerator's, in both directions: bytes per second and time of a copy.

Pinned memory of the host is page-locked, so the device reads and writes it itself. For pageable memory, which most
programs use, the driver copies through pinned memory of its own. Each copy is waited for, so small copies show the
latency, and large copies the bandwidth of the link, such as PCIe. Bytes are those of the array, counted once, as in
NVIDIA's nvbandwidth.

PyTorch copies on each call, to memory that exists already. TensorFlow and JAX may answer a second copy of the same
array from the first one, so they don't run this workload. A CPU uses the host's memory itself and needs no copy.

The values are odd integers of 24 bits in float32. The check compares all values that the last copy wrote, and before
the first copy they are NaN. `details.copies` has the route of each case, as PyTorch reports it.
"""

import math
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from dyno.bench import contract, estimates
from dyno.bench.frameworks.interface import HasTransfers, Transfer
from dyno.bench.workloads import _exact as exact
from dyno.bench.workloads._exact import ITEM_BYTES, MOST_CASES
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.spec import FrameworkName

Kind = Literal["to_device_pinned", "to_device_pageable", "to_host_pinned", "to_host_pageable"]
CopyBytes = Annotated[int, Field(ge=ITEM_BYTES, le=1 << 30, multiple_of=ITEM_BYTES)]
_DEFAULT_BYTES = 256 << 20


class TransferParams(contract.Params):
    copies: list[Kind] = Field(
        ["to_device_pinned", "to_device_pageable", "to_host_pinned", "to_host_pageable"],
        min_length=1,
        max_length=4,
        description="In this order; the first has the headline figures",
    )
    copy_bytes: CopyBytes | None = Field(None, description="Size of a copy; null: 256 MiB")
    sizes: list[CopyBytes] | None = Field(
        None, min_length=1, max_length=MOST_CASES, description="Several sizes of a copy, instead of `copy_bytes`"
    )

    def conflicts(self) -> list[FieldError]:
        return exact.conflicts_of_sizes(self, "copies", "copy_bytes")

    def cases(self) -> list[tuple[str, Kind, int]]:
        """(name, kind, bytes) of each case."""
        sizes = self.sizes or [self.copy_bytes or _DEFAULT_BYTES]
        return exact.named_cases(self.copies, sizes, several=self.sizes is not None)


class _Copy:
    """Copies of one kind and size. `name`: the name of its case."""

    def __init__(self, name: str, kind: Kind, values: exact.Array, context: contract.BuildContext) -> None:
        assert isinstance(context.framework, HasTransfers), "Workload.frameworks names these frameworks only"
        self.name, self._values, self._bytes, self._seed = name, values, values.nbytes, context.seed
        self._framework, self._kind = context.framework, kind

    def _made(self, values: exact.Array) -> Transfer:
        return self._framework.transfer(
            values, to_host=self._kind.startswith("to_host"), pinned=self._kind.endswith("pinned")
        )

    def compile(self) -> None:
        self._transfer = self._made(self._values)

    def _grown(self, times: float) -> Callable[[int], None] | None:
        """Copies of `times` as many bytes."""
        count = len(self._values) * times
        return self._made(_random_values(self._seed, int(count))).execute if count == int(count) >= 1 else None

    def case(self) -> contract.Case:
        return contract.Case(
            name=self.name,
            work=float(self._bytes),
            flops=0.0,
            dtype="float32",
            execute=lambda count: self._transfer.execute(count),
            amounts={"copy": float(self._bytes)},
            grown=self._grown,
            bytes=float(self._bytes),
            counted_bytes=lambda: float(self._transfer.bytes),
            over_link=True,
        )

    def check(self) -> exact.Check:
        """Compare all values that the last copy wrote."""
        facts = {"copy_bytes": self._bytes, "route": self._transfer.route}
        return exact.check(self.name, self._transfer.arrived(), self._values, **facts)


def _random_values(seed: int, count: int) -> exact.Array:
    return exact.odd_integers([seed, count], (count,), exact.LARGEST // 2)


class Transfers(contract.CaseByCase):
    """All kinds and sizes of a job, as cases."""

    def __init__(self, params: TransferParams, context: contract.BuildContext) -> None:
        with context.phase("data"):
            sizes = {size for _, _, size in params.cases()}
            values = {size: _random_values(context.seed, size // ITEM_BYTES) for size in sizes}
        self._copies = [_Copy(name, kind, values[size], context) for name, kind, size in params.cases()]
        super().__init__(self._copies, [copy.case() for copy in self._copies])

    def verify(self) -> contract.Verification:
        verification = exact.verification({copy.name: copy.check() for copy in self._copies}, "copies")
        verification.amounts |= self.cases[0].amounts
        return verification


_ASSUMED_BYTES_PER_S = 1e10  # a link of PCIe 3
_CALL_S = 1e-5
_MAKING_S = 1e-8  # a random value, and its check on the host


def estimate(
    params: TransferParams, device: Device, replicas: int = 1, framework: FrameworkName = "torch"
) -> contract.Estimate:
    sizes = [size for _, _, size in params.cases()]
    times_s = tuple(_CALL_S + size / _ASSUMED_BYTES_PER_S for size in sizes)
    # The checks of the first run copy twice as much once more.
    held = sum(sizes) + 2 * max(sizes) + estimates.runtime_bytes(device)
    return contract.Estimate(_MAKING_S * sum(sizes) / ITEM_BYTES + 2 * math.fsum(times_s), held, executions_s=times_s)


def flops(params: TransferParams) -> float:
    """0: the link limits the speed, so a share of the peak would say nothing."""
    return 0.0


def refuses(params: TransferParams, device: Device) -> list[FieldError]:
    """Refuses all CPUs."""
    if device.driven_as != "cpu":
        return []
    detail = "a CPU works in the host's memory: there is nothing to transfer. Use memory_bandwidth, or an accelerator"
    return [FieldError("/copies", "device_unsupported", detail)]


WORKLOAD = contract.Workload(
    name="transfer",
    description="Copies between the host's memory, pinned or pageable, and an accelerator's, in both directions",
    params=TransferParams,
    metrics=(
        contract.MetricSpec("bandwidth", "bytes/s", "higher", "Bytes copied per second"),
        contract.MetricSpec("execution_time", "s", "lower", "Time of one copy", amount="copy"),
    ),
    flops=flops,
    estimate=estimate,
    build=Transfers,
    refuses=refuses,
    frameworks=("torch",),
    cases_of=lambda params: tuple(name for name, _, _ in params.cases()),
    executions=lambda params: "one copy",
    smoke=contract.Smoke({"copy_bytes": 65536}, details=frozenset({"copies"})),
    bench={},
    options="both directions, pinned and pageable; one or several sizes; PyTorch, on GPUs",
)

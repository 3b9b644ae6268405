"""Time collective operations over the units of a device, such as the GPUs of a host: bytes per second and time.

Message sizes and bandwidths are those of nccl-tests (doc/PERFORMANCE.md). For n units and a message of S bytes:

| operation      | a unit sends | a unit gets                  | bus bandwidth / algorithm bandwidth |
|----------------|--------------|------------------------------|-------------------------------------|
| all_reduce     | S            | the sum of all messages, S   | 2 (n - 1) / n                       |
| all_gather     | S / n        | all parts, S                 | (n - 1) / n                         |
| reduce_scatter | S            | its part of the sum, S / n   | (n - 1) / n                         |
| all_to_all     | S            | a part of every message, S   | (n - 1) / n                         |
| broadcast      | S            | the message of unit 0, S     | 1                                   |
| send_receive   | S            | the previous unit's message  | 1                                   |

Algorithm bandwidth is S / time. Bus bandwidth doesn't depend on n if every link is busy, so it compares with the
bandwidth of a link.

The values are odd integers whose sums fit the 24 bits of float32, so every output is known exactly. The check compares
all values of all units. An execution is one call of the compiled operation. For small messages it takes the time of
the call.

On a CPU the units are virtual: messages are copies in its memory, so the result has EMULATED_DEVICE. XLA has no
broadcast there.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dyno.bench import contract, estimates
from dyno.bench.frameworks.interface import Collective, CompiledCollective, HasCollectives
from dyno.bench.measure.warnings import warning
from dyno.bench.workloads import _exact as exact
from dyno.bench.workloads._exact import ITEM_BYTES, MOST_CASES, ArrayBytes
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName

# Bus bandwidth divided by algorithm bandwidth, for a number of units.
_BUS: dict[Collective, Callable[[int], float]] = {
    "all_reduce": lambda units: 2 * (units - 1) / units,
    "all_gather": lambda units: (units - 1) / units,
    "reduce_scatter": lambda units: (units - 1) / units,
    "all_to_all": lambda units: (units - 1) / units,
    "broadcast": lambda units: 1.0,
    "send_receive": lambda units: 1.0,
}


class CollectivesParams(contract.Params):
    operations: list[Collective] = Field(
        ["all_reduce", "all_gather", "reduce_scatter", "send_receive"],
        min_length=1,
        max_length=len(_BUS),
        description="In this order; the first has the headline figures",
    )
    message_bytes: ArrayBytes | None = Field(
        None, description="Size of a message as nccl-tests counts it; null: 64 MiB, on a CPU 4 MiB"
    )
    sizes: list[ArrayBytes] | None = Field(
        None, min_length=1, max_length=MOST_CASES, description="Several sizes of a message, instead of `message_bytes`"
    )

    def conflicts(self) -> list[FieldError]:
        return exact.conflicts_of_sizes(self, "operations", "message_bytes")

    def conflicts_on(self, framework: FrameworkName, replicas: int) -> list[FieldError]:
        """Each unit sends a part to every unit, so a message has a value for each of them."""
        least = ITEM_BYTES * replicas
        name, sizes = ("sizes", self.sizes) if self.sizes else ("message_bytes", [self.message_bytes or least])
        if min(sizes) >= least:
            return []
        return [FieldError(f"/{name}", "too-small", f"{replicas} units need messages of at least {least} bytes")]

    def messages(self, device: Device | None) -> list[int]:
        """The bytes of a message, in each size."""
        if self.sizes or self.message_bytes:
            return self.sizes or [self.message_bytes or 0]
        return [4 << 20 if device is None or device.driven_as == "cpu" else 64 << 20]

    def cases(self, device: Device | None = None) -> list[tuple[str, Collective, int]]:
        """(name, operation, bytes of a message) of each case."""
        return exact.named_cases(self.operations, self.messages(device), several=self.sizes is not None)


def part_of(message_bytes: int, units: int) -> int:
    """The number of values in a unit's part of a message. A message is rounded down to whole parts."""
    return message_bytes // (ITEM_BYTES * units)


def traffic_bytes(operation: Collective, part: int, units: int) -> int:
    """The bytes that all units read and write in their own memories: each its input once and its output once."""
    sent = part if operation == "all_gather" else part * units
    gets = part if operation == "reduce_scatter" else part * units
    return units * (sent + gets) * ITEM_BYTES


def _expected(operation: Collective, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The outputs of all units, one in each row."""
    units = len(rows)
    each_gets: dict[Collective, Callable[[], Any]] = {
        "all_reduce": lambda: np.tile(rows.sum(0), (units, 1)),
        "all_gather": lambda: np.tile(rows.reshape(-1), (units, 1)),
        "reduce_scatter": lambda: rows.sum(0).reshape(units, -1),
        "all_to_all": lambda: rows.reshape(units, units, -1).transpose(1, 0, 2).reshape(units, -1),
        "broadcast": lambda: np.tile(rows[0], (units, 1)),
        "send_receive": lambda: np.roll(rows, 1, axis=0),
    }
    outputs: NDArray[np.float32] = each_gets[operation]()
    return outputs


class _Operation:
    """One operation with messages of one size. `name`: the name of its case."""

    def __init__(self, name: str, operation: Collective, size_bytes: int, context: contract.BuildContext) -> None:
        assert isinstance(context.framework, HasCollectives), "Workload.frameworks names these frameworks only"
        self.name, self._operation, self._framework = name, operation, context.framework
        self._units, self._part = context.replicas, part_of(size_bytes, context.replicas)
        self._over_link = context.device is not None and context.device.driven_as != "cpu"
        with context.phase("data"):
            self._rows = self._random_rows(context.seed, self._part)
        self._seed, self._bytes = context.seed, float(traffic_bytes(operation, self._part, self._units))

    def _random_rows(self, seed: int, part: int) -> NDArray[np.float32]:
        values = part if self._operation == "all_gather" else part * self._units
        return exact.odd_integers([seed, values], (self._units, values), exact.LARGEST // self._units // 2)

    def compile(self) -> None:
        self._compiled: CompiledCollective = self._framework.collective(self._operation, self._rows)

    def _grown(self, times: float) -> Callable[[int], None] | None:
        """The operation with messages `times` as long."""
        part = self._part * times
        if part < 1 or part != int(part):
            return None
        return self._framework.collective(self._operation, self._random_rows(self._seed, int(part))).execute

    def case(self) -> contract.Case:
        message, bus = float(self._part * self._units * ITEM_BYTES), _BUS[self._operation](self._units)
        return contract.Case(
            name=self.name,
            work=bus * message,
            flops=0.0,
            dtype="float32",
            execute=lambda count: self._compiled.execute(count),
            amounts={"operation": bus * message, "message": bus},
            grown=self._grown,
            bytes=self._bytes,
            counted_bytes=lambda: float(self._compiled.bytes),
            over_link=self._over_link,
        )

    def check(self) -> exact.Check:
        """Compare all values of all units."""
        facts = {"message_bytes": self._part * self._units * ITEM_BYTES, "bytes": self._bytes}
        return exact.check(self.name, self._compiled.outputs(), _expected(self._operation, self._rows), **facts)


class Collectives(contract.CaseByCase):
    """All operations and sizes of a job, as cases."""

    def __init__(self, params: CollectivesParams, context: contract.BuildContext) -> None:
        self._operations = [
            _Operation(name, operation, size, context) for name, operation, size in params.cases(context.device)
        ]
        super().__init__(self._operations, [operation.case() for operation in self._operations])

    def verify(self) -> contract.Verification:
        checks = {operation.name: operation.check() for operation in self._operations}
        verification = exact.verification(checks, "operations")
        verification.amounts |= self.cases[0].amounts
        return verification


_ASSUMED_BYTES_PER_S = {"cpu": 2e9, "gpu": 2e10, "tpu": 2e10}  # bus bandwidth
_CALL_S = {"cpu": 2e-3, "gpu": 1e-4, "tpu": 1e-4}
_START_S = 0.3  # tracing and compiling an operation
_MAKING_S = 1e-8  # a random value, and its check on the host


def estimate(
    params: CollectivesParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    cases, kind = params.cases(device), device.driven_as
    sharing = replicas if kind == "cpu" else 1  # virtual units share a processor's memory
    times_s = tuple(
        _CALL_S[kind] + sharing * _BUS[operation](replicas) * size / _ASSUMED_BYTES_PER_S[kind]
        for _, operation, size in cases
    )
    traffic = [traffic_bytes(operation, part_of(size, replicas), replicas) for _, operation, size in cases]
    # The checks of the first run need a further operation, with messages up to twice as long.
    held = (sum(traffic) + 2 * max(traffic)) // (1 if kind == "cpu" else replicas)
    on_host = 2 * sum(traffic) if kind == "cpu" else 0
    values = sum(traffic) / ITEM_BYTES
    return contract.Estimate(
        _START_S * len(cases) + _MAKING_S * values + 2 * math.fsum(times_s),
        held + on_host + estimates.runtime_bytes(device),
        executions_s=times_s,
    )


def flops(params: CollectivesParams) -> float:
    """0: links and memory limit the speed, so a share of the peak would say nothing."""
    return 0.0


def refuses(params: CollectivesParams, device: Device) -> list[FieldError]:
    """Refuses a broadcast on CPUs, where XLA doesn't implement it."""
    if "broadcast" not in params.operations or device.driven_as != "cpu":
        return []
    return [FieldError("/operations", "operation_unsupported", "on a CPU, XLA has no broadcast")]


def lint(params: CollectivesParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    """Warns that the units of a CPU are virtual. The results of emulated accelerators have the warning anyway."""
    if device is None or device.kind != "cpu":
        return []
    return [warning("EMULATED_DEVICE", "The units are virtual devices on one CPU.", units=replicas)]


WORKLOAD = contract.Workload(
    name="collectives",
    description="Collective operations over the units of a device: bus bandwidth as nccl-tests defines it, and time",
    params=CollectivesParams,
    metrics=(
        contract.MetricSpec("bus_bandwidth", "bytes/s", "higher", "Bytes over the busiest link, as in nccl-tests"),
        contract.MetricSpec(
            "algorithm_bandwidth", "bytes/s", "higher", "Bytes of the message per second", amount="message"
        ),
        contract.MetricSpec("execution_time", "s", "lower", "Time of one operation", amount="operation"),
    ),
    flops=flops,
    estimate=estimate,
    build=Collectives,
    lint=lint,
    refuses=refuses,
    frameworks=("jax",),
    replicable=True,
    least_replicas=2,
    cases_of=lambda params: tuple(name for name, _, _ in params.cases()),
    executions=lambda params: "one call of the compiled operation; a value of each unit's output is read back",
    smoke=contract.Smoke(
        {"message_bytes": 65536},
        replicas=2,
        details=frozenset({"operations"}),
        warnings=frozenset({"EMULATED_DEVICE"}),
    ),
    bench={},
    options="6 operations; one or several message sizes; JAX, with at least 2 `replicas`",
)

"""Code that a gate in CI is to judge: chains of matrix products, `as_before` and in a version that takes 5 % longer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from dyno.bench import contract, estimates
from dyno.bench.measure import result_checks
from dyno.bench.measure.warnings import OUTPUT_CODES
from dyno.models.device import Device

PRODUCTS = {"as_before": 20, "slower": 21}
ASSUMED_FLOPS = 1e11
TOLERANCE = 1e-4  # of products in float32, and of a processor that rounds their operands


class GatedCodeParams(contract.Params):
    how: ClassVar[frozenset[str]] = frozenset({"version"})

    n: Annotated[int, Field(ge=2, le=8192)] = Field(1024, description="Rows and columns of the matrices")
    version: Literal["as_before", "slower"] = Field("as_before", description="The version of the code")


def flops(params: GatedCodeParams) -> float:
    return 2.0 * params.n**3 * PRODUCTS[params.version]


def estimate(
    params: GatedCodeParams, device: Device, replicas: int = 1, framework: str = "tensorflow"
) -> contract.Estimate:
    execution_s = flops(params) / ASSUMED_FLOPS
    memory_bytes = estimates.runtime_bytes(device) + 10 * 8 * params.n**2
    return contract.Estimate(1.0, memory_bytes, executions_s=(execution_s,))


class GatedCode:
    def __init__(self, params: GatedCodeParams, context: contract.BuildContext) -> None:
        self.work, self.products = 1.0, PRODUCTS[params.version]
        self.framework = context.framework
        random = np.random.default_rng(context.seed)
        with context.phase("data"):
            first, factor = (random.standard_normal((params.n, params.n), dtype=np.float32) for _ in range(2))
            self.matrices = [first, factor / np.float32(params.n**0.5)]  # products stay as large as `first`
        with context.phase("build"):
            self.operands = [self.framework.array(matrix, "float32") for matrix in self.matrices]

    def compile(self) -> None:
        self.chain = self.framework.compile(self._chain, *self.operands)

    def _chain(self, product: Any, factor: Any) -> Any:
        for _ in range(self.products):
            product = product @ factor
        return product

    def execute(self, count: int) -> None:
        for _ in range(count):
            self.product = self.chain(*self.operands)
        self.framework.scalar(self.product[0][0])  # reading a value back waits for the device

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> contract.Verification:
        """Compare the last timed chain with NumPy's in float64."""
        expected = self._chain(*(matrix.astype(np.float64) for matrix in self.matrices))
        seen = self.framework.numpy(self.product)
        nonfinite = int(np.count_nonzero(~np.isfinite(seen)))
        error = float(np.linalg.norm(seen - expected) / np.linalg.norm(expected))
        found = [
            result_checks.output_nonfinite(nonfinite, seen.size),
            None if nonfinite else result_checks.result_incorrect(error, TOLERANCE),
            result_checks.degenerate_data(self.matrices[0]),
        ]
        return contract.Verification(
            warnings=[warning for warning in found if warning is not None],
            verified=OUTPUT_CODES,
            amounts={"execution": self.work},
        )


WORKLOAD = contract.Workload(
    name="gated_code",
    description="Chains of matrix products, in two versions",
    params=GatedCodeParams,
    metrics=(
        contract.MetricSpec("chains", "chains/s", "higher", "Chains per second"),
        contract.MetricSpec("execution_time", "s", "lower", "Time of one chain", amount="execution"),
    ),
    flops=flops,
    estimate=estimate,
    build=GatedCode,
)

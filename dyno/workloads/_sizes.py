"""Several matrix products in one job: each is a case of its own, sampled and verified alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dyno.measure.result_checks import precision_mismatch
from dyno.models.result import Precision, ResultWarning
from dyno.workloads.contract import Built, Case, Countable, Growable, Verification

if TYPE_CHECKING:
    from dyno.workloads._matmul_params import MatmulParams


class Sizes:
    """The products that `built` compute, in the order of `sizes`; its own execution is that of the first."""

    def __init__(self, sizes: Sequence[MatmulParams], built: Sequence[Built]) -> None:
        self._built = {size.label: each for size, each in zip(sizes, built, strict=True)}
        self._first = built[0]
        self.work = self._first.work
        self.cases = [_case(size.label, size.dtype, each) for size, each in zip(sizes, built, strict=True)]

    def compile(self) -> None:
        for each in self._built.values():
            each.compile()

    def execute(self, count: int) -> None:
        self._first.execute(count)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> Verification:
        """What was found of each; of all together the first wrong precision, the smallest working set."""
        found = {label: each.verify() for label, each in self._built.items()}
        warnings = [_of(label, raised) for label, each in found.items() for raised in each.warnings]
        by_size: dict[str, Any] = {label: each.details for label, each in found.items()}
        smallest = min(details["working_set_bytes"] for details in by_size.values())
        return Verification(
            warnings=warnings,
            unchecked=_untold(found) | {code: why for each in found.values() for code, why in each.unchecked.items()},
            verified=frozenset.intersection(*(each.verified for each in found.values())),
            precision=_doubted([each.precision for each in found.values() if each.precision is not None]),
            details={"working_set_bytes": smallest, "sizes": by_size},
            amounts=next(iter(found.values())).amounts,
        )


def _case(label: str, dtype: str, built: Built) -> Case:
    return Case(
        name=label,
        work=built.work,
        flops=built.work,
        dtype=dtype,
        execute=built.execute,
        amounts={"execution": built.work},
        grown=built.grown if isinstance(built, Growable) else None,
        counted_flops=built.counted_flops if isinstance(built, Countable) else None,
    )


def _of(label: str, raised: ResultWarning) -> ResultWarning:
    return raised.model_copy(update={"evidence": {"size": label, **raised.evidence}})


def _untold(found: Mapping[str, Verification]) -> dict[str, str]:
    """What is known of the precision of one size says nothing of another's."""
    silent = [label for label, each in found.items() if each.precision is None or each.precision.observed is None]
    return {"PRECISION_MISMATCH": f"a product of {silent[0]} doesn't tell its precision"} if silent else {}


def _doubted(seen: Sequence[Precision]) -> Precision | None:
    """One that isn't what was asked for, else the one with the largest error among those that tell."""
    wrong = [precision for precision in seen if precision_mismatch(precision)]
    told = [precision for precision in seen if precision.observed is not None]
    return max(wrong or told or seen, key=lambda precision: precision.rel_error or 0.0, default=None)

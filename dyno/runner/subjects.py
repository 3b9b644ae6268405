"""What of a run is examined after its samples: each case with what it was executed and counted by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dyno.runner.cases import Sampled
from dyno.runner.samples import Taken
from dyno.workloads.contract import Built, Countable, Growable, Grown


@dataclass(frozen=True)
class Subject:
    """One case as it was sampled. `flops` are those that its figures count for one execution."""

    execute: Callable[[int], None]
    taken: Taken
    flops: float
    dtype: str
    grown: Grown | None = None
    counted_flops: Callable[[], float | None] | None = None


def subjects(built: Built, own: Taken, cases: Sequence[Sampled], flops: float, dtype: str) -> list[Subject]:
    """Of a run without cases its own execution, which counts `flops` in `dtype`."""
    if cases:
        return [_of_case(each) for each in cases]
    grown = built.grown if isinstance(built, Growable) else None
    counted_flops = built.counted_flops if isinstance(built, Countable) else None
    return [Subject(built.execute, own, flops, dtype, grown, counted_flops)]


def _of_case(sampled: Sampled) -> Subject:
    case = sampled.case
    return Subject(case.execute, sampled.taken, case.flops, case.dtype, case.grown, case.counted_flops)

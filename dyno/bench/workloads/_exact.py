"""Work whose every output is known: arrays of odd integers in float32, cases by work and size, and the comparison.

Odd integers of up to 24 bits need all bits of a float32, so an exact output also shows that no step rounded to the 11
bits of a coarser precision, if the values are large enough.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dyno.bench import contract
from dyno.bench.measure import correctness, result_checks
from dyno.bench.measure.warnings import OUTPUT_CODES
from dyno.errors import FieldError
from dyno.models.result import Precision, ResultWarning

ITEM_BYTES = 4
LARGEST = 1 << 24  # up to here, float32 represents every integer
_FINE = 0x1FFF  # the bits of a float32 that TF32 and all coarser formats lack
MOST_CASES = 64

Array = NDArray[np.float32]
ArrayBytes = Annotated[int, Field(ge=1024, le=1 << 36, multiple_of=ITEM_BYTES)]
Work = TypeVar("Work", bound=str)
Check = tuple[ResultWarning | None, dict[str, Any]]  # of one case: its warning and details


def odd_integers(seed: Sequence[int], shape: tuple[int, ...], below: int) -> Array:
    """Random odd integers of at most 2 `below` - 1."""
    values = np.random.default_rng(seed).integers(0, below, shape, np.int32)
    values *= 2
    values += 1
    return values.astype(np.float32)


def conflicts_of_sizes(params: Any, works: str, one_size: str) -> list[FieldError]:
    """Errors in `sizes` and the fields named `works` and `one_size`: a list, and a size instead of `sizes`."""
    names, sizes = getattr(params, works), params.sizes or []
    errors = [
        FieldError(f"/{name}", "not-unique", "name each value once")
        for name, values in ((works, names), ("sizes", sizes))
        if len(set(values)) < len(values)
    ]
    if sizes and getattr(params, one_size):
        errors.append(FieldError(f"/{one_size}", "conflict", f"give {one_size} or sizes, not both"))
    if (cases := len(names) * max(1, len(sizes))) > MOST_CASES:
        detail = f"{cases} cases ({works} x sizes); at most {MOST_CASES}: use fewer {works} or sizes"
        errors.append(FieldError("/sizes", "too-many", detail))
    return errors


def named_cases(works: Sequence[Work], sizes: Sequence[int], *, several: bool) -> list[tuple[str, Work, int]]:
    """(name, work, bytes) of each case. `several`: whether the sizes belong in the names."""
    return [(f"{work}_{_size_label(size)}" if several else work, work, size) for work in works for size in sizes]


def _size_label(size_bytes: int) -> str:
    """In the largest unit that gives a whole number: "64MiB", "1000B"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return f"{size_bytes}B"


def check(case: str, outputs: Array, expected: Array, **facts: Any) -> Check:
    """Compare all values. `facts`: further details of the case."""
    rel_error = _distance(outputs, expected)
    raised = result_checks.result_incorrect(rel_error, 0.0)
    details = {
        **facts,
        "rel_error": correctness.finite(rel_error),
        "shows_float32": rel_error == 0 and bool((expected.view(np.uint32) & _FINE).any()),
    }
    return raised and raised.model_copy(update={"evidence": {"case": case, **raised.evidence}}), details


def _distance(outputs: Array, expected: Array) -> float:
    """The relative error; infinite if outputs have another shape or aren't finite."""
    if np.array_equal(outputs, expected):
        return 0.0
    if outputs.shape != expected.shape:
        return math.inf
    distance = float(np.linalg.norm(outputs - expected) / np.linalg.norm(expected))
    return distance if math.isfinite(distance) else math.inf


def verification(checks: Mapping[str, Check], name: str, **details: Any) -> contract.Verification:
    """Of the checks by case, whose details are in `details[name]`, beside further `details`."""
    by_case = {case: of_case for case, (_, of_case) in checks.items()}
    errors = [of_case["rel_error"] for of_case in by_case.values()]
    return contract.Verification(
        warnings=[raised for raised, _ in checks.values() if raised is not None],
        verified=OUTPUT_CODES,
        precision=Precision(
            requested="float32",
            observed="float32" if all(of_case["shows_float32"] for of_case in by_case.values()) else None,
            rel_error=None if None in errors else max(errors),
        ),
        details={name: by_case, **details},
    )

"""What a `matmul` can be asked for: one size or several, a dtype, and how the products are strung together."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dyno.errors import FieldError
from dyno.measure.correctness import MAX_TOLERANCE, tolerance
from dyno.workloads._operands import LONGEST
from dyno.workloads.contract import Params

ITEM_BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2, "int8": 1}

Size = Annotated[int, Field(ge=1, le=1 << 24)]
Sides = Annotated[list[Size], Field(min_length=3, max_length=3)]  # [m, k, n]
_ONE_SIZE = 4096


class MatmulParams(Params):
    how: ClassVar[frozenset[str]] = frozenset({"repeats", "mode"})

    n: Size = Field(_ONE_SIZE, description="Columns of the product; alone, the side of square operands")
    m: Size | None = Field(None, description="Rows of the product; with k and n")
    k: Size | None = Field(None, description="The inner side; with m and n")
    repeats: Annotated[int, Field(ge=1, le=100_000)] = Field(100, description="Products in one execution")
    sizes: Annotated[list[Size | Sides], Field(min_length=1, max_length=32)] | None = Field(
        None, description="In place of n, m and k: several products, each n or [m, k, n], measured one after the other"
    )
    dtype: Literal["float32", "tf32", "bfloat16", "float16", "int8"] = Field(
        "float32", description="tf32: on GPUs that have it; int8: summed in int32"
    )
    mode: Literal["chain", "dispatch"] = Field("chain", description="Rectangular and int8 products: dispatch only")

    def conflicts(self) -> list[FieldError]:
        found = self._dtype_conflicts()
        if self.sizes is None:
            return [*found, *self._shape_conflicts(), *self._length_conflicts()]
        if self.m is not None or self.k is not None or self.n != _ONE_SIZE:
            found.append(FieldError("/sizes", "excess", "give sizes, or n, m and k"))
        labels = [size.label for size in self.each]
        for place, size in enumerate(self.each):
            of_one = [*size._shape_conflicts(), *size._length_conflicts()]
            if of_one:
                found.append(FieldError(f"/sizes/{place}", of_one[0].code, of_one[0].detail))
            if size.label in labels[:place]:
                found.append(FieldError(f"/sizes/{place}", "twice", f"{size.label} is there before"))
        return found

    def _dtype_conflicts(self) -> list[FieldError]:
        if self.dtype != "int8":
            return []
        found = []
        if self.mode == "chain":
            found.append(FieldError("/mode", "not_chained", 'int8 products can\'t be chained; take "mode": "dispatch"'))
        if (longest := max(size.sides[1] for size in self.each)) > LONGEST:
            detail = f"sums over {longest} products of int8 can leave int32; {LONGEST} can't"
            found.append(FieldError("/k" if self.k else "/sizes" if self.sizes else "/n", "overflow", detail))
        return found

    def _length_conflicts(self) -> list[FieldError]:
        """A chain so long that its honest rounding could hide any mistake can't be verified."""
        if self.mode == "dispatch" or self.dtype == "int8":
            return []
        longest = math.floor((MAX_TOLERANCE / tolerance(self.dtype, inner=self.n, products=1)) ** 2)
        if self.repeats <= longest:
            return []
        detail = f"a {self.dtype} chain of n = {self.n} can be verified up to {longest} products"
        return [FieldError("/repeats", "unverifiable", detail)]

    def _shape_conflicts(self) -> list[FieldError]:
        if self.m is None and self.k is None:
            return []
        given = {name for name in ("m", "k", "n") if getattr(self, name) is not None} & self.model_fields_set
        absent = [name for name in ("m", "k", "n") if name not in given]
        if absent:
            return [FieldError(f"/{name}", "missing", "m, k and n go together, or n alone") for name in absent]
        unequal = [name for name in ("m", "k") if getattr(self, name) != self.n]
        if self.mode == "chain" and unequal:
            detail = 'a chain needs m = k = n; rectangular products take "mode": "dispatch"'
            return [FieldError(f"/{name}", "not_square", detail) for name in unequal]
        return []

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @property
    def sides(self) -> tuple[int, int, int]:
        """(M, K, N) of M x K times K x N; of several sizes the first."""
        if self.sizes is not None:
            return self.each[0].sides
        return (self.m or self.n, self.k or self.n, self.n)

    @property
    def label(self) -> str:
        """One size in the name of a metric: MxKxN."""
        return "x".join(str(side) for side in self.sides)

    @property
    def product_bytes(self) -> int:
        """Bytes of one element of the product."""
        return 4 if self.dtype == "int8" else self.item_bytes

    @property
    def each(self) -> list[MatmulParams]:
        """These params for each size alone."""
        if self.sizes is None:
            return [self]
        alone = self.model_copy(update={"sizes": None})
        return [alone.model_copy(update=_sides(size)) for size in self.sizes]


def _sides(size: int | list[int]) -> dict[str, int | None]:
    if isinstance(size, int):
        return {"m": None, "k": None, "n": size}
    return dict(zip(("m", "k", "n"), size, strict=True))

"""Scaled units, and unknown figures said to be unknown."""

from __future__ import annotations

import pytest

from dyno.quantity import quantity


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.58e14, "FLOP/s", "158 TFLOP/s"),
        (1.5e11, "FLOP/s", "150 GFLOP/s"),
        (0.000182, "s", "182 µs"),
        (1.5, "s", "1.5 s"),
        (999.96, "s", "1000 s"),
        (0.0, "s", "0 s"),
        (3e-12, "s", "3e-12 s"),
        (2404.4, "samples/s", "2,404 samples/s"),
        (1234567.8, "samples/s", "1,234,568 samples/s"),
        (0.9922, "1", "0.9922"),
        (None, "s", "–"),
    ],
)
def test_a_quantity_gets_the_prefix_that_fits(value: float | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text

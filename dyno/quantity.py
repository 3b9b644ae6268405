"""Figures for a person: the only place where seconds become ms, and FLOP/s TFLOP/s."""

from __future__ import annotations

_PREFIXED = {"s", "FLOP/s", "FLOP", "bytes/s"}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def quantity(value: float | None, unit: str) -> str:
    """A figure with an SI prefix, where its unit takes one: 1.58e14 FLOP/s becomes "158 TFLOP/s"."""
    if value is None:
        return "–"
    if unit == "1":
        return f"{value:.4g}"
    if unit not in _PREFIXED:
        return f"{value:,.4g} {unit}" if abs(value) < 1e4 else f"{value:,.0f} {unit}"
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"

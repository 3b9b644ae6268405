"""Figures, JSON Schemas and cells of spreadsheets as text for people.

Only this module scales units, such as seconds to ms or FLOP/s to TFLOP/s.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import JsonValue

_PREFIXED = {"s", "FLOP/s", "FLOP", "bytes/s", "B"}
_SHORT = {"bytes/s": "B/s"}  # unit -> its form after a prefix
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def scaled_unit(value: float, unit: str) -> tuple[float, str]:
    """The divisor for figures of this size, and their unit after the division: (1e12, "TFLOP/s")."""
    if unit not in _PREFIXED:
        return 1.0, unit
    short = _SHORT.get(unit, unit)
    return next(((factor, prefix + short) for factor, prefix in _PREFIXES if abs(value) >= factor), (1.0, short))


def format_quantity(value: float | None, unit: str) -> str:
    """A figure as text, with an SI prefix if its unit can have one: 1.58e14 FLOP/s becomes "158 TFLOP/s"."""
    if value is None:
        return "–"
    if unit == "1":
        return f"{value:.4g}"
    if unit not in _PREFIXED:
        return f"{_without_exponent(value)} {unit}"
    factor, unit = scaled_unit(value, unit)
    return f"{_without_exponent(value / factor)} {unit}"


def percent(share: float) -> str:
    """A text such as `81 %`, `9.5 %` or `0.12 %`."""
    return f"{100 * share:,.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"


def _without_exponent(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 9999.5 else f"{value:,.0f}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """` (did you mean "matmul"?)` if a known name is similar, else nothing."""
    matches = get_close_matches(name, list(names), n=1)
    return f' (did you mean "{matches[0]}"?)' if matches else ""


def format_duration(time_s: float) -> str:
    """A duration as text, such as `40 s`, `12 min` or `3.5 h`."""
    if time_s < 100:
        return f"{time_s:.0f} s"
    return f"{time_s / 60:.0f} min" if time_s < 6000 else f"{time_s / 3600:.1f} h"


def ratio_in_words(unit: str) -> str:
    """Words after a ratio for a metric in `unit`: "times as fast" or "times as good"."""
    return "times as fast" if unit == "s" or unit.endswith("/s") else "times as good"


Schema = Mapping[str, Any]
_LEAST = {"minimum": "from", "exclusiveMinimum": "above"}
_MOST = {"maximum": "to", "exclusiveMaximum": "below"}


def describe_schema(schema: Schema, whole: Schema) -> str:
    """Text such as `integer from 1 to 4096, or null`. `whole` holds the definitions that `schema` refers to."""
    if "anyOf" in schema:
        return ", or ".join(describe_schema(option, whole) for option in schema["anyOf"])
    if "$ref" in schema:
        return describe_schema(whole.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {}), whole)
    if "enum" in schema or "const" in schema:
        return ", ".join(map(_plain, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"array{_count(schema)}, each {describe_schema(schema.get('items', {}), whole)}"
    if schema.get("type") == "object":
        return json.dumps(dict.fromkeys(schema.get("properties", {}), "…"), ensure_ascii=False)
    return " ".join([str(schema.get("type", "anything")), *_bounds(schema)])


def _bounds(schema: Schema) -> Iterator[str]:
    for words in (_LEAST, _MOST):
        yield from (f"{word} {schema[name]}" for name, word in words.items() if name in schema)


def _count(schema: Schema) -> str:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is None and most is None:
        return ""
    return f" of {least}" if least == most else f" with {least or 0} to {most or 'more'}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# Spreadsheets run a cell as a formula if it begins with one of these characters. The last four are full-width forms of
# the first four.
_TEXTS_THAT_RUN = tuple("=+-@\t\r\n\0\uff1d\uff0b\uff0d\uff20")


def spreadsheet_cell(value: JsonValue) -> JsonValue:
    """The value of a CSV cell, with a `'` before text that a spreadsheet would read as a formula."""
    if isinstance(value, str) and value.startswith(_TEXTS_THAT_RUN) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

"""JSON, read strictly: what the standard allows, and nothing that two readers could take differently."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dyno.errors import FieldError
from service.errors import MalformedBody, pointer

MAX_DEPTH = 20
MAX_PARTS = 2000  # by far more than any spec has; to look at the 30,000 that 64 KiB can hold keeps all others waiting
_EXACT = 2**53  # beyond, float64 doesn't hold every integer

# Strings are consumed whole, so that brackets inside them don't count. The closing quote is optional and the repeat
# possessive: every match succeeds, which keeps the scan linear on a body full of quotes.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)


class _Object(dict[str, Any]):
    """A JSON object that remembers the keys it was given more than once."""

    repeated: tuple[str, ...] = ()


def parse(body: bytes) -> tuple[dict[str, Any], list[FieldError]]:
    """The object in `body`, and what is wrong with single values of it: repeated keys, numbers that aren't finite,
    lone surrogates. Raises MalformedBody where there is no object to speak of."""
    text = _decode(body)
    _check_size(text)
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_float=_number)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise MalformedBody(f"the body is not JSON: {error.msg} at {where}") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise MalformedBody("the body holds a number with too many digits") from error
    if not isinstance(document, dict):
        raise MalformedBody("the body must be a JSON object")
    return document, list(_faults(document, ""))


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: byte {error.start} can't be read") from error


def _check_size(text: str) -> None:
    """How much there is, by what strings don't hold. Looked at no further than to the first part that is too much."""
    parts = deepest = depth = 0
    for token in _TOKEN.finditer(text):
        character = text[token.start()]
        parts += character in "[{,"
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
        if parts > MAX_PARTS:
            raise MalformedBody(f"the body has more than {MAX_PARTS} brackets, braces and commas")
    if deepest > MAX_DEPTH:
        raise MalformedBody(f"the body is nested more than {MAX_DEPTH} deep")


def _number(text: str) -> int | float:
    """1.0 and 1e3 are integers to JSON Schema, and to a caller whose language has one kind of number."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) < len(pairs):
        given = Counter(key for key, _ in pairs)
        found.repeated = tuple(key for key, times in given.items() if times > 1)
    return found


def _faults(value: Any, at: str) -> Iterator[FieldError]:
    if isinstance(value, _Object):
        for key in value.repeated:
            yield FieldError(pointer(at, key), "duplicate-key", "the key is given more than once")
        for key, item in value.items():
            if not _encodable(key):
                yield FieldError(pointer(at, key), "lone-surrogate", "the key holds half of a surrogate pair")
            yield from _faults(item, pointer(at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, pointer(at, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield FieldError(at, "not-finite", "NaN, Infinity and numbers beyond float64 are refused")
    elif isinstance(value, str) and not _encodable(value):
        yield FieldError(at, "lone-surrogate", "the text holds half of a surrogate pair")


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

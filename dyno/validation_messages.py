"""Convert Pydantic's validation errors to JSON pointers, and to messages with JSON's types instead of Python's."""

import re
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dyno.errors import FieldError
from dyno.formatting import did_you_mean

Path = tuple[int | str, ...]

_MOST_GUESSES = 5  # per document: a body may have 2,000 unknown fields, and each guess takes a fraction of a ms
_OBJECT = "Input should be an object"
_ARRAY = "Input should be an array"
_STRING = "Input should be a string"
_TIME = "Input should be a time as in 2026-01-31T12:00:00Z"
_DURATION = "Input should be a duration as in PT1H30M"

# Pydantic's error type -> the message to use instead. For all other types, Pydantic's own messages are good.
_MESSAGES: dict[str, str] = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type", "dataclass_exact_type"), _OBJECT),
    **dict.fromkeys(("dict_type", "frozen_dict_type", "ordered_dict_type", "counter_type", "mapping_type"), _OBJECT),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "deque_type", "iterable_type"), _ARRAY),
    **dict.fromkeys(("iteration_error", "set_item_not_hashable"), "Input should be an array of plain values"),
    **dict.fromkeys(("named_tuple_type", "arguments_type"), "Input should be an array or an object"),
    **dict.fromkeys(("string_type", "bytes_type", "url_type", "uuid_type", "json_type"), _STRING),
    **dict.fromkeys(
        ("complex_type", "complex_str_parsing", "fraction_type", "decimal_type"), "Input should be a number"
    ),
    **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_object_invalid"), _TIME),
    **dict.fromkeys(("datetime_from_date_parsing", "time_type"), _TIME),
    **dict.fromkeys(("date_type", "date_from_datetime_parsing"), "Input should be a date as in 2026-01-31"),
    "date_from_datetime_inexact": "Input should be a date without a time of day",
    **dict.fromkeys(("time_delta_type", "time_delta_parsing"), _DURATION),
    "none_required": "Input should be null",
    "extra_forbidden": "Unknown field",
    "bool_type": "Input should be true or false",
    "bool_parsing": "Input should be true or false",
    "invalid-json-value": "Input should be a JSON value",
}
_LENGTHS = ("too_short", "too_long")
_CHOICES = ("literal_error", "enum")
# Pydantic's name of a bound -> JSON Schema's name, and the words for messages
_BOUNDS = {
    "ge": ("minimum", "at least"),
    "gt": ("exclusiveMinimum", "above"),
    "le": ("maximum", "at most"),
    "lt": ("exclusiveMaximum", "below"),
}
_OF_VALIDATORS = re.compile(r"^(Value error|Assertion failed), ")
_LITERAL = re.compile(r"""'(?P<text>[^']*)'|"[^"]*"|\b(?P<word>None|True|False)\b""")
_PYTHONS_GROUP = re.compile(r"\?P<\w+>")  # JSON Schema uses ECMAScript's syntax, which lacks `?P`
_WORDS = {"None": "null", "True": "true", "False": "false"}


def pointer(parent: str, key: str | int) -> str:
    """The JSON pointer (RFC 6901) to `key` in `parent`; lone surrogates are escaped, as UTF-8 can't encode them."""
    step = str(key).replace("~", "~0").replace("/", "~1")
    return f"{parent}/{step.encode('utf-8', 'backslashreplace').decode('utf-8')}"


def field_errors(model: type[BaseModel], document: Any, invalid: ValidationError, at: str = "") -> list[FieldError]:
    """The model's errors, with pointers into the document. `at`: the pointer to the document itself.

    The message about a number out of bounds names the field, the value and the whole range.
    """
    errors, unknown = list[FieldError](), 0
    for error in invalid.errors(include_url=False):
        message, violated = validation_message(error), error.get("ctx", {})
        path = _path(document, error["loc"], missing=error["type"] == "missing")
        if _BOUNDS.keys() & violated.keys():
            message = _out_of_bounds(_called(path), _bounds(model, path, violated), error["input"])
        if error["type"] == "extra_forbidden" and (unknown := unknown + 1) <= _MOST_GUESSES:
            message += _similar_field(model, error["loc"])
        errors.append(FieldError(reduce(pointer, path, at), error["type"].replace("_", "-"), message))
    return errors


def _similar_field(model: type[BaseModel], path: Path) -> str:
    """` (did you mean …?)` for the unknown field that `path` leads to; empty if its model has no similar field."""
    *parents, name = path
    for step in parents:
        kind = model.model_fields[step].annotation if step in model.model_fields else None
        inner = [
            candidate
            for candidate in (kind, *get_args(kind))
            if isinstance(candidate, type) and issubclass(candidate, BaseModel)
        ]
        if not inner:
            return ""
        model = inner[0]
    return did_you_mean(str(name)[:64], [field.alias or field_name for field_name, field in model.model_fields.items()])


def _path(value: Any, path: Path, *, missing: bool) -> Path:
    """`path` without the steps that Pydantic adds ("list", "[key]")."""
    steps: list[int | str] = []
    for step in path:
        inside = (isinstance(value, Mapping) and step in value) or (isinstance(value, list) and isinstance(step, int))
        if inside:
            steps, value = [*steps, step], value[step]
        elif missing and step == path[-1]:
            return (*steps, step)
    return tuple(steps)


def _called(path: Path) -> str:
    """The last field of the path, such as `batch_size`, or `n[1]` for an item."""
    name = next((step for step in reversed(path) if isinstance(step, str)), "Input")
    return f"{name}[{path[-1]}]" if path and isinstance(path[-1], int) else name


def _bounds(model: type[BaseModel], path: Path, violated: Mapping[str, Any]) -> Mapping[str, Any]:
    """All bounds of the number at `path`, by Pydantic's names. They include the `violated` bound."""
    root = _schema(model)
    for node in _nodes(root, root, path):
        bounds = {name: node[bound] for name, (bound, _) in _BOUNDS.items() if bound in node}
        if bounds.items() >= violated.items():
            return bounds
    return violated


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _nodes(root: dict[str, Any], node: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """The schemas of the value at `path` below `node`, one for each alternative."""
    if "$ref" in node:
        node = root["$defs"][node["$ref"].rpartition("/")[2]]
    for branch in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _nodes(root, branch, path)
    if not path:
        yield node
        return
    part = node.get("items") if isinstance(path[0], int) else node.get("properties", {}).get(path[0])
    inner = part or node.get("additionalProperties")
    if isinstance(inner, dict):
        yield from _nodes(root, inner, path[1:])


def _out_of_bounds(name: str, bounds: Mapping[str, Any], value: Any) -> str:
    words = " and ".join(f"{words} {bounds[bound]}" for bound, (_, words) in _BOUNDS.items() if bound in bounds)
    if {"ge", "le"} <= bounds.keys():
        words = f"from {bounds['ge']} to {bounds['le']}"
    return f"{name} should be {words}, not {value}"


def validation_message(error: ErrorDetails) -> str:
    """The message for one entry of `ValidationError.errors()`. Messages of Dyno's own validators stay as they are."""
    kind, context = error["type"], error.get("ctx", {})
    if _BOUNDS.keys() & context.keys():
        return _out_of_bounds("Input", context, error["input"])
    if kind in _LENGTHS:
        return _of_length(context, error["msg"])
    if kind in _CHOICES:
        return f"Input should be {_as_json(str(context.get('expected', '')))}"
    if kind == "string_pattern_mismatch":
        return f"String should match {_PYTHONS_GROUP.sub('', str(context.get('pattern', '')))}"
    return _MESSAGES.get(kind) or _OF_VALIDATORS.sub("", error["msg"])


def _of_length(context: Mapping[str, Any], message: str) -> str:
    """Replace Python's type in "List should have at most 2 items after validation, not 5" by an array or an object."""
    kind = context.get("field_type", "")
    called = "Object" if kind == "Dictionary" else "Array"
    return message.replace(kind, called, 1).replace(" after validation", "", 1)


def _as_json(choices: str) -> str:
    """Python's literals as JSON writes them: 'a', 1, None or True -> "a", 1, null or true."""

    def literal(match: re.Match[str]) -> str:
        if match["text"] is not None:
            return f'"{match["text"]}"'
        return _WORDS[match["word"]] if match["word"] else match[0]

    return _LITERAL.sub(literal, choices)

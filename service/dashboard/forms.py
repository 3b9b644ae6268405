"""Read forms that a page sent, and turn one into a spec.

A field's name is its path in the spec: `params.batch_size`, `measure.processes`. A text that is JSON is read as JSON.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request

from dyno.errors import FieldError, InvalidSpec
from dyno.settings import Settings
from service import validation
from service.problems import MalformedBody

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 500


async def read_form(request: Request, settings: Settings) -> dict[str, str]:
    """The fields with a value. Raises UnsupportedMediaType, BodyTooLarge, BodyTooSlow and MalformedBody."""
    body = await validation.read_body(request, settings, FORM)
    try:
        return dict(parse_qsl(body.decode(), max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise MalformedBody(f"the form can't be read: {error}") from error


def as_spec(fields: Mapping[str, str]) -> dict[str, Any]:
    """The spec that the fields describe. Raises InvalidSpec for a field that is below one with a value."""
    document: dict[str, Any] = {}
    for path, text in fields.items():
        *parents, name = path.split(".")
        at = document
        for parent in parents:
            at = at.setdefault(parent, {})
            if not isinstance(at, dict):
                wrong = FieldError("/" + path.replace(".", "/"), "conflict", f"{parent} has a value already")
                raise InvalidSpec([wrong])
        at[name] = _labels(text) if path == "labels" else as_value(text.strip())
    return document


def _labels(text: str) -> dict[str, str]:
    """`commit=abc, host=a` by name."""
    pairs = (each.partition("=") for each in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def as_value(text: str) -> Any:
    """A text that is JSON as its value, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

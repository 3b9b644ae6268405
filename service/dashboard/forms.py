"""Read the forms that pages send, and turn them into specs.

A field's name is its path in the spec: `params.batch_size`, `measure.processes`. A text that is JSON is read as JSON.
A form that creates an object has a random hidden field, so that sending the form twice creates only one object.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request

from dyno.errors import FieldError, InvalidSpec
from dyno.settings import Settings
from service import validation
from service.problems import MalformedBody

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 500
_FORM_KEY = "form_key"
_NOT_OF_SPEC = (_FORM_KEY, "schedule")  # fields whose names begin with these aren't in the spec


async def read_form(request: Request, settings: Settings) -> dict[str, str]:
    """The fields with a value. Raises UnsupportedMediaType, BodyTooLarge, BodyTooSlow and MalformedBody."""
    body = await validation.read_body(request, settings, FORM)
    try:
        return dict(parse_qsl(body.decode(), max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise MalformedBody(f"the form can't be read: {error}") from error


def as_spec(fields: Mapping[str, str]) -> dict[str, Any]:
    """The spec that the fields describe. Raises InvalidSpec if a field and its subfield both have values."""
    document: dict[str, Any] = {}
    for path, text in fields.items():
        *parents, name = path.split(".")
        if path.partition(".")[0] in _NOT_OF_SPEC:
            continue
        at = document
        for parent in parents:
            at = at.setdefault(parent, {})
            if not isinstance(at, dict):
                wrong = FieldError("/" + path.replace(".", "/"), "conflict", f"{parent} has a value already")
                raise InvalidSpec([wrong])
        at[name] = _labels(text) if path == "labels" else as_value(text.strip())
    return document


def idempotency_key(fields: Mapping[str, str]) -> str | None:
    """The idempotency key of a sent form. A form that is sent twice has the same key, unless a field has changed."""
    if _FORM_KEY not in fields:
        return None
    return f"form_{hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()}"


def beside_fields(errors: Iterable[FieldError]) -> dict[str, str]:
    """The errors of each field of a form, by the field's name."""
    wrong: dict[str, str] = {}
    for error in errors:
        name = error.pointer.strip("/").replace("/", ".")
        wrong[name] = f"{wrong[name]}; {error.detail}" if name in wrong else error.detail
    return wrong


def _labels(text: str) -> dict[str, str]:
    """The labels in a text such as `commit=abc, host=a`."""
    pairs = (pair.partition("=") for pair in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def as_value(text: str) -> Any:
    """The value of a text that is JSON; for other texts, the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_values(text: str) -> list[Any]:
    """The values between the commas of `text`. If all are JSON, they are decoded, and may be lists with commas."""
    values = as_value(f"[{text}]")
    return values if isinstance(values, list) else [as_value(item.strip()) for item in text.split(",") if item.strip()]

"""Validators of JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


def validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # takes a second, which each process of `make test` would pay

    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def conforms(document: object, builtin: str) -> None:
    """Raises jsonschema.ValidationError unless `document` fits a schema that check-jsonschema ships."""
    import jsonschema
    from check_jsonschema.builtin_schemas import get_builtin_schema

    jsonschema.validate(document, get_builtin_schema(builtin))

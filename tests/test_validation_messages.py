"""Messages about a caller's JSON don't mention Python."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_core._pydantic_core import list_all_errors

from dyno.validation_messages import field_errors, pointer, validation_message

PYTHON = re.compile(
    r"dict|\blists?\b|tuple|\binstance\b|\bNone\b|\b(True|False)\b|\bset\b|valid bytes|, bytes|frozen|deque"
    r"|iterable|hashable|python|datetime|timedelta|object to extract|Value error|Assertion"
    r"|UUID object|Decimal object|\bfloat\b"
)
# JSON documents can't cause these errors (arguments, attributes, objects in memory), or a validator writes their text.
NOT_OF_JSON = re.compile(
    r"argument|frozen_(field|instance)|attribute|python_object|is_(instance|subclass)_of|callable|sentinel|value_error|assertion"
)


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    even: int = 0

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value


def message_for(kind, value):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value, strict=True)
    return validation_message(caught.value.errors(include_url=False)[0])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (dict[str, int], [], "Input should be an object"),
        (Inner, "x", "Input should be an object"),
        (list[int], {}, "Input should be an array"),
        (None, 1, "Input should be null"),
        (bool, "yes", "Input should be true or false"),
        (int, "5", "Input should be a valid integer"),
        (Annotated[int, Field(ge=1)], 0, "Input should be at least 1, not 0"),
        (Annotated[float, Field(lt=0.5)], 0.5, "Input should be below 0.5, not 0.5"),
        (Inner, {"even": 3}, "3 is odd"),
        (Inner, {"even": 2, "odd": 1}, "Unknown field"),
        (Annotated[str, Field(pattern="^(?P<kind>cpu|gpu):0$")], "x", "String should match ^(cpu|gpu):0$"),
        (Literal["a", 1, None, True], "b", 'Input should be "a", 1, null or true'),
        (Annotated[list[int], Field(max_length=2)], [1, 2, 3], "Array should have at most 2 items, not 3"),
        (Annotated[list[int], Field(min_length=2)], [1], "Array should have at least 2 items, not 1"),
        (
            Annotated[dict[str, int], Field(max_length=1)],
            {"a": 1, "b": 2},
            "Object should have at most 1 item, not more",
        ),
    ],
)
def test_messages_use_the_terms_of_json(kind, value, expected):
    assert message_for(kind, value) == expected


class Bounded(BaseModel):
    sizes: int | Annotated[list[Annotated[int, Field(ge=1, le=64)]], Field(max_length=3)] = 1
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    inner: dict[str, Annotated[int, Field(ge=2)]] = {}


@pytest.mark.parametrize(
    ("document", "pointer_of_it", "expected"),
    [
        ({"sizes": [1, 65]}, "/sizes/1", "sizes[1] should be from 1 to 64, not 65"),
        ({"share": 0.0}, "/share", "share should be above 0 and at most 1, not 0.0"),
        ({"inner": {"a": 1}}, "/inner/a", "a should be at least 2, not 1"),
    ],
)
def test_a_number_out_of_bounds_is_named_with_its_range(document, pointer_of_it, expected):
    with pytest.raises(ValidationError) as caught:
        Bounded.model_validate(document, strict=True)
    named = {each.pointer: each.detail for each in field_errors(Bounded, document, caught.value)}
    assert named[pointer_of_it] == expected


@pytest.mark.parametrize(
    "known", [each for each in list_all_errors() if not NOT_OF_JSON.search(each["type"])], ids=lambda each: each["type"]
)
def test_no_message_names_python_types(known):
    context = (known["example_context"] or {}) | {"field_type": "List"}
    found = ErrorDetails(type=known["type"], loc=(), msg=known["example_message_python"], input=0, ctx=context)
    assert not PYTHON.search(validation_message(found)), validation_message(found)


def test_a_pointer_is_escaped_by_rfc_6901():
    assert pointer(pointer("", "a/b~c"), 0) == "/a~1b~0c/0"

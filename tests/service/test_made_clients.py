"""The OpenAPI document avoids what client generators can't handle."""

import pytest

from dyno.settings import Settings
from service.app import create_app


@pytest.fixture(scope="module")
def document():
    return create_app(Settings()).openapi()


def parts(value):
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from parts(each)


def test_model_titles_are_unique(document):
    titles = [schema.get("title", name) for name, schema in document["components"]["schemas"].items()]
    assert sorted(titles) == sorted(set(titles))


def test_no_enum_has_values_of_several_types(document):
    enums = [part["enum"] for part in parts(document) if isinstance(part.get("enum"), list)]
    assert enums
    assert [enum for enum in enums if len({type(value) for value in enum}) > 1] == []


def test_headers_are_not_lists(document):
    headers = [part for part in parts(document) if part.get("in") == "header"]
    assert {"prefer", "idempotency-key"} <= {header["name"].lower() for header in headers}
    kinds = [kind.get("type") for header in headers for kind in parts(header["schema"])]
    assert "array" not in kinds

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from dyno.settings import Settings
from dyno.workloads import registry
from service.app import create_app
from service.codes import PROBLEMS
from service.problems import MEDIA_TYPE


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in path.values()]


def is_valid(document: dict[str, Any], body: object) -> bool:
    schema = {"$ref": "#/components/schemas/SubmitJob", "components": document["components"]}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(body))


def test_it_is_openapi_3_1_without_a_reference_that_leads_nowhere(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    assert references(document) <= {f"#/components/schemas/{name}" for name in schemas}
    assert "HTTPValidationError" not in schemas


def test_every_error_of_every_route_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    for operation in operations(document):
        errors = {status: r for status, r in operation["responses"].items() if status == "default" or status >= "400"}
        assert "default" in errors
        assert all(response["content"].keys() == {MEDIA_TYPE} for response in errors.values())


def test_every_code_named_is_one_of_the_table_under_its_status(document: dict[str, Any]) -> None:
    named = [
        (int(status), code.strip("` "))
        for operation in operations(document)
        for status, response in operation["responses"].items()
        if status.isdigit() and int(status) >= 400
        for code in response["description"].split(",")
    ]
    assert named
    assert all(PROBLEMS[code][0] == status for status, code in named)


@pytest.mark.parametrize("workload", sorted(registry()))
def test_a_body_of_each_workload_matches_exactly_one_schema(document: dict[str, Any], workload: str) -> None:
    assert is_valid(document, {"workload": workload})
    assert is_valid(document, {"workload": workload, "device": "cpu:0-1@host", "measure": {"processes": 3}})
    assert is_valid(document, {"workload": workload, "measure": {"processes": {"min": 1, "max": 3}}})
    defaults = registry()[workload].params().model_dump(mode="json")
    assert is_valid(document, {"workload": workload, "params": defaults})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"workload": "nonesuch"},
        {"workload": "matmul", "surprise": 1},
        {"workload": "matmul", "params": {"n": 0}},
        {"workload": "matmul", "params": {"surprise": 1}},
        {"workload": "matmul", "device": "toaster"},
        {"workload": "matmul", "measure": {"processes": 0}},
        {"workload": "matmul", "framework": "cobol"},
    ],
)
def test_what_the_service_refuses_the_schema_refuses_too(document: dict[str, Any], body: object) -> None:
    assert not is_valid(document, body)

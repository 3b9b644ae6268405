"""Unknown, repeated and invalid parameters, on every route of the document."""

import json
import re
from pathlib import Path

import pytest

from service.auth import ALWAYS_NEED_KEY
from service.openapi import each_operation
from service.openapi.__main__ import REVIEWED

DOCUMENT = json.loads((Path(__file__).parents[3] / REVIEWED).read_text())  # faster than to make it
OPERATIONS = [row for row in each_operation(DOCUMENT) if row[1].startswith("/v1/")]
ROWS = [(method, path) for method, path, _ in OPERATIONS]
OF_QUERIES = [
    (method, path, each["name"], each["schema"].get("type"))
    for method, path, operation in OPERATIONS
    for each in operation.get("parameters", [])
    if each["in"] == "query"
]


@pytest.mark.parametrize(("method", "path"), [row for row in ROWS if not row[1].startswith(ALWAYS_NEED_KEY)])
def test_unknown_parameters_are_refused_before_any_effect(http, method, path):
    asked = re.sub(r"{[a-z_]+}", "none", path)
    answer = http.request(method, asked, params={"validate-only": "true"})
    assert answer.status_code == 422
    if method != "HEAD":
        [error] = answer.json()["errors"]
        assert (error["pointer"], error["code"]) == ("/query/validate-only", "extra-forbidden")


@pytest.mark.parametrize(("method", "path", "name", "kind"), OF_QUERIES)
def test_repeated_and_invalid_parameters_are_reported_once(http, method, path, name, kind):
    assert wrong(http, method, path, [(name, "1"), (name, "1")]) == [(f"/query/{name}", "duplicate-parameter")]
    if kind in ("boolean", "integer", "number"):
        [(pointer, code)] = wrong(http, method, path, [(name, "maybe")])
        assert (pointer, code.rpartition("-")[2]) == (f"/query/{name}", "parsing")


def wrong(http, method, path, params):
    """Pointers and codes of the response's errors."""
    asked = re.sub(r"{[a-z_]+}", f"job_{'0' * 26}", path)
    answer = http.request(method, asked, params=params, json={"workload": "matmul"} if method == "POST" else None)
    assert answer.status_code == 422
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def test_parameters_are_not_lists():
    assert "array" not in {kind for _, _, _, kind in OF_QUERIES}


def test_the_document_has_routes_with_parameters():
    assert len(ROWS) > 20
    known = {(path, name) for _, path, name, _ in OF_QUERIES}
    assert {("/v1/jobs", "validate_only"), ("/v1/jobs/{job_id}", "wait"), ("/v1/jobs/{job_id}/logs", "follow")} <= known

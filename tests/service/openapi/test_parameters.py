"""Parameters that a route doesn't know, on every route of the document."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from dyno.settings import Settings
from service.access import KEY_ALWAYS
from service.app import create_app
from service.openapi import operations

DOCUMENT: dict[str, Any] = create_app(Settings()).openapi()
ROWS = [(method, path) for method, path, _ in operations(DOCUMENT) if path.startswith("/v1/")]


@pytest.mark.parametrize(("method", "path"), [row for row in ROWS if row not in KEY_ALWAYS])
def test_a_parameter_that_a_route_does_not_know_is_named_before_anything_is_done(
    http: httpx.Client, method: str, path: str
) -> None:
    asked = re.sub(r"{[a-z_]+}", "none", path)
    answer = http.request(method, asked, params={"validate-only": "true"})
    assert answer.status_code == 422
    if method != "HEAD":
        [error] = answer.json()["errors"]
        assert (error["pointer"], error["code"]) == ("/query/validate-only", "extra-forbidden")


def test_there_are_routes_to_look_at() -> None:
    assert len(ROWS) > 20

"""What is answered before there is a request for a route stands in the document, with every route."""

from __future__ import annotations

from typing import Any

import pytest

from service.openapi.errors import codes
from tests.service.abuse.conftest import Api, problem
from tests.service.openapi.conftest import answers

HEAD = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (HEAD + b"Content-Length: 2\r\n\r\n{}", b""),
        (HEAD + b"X: " + b"x" * 5000 + b"\r\n\r\n", b""),
        (HEAD + b"X: ", b"x"),
    ],
    ids=["a body", "a large head", "a slow head"],
)
def test_what_a_connection_is_told_stands_in_the_document(api: Api, first: bytes, piece: bytes) -> None:
    [answer] = api.call().trickle(first, piece).answers()
    document: dict[str, Any] = api.http.get("/openapi.json").json()
    of_route = {
        status: told for method, path, status, told in answers(document) if (method, path) == ("GET", "/v1/jobs")
    }
    told = of_route[str(answer.status_code)]
    assert problem(answer)["code"] in codes(told)
    assert [name for name in told["headers"] if name not in answer.headers] == []

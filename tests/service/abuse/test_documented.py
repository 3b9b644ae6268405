"""The document lists responses that connections send before a route is found, with every route."""

import pytest

from service.openapi.components import problem_codes, recorded_examples
from tests.service.abuse.conftest import problem
from tests.service.openapi.conftest import answers
from tests.service.openapi.house import plain

GET = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (GET + b"X: a\0b\r\n\r\n", b""),
        (GET + b"X: " + b"x" * 5000 + b"\r\n\r\n", b""),
        (GET + b"X: ", b"x"),
        (POST, b" "),
    ],
    ids=["not HTTP", "a large head", "a slow head", "a slow body"],
)
def test_responses_of_connections_match_the_document(api, first, piece):
    [answer] = api.call().trickle(first, piece).answers()
    document = api.http.get("/openapi.json").json()
    listed = {(method, path, status): told for method, path, status, told in answers(document)}
    told, found = listed[first.partition(b" ")[0].decode(), "/v1/jobs", str(answer.status_code)], problem(answer)
    assert found["code"] in problem_codes(told)
    assert plain(found) == plain(recorded_examples()["problems"][found["code"]])
    assert [name for name in told["headers"] if name not in answer.headers] == []

import asyncio

import pytest
from fastapi import Request

from dyno.settings import Settings
from service import validation
from service.problems import BodyTooLarge

JSON = {"Content-Type": "application/json"}
LIMITS = Settings(max_body_bytes=1500, body_timeout_s=0.01)


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"Content-Type": "text/plain"}, "text/plain"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "application/x-www-form-urlencoded"),
        ({"Content-Type": ""}, "missing"),
        ({"Content-Type": "application/json; charset=latin-1"}, "latin-1"),
        (JSON | {"Content-Encoding": "gzip"}, "gzip"),
    ],
)
def test_anything_but_json_in_utf8_is_an_unsupported_media_type(http, headers, named):
    answer = http.post("/v1/jobs", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")
    assert named in answer.json()["detail"]


@pytest.mark.parametrize(
    "given", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_may_declare_utf_8(http, given):
    answer = http.post("/v1/jobs", content=b"{}", headers={"Content-Type": given})
    assert answer.json()["errors"] == [{"pointer": "/workload", "code": "missing", "detail": "Field required"}]


def test_a_body_of_exactly_the_limit_is_read(http, settings):
    full = b"{}".ljust(settings.max_body_bytes)
    assert http.post("/v1/jobs", content=full, headers=JSON).status_code == 422
    assert http.post("/v1/jobs", content=full + b" ", headers=JSON).status_code == 413


def request_of(headers, receive):
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "headers": raw}, receive)


def test_a_declared_length_is_refused_before_a_byte_is_read():
    async def receive():
        raise AssertionError("the body was read")

    with pytest.raises(BodyTooLarge, match="200000000 bytes"):
        asyncio.run(validation.read_body(request_of(JSON | {"Content-Length": "200000000"}, receive), Settings()))


def test_a_body_without_a_length_is_read_no_further_than_the_limit():
    chunks = iter([b" " * 1000] * 3)

    async def receive():
        return {"type": "http.request", "body": next(chunks), "more_body": True}

    with pytest.raises(BodyTooLarge):
        asyncio.run(validation.read_body(request_of(JSON, receive), LIMITS))
    assert len(list(chunks)) == 1

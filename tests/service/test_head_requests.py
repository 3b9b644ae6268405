"""Every route with GET answers HEAD: the same response without the body."""

import pytest
from starlette.routing import Route

from dyno.settings import Settings
from service.app import create_app
from service.middleware import HeadMiddleware
from tests.service.keys.conftest import make_key
from tests.waiting import eventually

NO_JOB = "/v1/jobs/job_00000000000000000000000000"
ITS_OWN = {"date", "x-request-id"}  # differs in each response


@pytest.mark.parametrize(
    "path", ["/livez", "/v1/workloads", "/openapi.json", "/docs", "/v1/jobs?limit=0", NO_JOB, "/a"]
)
def test_every_get_route_answers_head(http, path):
    read, told = http.get(path), http.head(path)
    assert told.status_code == read.status_code
    assert told.content == b"" != read.content
    assert {name for name in read.headers if told.headers.get(name) != read.headers[name]} <= ITS_OWN


def test_head_fails_where_get_fails(http):
    told = http.head(f"{NO_JOB}/cancel")
    assert (told.status_code, told.headers["allow"]) == (405, "POST")


def test_head_of_an_endless_stream_ends_and_frees_its_slot(settings, serve):
    with serve(create_app(settings.model_copy(update={"max_streams": 1}))) as http:
        assert http.head("/v1/events").headers["content-type"] == "text/event-stream; charset=utf-8"
        for _ in range(3):
            eventually(lambda: http.head("/v1/events").is_success, what="there is a place again")


def test_head_is_counted_as_head_of_its_route(http):
    http.head("/v1/workers")
    counted = 'dyno_http_request_duration_seconds_count{held="no",method="HEAD",route="/v1/workers",status="200"} 1.0'
    assert counted in http.get("/metrics").text


def test_head_needs_the_same_key_as_get(redis_url, namespace, serve):
    settings = Settings(redis_url=redis_url, namespace=f"{namespace}-head")
    _, secret = make_key(settings)
    with serve(create_app(settings)) as http:
        assert http.head("/v1/jobs").status_code == 401
        assert http.head("/v1/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code == 200


@pytest.mark.anyio
async def test_a_route_with_its_own_head_handles_it():
    asked = []

    async def app(scope, receive, send):
        asked.append(scope["method"])

    around = HeadMiddleware(app, [Route("/file", app, methods=["HEAD"]), Route("/page", app, methods=["POST"])])
    for path in ("/file", "/page"):
        await around({"type": "http", "method": "HEAD", "path": path}, never, never)
    assert asked == ["HEAD", "GET"]


async def never(*said):
    raise AssertionError("nothing is received or sent here")

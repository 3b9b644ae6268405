"""Results and samples are sent as JSON, however this or an older version stored them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import httpx
import pytest
import redis

from dyno.settings import Settings
from dyno.store.compression import decompress, execute_raw
from dyno.store.documents import RESULT_SHAPE
from dyno.store.leases import Claim, Leases
from dyno.store.redis import Keys
from tests.results import a_result

SAMPLES = {"run": 0, "warmup": [], "samples": [0.5], "sample_cpu_s": [[0.5, 0.0]], "executions_per_sample": 1}
BY_ROUTE = {"Prefer": "handling=lenient"}  # passes by service/hot_routes.py
WAYS = pytest.mark.parametrize("way", [{}, BY_ROUTE], ids=["fast", "route"])


@pytest.fixture
def job_id(claimed: Callable[[], tuple[Leases, Claim]]) -> str:
    leases, claim = claimed()
    assert leases.finish(claim, "succeed", result=a_result(claim.job_id), samples=[])
    return claim.job_id


def _body(http: httpx.Client, path: str, headers: dict[str, str]) -> tuple[httpx.Response, bytes]:
    """The response, and its body as it was sent."""
    with http.stream("GET", path, headers=headers) as answer:
        return answer, b"".join(answer.iter_raw())


@WAYS
def test_a_result_is_sent_as_json_without_an_encoding(http: httpx.Client, job_id: str, way: dict[str, str]) -> None:
    answer, body = _body(http, f"/v1/jobs/{job_id}/result", way | {"Accept-Encoding": "br, gzip;q=0.8"})
    assert "content-encoding" not in answer.headers
    assert (answer.headers["content-type"], answer.headers["etag"][:2]) == ("application/json", "W/")
    assert json.loads(body) == a_result(job_id).model_dump(mode="json", by_alias=True)


@WAYS
def test_a_result_that_the_client_has_is_not_sent_again(http: httpx.Client, job_id: str, way: dict[str, str]) -> None:
    path = f"/v1/jobs/{job_id}/result"
    known = http.get(path, headers=way).headers["etag"]
    answer = http.get(path, headers=way | {"If-None-Match": known})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", known)


@WAYS
def test_a_result_that_an_older_version_stored_is_shown(
    http: httpx.Client, client: redis.Redis, settings: Settings, job_id: str, way: dict[str, str]
) -> None:
    path, key = f"/v1/jobs/{job_id}/result", Keys(settings.namespace).result(job_id)
    shown = http.get(path).json()
    text = decompress(execute_raw(client, "GET", key))
    for older in (f'{{"shape":"{RESULT_SHAPE}",{text[1:]}', text, gzip.compress(text.encode())):
        client.set(key, older)
        answer = http.get(path, headers=way)
        assert (answer.status_code, answer.json()) == (200, shown)
        assert "content-encoding" not in answer.headers
    for other in (f"/v1/results?workload={shown['workload']}", f"/v1/jobs/{job_id}/artifacts"):
        assert http.get(other).status_code == 200


def test_samples_that_an_older_version_stored_uncompressed_are_shown(
    http: httpx.Client, client: redis.Redis, settings: Settings, job_id: str
) -> None:
    assert http.get(f"/v1/jobs/{job_id}/samples").json() == {"data": []}
    client.set(Keys(settings.namespace).samples(job_id), json.dumps([SAMPLES]))
    assert http.get(f"/v1/jobs/{job_id}/samples").json()["data"][0]["samples"] == [0.5]

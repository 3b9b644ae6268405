"""A result is sent as a gzip file, or as JSON to clients that don't accept gzip."""

import gzip
import json

import pytest

from service.hot_routes import accepts_gzip
from tests.results import a_result

BY_ROUTE = {"Prefer": "handling=lenient"}  # passes by service/hot_routes.py
WAYS = pytest.mark.parametrize("way", [{}, BY_ROUTE], ids=["fast", "route"])


@pytest.fixture
def job_id(claimed):
    leases, claim = claimed()
    assert leases.finish(claim, "succeed", result=a_result(claim.job_id), samples=[])
    return claim.job_id


def _body(http, path, headers):
    """The response, and its body as it was sent."""
    with http.stream("GET", path, headers=headers) as answer:
        return answer, b"".join(answer.iter_raw())


@WAYS
def test_a_client_that_accepts_gzip_gets_it(http, job_id, way):
    path = f"/v1/jobs/{job_id}/result"
    packed, body = _body(http, path, way | {"Accept-Encoding": "br, gzip;q=0.8"})
    assert (packed.headers["content-encoding"], packed.headers["content-length"]) == ("gzip", str(len(body)))
    plain, text = _body(http, path, way | {"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert text == gzip.decompress(body)
    assert len(body) < 0.6 * len(text)
    assert json.loads(text) == a_result(job_id).model_dump(mode="json", by_alias=True)
    for answer in (packed, plain):
        assert answer.headers["content-type"] == "application/json"
        assert "Accept-Encoding" in answer.headers["vary"]
        assert answer.headers["etag"].startswith("W/"), "both encodings have this ETag, so it must be weak"


@WAYS
@pytest.mark.parametrize("accepted", ["gzip", "identity"])
def test_a_result_that_the_client_has_is_not_sent_again_in_either_encoding(http, job_id, way, accepted):
    path = f"/v1/jobs/{job_id}/result"
    known = http.get(path, headers=way | {"Accept-Encoding": "gzip"}).headers["etag"]
    answer = http.get(path, headers=way | {"Accept-Encoding": accepted, "If-None-Match": known})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", known)
    assert "Accept-Encoding" in answer.headers["vary"]
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("gzip", True),
        ("br;q=1.0, GZIP;q=0.001", True),
        ("*", True),
        ("gzip;q=0, *", False),
        ("gzip; q=0.000", False),
        ("*;q=0", False),
        ("identity", False),
        ("gzipped", False),
        ("", False),
    ],
)
def test_accept_encoding_is_read_with_its_weights(value, accepted):
    assert accepts_gzip(value) is accepted

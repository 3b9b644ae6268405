"""Headers of every response: a request id, and security headers for browsers."""

import pytest

ANSWERS = [
    ("GET", "/livez", 200),
    ("GET", "/v1/jobs", 200),
    ("GET", "/metrics", 200),
    ("GET", "/openapi.json", 200),
    ("GET", "/nowhere", 404),
    ("GET", "/v1/jobs/job_00000000000000000000000000", 404),
    ("PUT", "/v1/jobs", 405),
    ("GET", "/v1/jobs?limit=0", 422),
    ("POST", "/v1/jobs", 403),
    ("OPTIONS", "/v1/jobs", 405),
]


@pytest.mark.parametrize(("method", "path", "status"), ANSWERS)
def test_every_response_has_an_id_and_security_headers(http, method, path, status):
    answer = http.request(method, path, headers={"Origin": "https://elsewhere.example"})
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["x-request-id"].startswith("req_")
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    if status >= 400:
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_a_clients_own_id_is_returned_and_generated_ids_are_unique(http):
    own = http.get("/nowhere", headers={"X-Request-ID": "build-17.step_3"})
    assert own.headers["x-request-id"] == own.json()["request_id"] == "build-17.step_3"
    made = [http.get("/livez").headers["x-request-id"] for _ in range(10)]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, 'say="hello"', "a,b", "\xe9", "{{7*7}}"])
def test_an_unsafe_id_is_replaced(http, given):
    answer = http.get("/livez", headers={b"X-Request-ID": given.encode("latin-1")})
    assert answer.headers["x-request-id"].startswith("req_")


def test_responses_keep_their_own_cache_control(api, tiny):
    job = api.submit(tiny)
    assert api.http.get(job["urls"]["self"]).headers["cache-control"] == "no-cache"

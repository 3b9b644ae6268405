"""Frequent requests are answered as FastAPI's routes answer them: same status, same headers, same document."""

import pytest

from dyno.models.api_key import Scope
from service.app import create_app
from tests.service.keys.conftest import make_key

BODY = {"workload": "matmul", "params": {"n": 64}, "device": "cpu"}
BY_ROUTE = {"Prefer": "handling=lenient"}  # an option, without effect
CHANGES = {"x-request-id", "date", "content-length", "etag", "location"}


def _facts(answer):
    return answer.status_code, {k: v for k, v in answer.headers.items() if k not in CHANGES}, answer.json()


def _both(http, method, path, **options):
    headers = options.pop("headers", {})
    fast = http.request(method, path, headers=headers, **options)
    slow = http.request(method, path, headers=headers | BY_ROUTE, **options)
    return _facts(fast), _facts(slow)


def test_a_job_and_a_list_are_the_same(http, submitted):
    job_id = submitted(labels={"ü": "ö"})
    for path in (f"/v1/jobs/{job_id}", "/v1/jobs", "/v1/jobs?limit=1"):
        (status, headers, fast), (_, as_headers, slow) = _both(http, "GET", path)
        for job in (*fast.get("data", []), *slow.get("data", []), fast, slow):
            job.get("queue", {}).pop("eta_s", None)  # from forecasts of different seconds
        assert (status, headers, fast) == (200, as_headers, slow)
    assert http.get(f"/v1/jobs/{job_id}").headers["etag"] == 'W/"1"'


def test_the_pages_of_a_list_are_linked(http, submitted):
    made = [submitted() for _ in range(3)]
    found, path = list[str](), "/v1/jobs?limit=2"
    while path:
        answer = http.get(path)
        found += [job["id"] for job in answer.json()["data"]]
        path = answer.links.get("next", {}).get("url", "")
    assert found[:3] == made[::-1]


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        ("GET", "/v1/jobs/job_00000000000000000000000000", {}),
        ("GET", "/v1/jobs/job_00000000000000000000000000/result", {}),
        ("GET", "/v1/jobs/none", {}),
        ("GET", "/v1/jobs?limit=0", {}),
        ("GET", "/v1/jobs?limit=201", {}),
        ("GET", "/v1/jobs?limit=20&limit=20", {}),
        ("GET", "/v1/jobs", {"headers": {"Host": "example.org"}}),
        ("POST", "/v1/jobs", {"json": BODY, "headers": {"Origin": "http://example.org"}}),
        ("POST", "/v1/jobs", {"json": BODY | {"params": {"n": -1}}}),
        ("POST", "/v1/jobs", {"json": BODY | {"device": "tpu"}}),
        ("POST", "/v1/jobs", {"content": b"{", "headers": {"Content-Type": "application/json"}}),
        ("POST", "/v1/jobs", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}),
        ("POST", "/v1/jobs", {"json": BODY, "headers": {"Idempotency-Key": "x" * 256}}),
    ],
)
def test_an_error_is_the_same(http, offered, method, path, options):
    fast, slow = _both(http, method, path, **options)
    fast[2].pop("request_id", None)
    slow[2].pop("request_id", None)
    assert fast == slow
    assert fast[0] in (202, 400, 401, 403, 404, 409, 415, 421, 422)


def test_a_submit_is_the_same_and_an_idempotency_key_counts_on_both(http, offered):
    (status, headers, fast), (_, as_headers, slow) = _both(
        http, "POST", "/v1/jobs", json=BODY, headers={"Idempotency-Key": "two ways"}
    )
    assert status == 202
    assert as_headers == headers | {"idempotent-replayed": "true"}
    assert fast["id"] == slow["id"]
    assert http.get(f"/v1/jobs/{fast['id']}", headers={"If-None-Match": 'W/"1"'}).status_code == 304
    http.post(fast["urls"]["cancel"])


def test_a_frequent_request_takes_one_round_trip_to_the_store_or_two_with_a_key(serve, settings, offered, monkeypatch):
    """Beside what all requests of a second share: devices, the forecast, and whether a key is needed."""
    for constant in ("anonymous_access.FRESH_S", "anonymous_access.BELIEVED_S"):
        monkeypatch.setattr(f"service.{constant}", 3600.0)
    monkeypatch.setattr("dyno.store.eta.FORECAST_FRESH_S", 3600.0)
    monkeypatch.setattr("service.sweeps.stops.EVERY_S", 3600.0)
    app = create_app(settings.model_copy(update={"schedules_every_s": 3600.0, "alarms_every_s": 0}))
    with serve(app) as http:
        job = http.post("/v1/jobs", json=BODY).json()
        shared = app.state.opened.client.shared
        monkeypatch.setattr(app.state.opened.devices, "_clock", lambda: 0.0)

        def trips(method, path, **options):
            before = shared.round_trips
            assert http.request(method, path, **options).is_success
            return int(shared.round_trips - before)

        assert trips("GET", f"/v1/jobs/{job['id']}") == 1
        assert trips("GET", "/v1/jobs?limit=5") == 1
        assert trips("POST", "/v1/jobs", json=BODY, headers={"Idempotency-Key": "once"}) == 1
        http.headers["Authorization"] = f"Bearer {make_key(settings, Scope.ADMIN)[1]}"
        http.get("/v1/me")  # the server learns the script
        assert trips("GET", f"/v1/jobs/{job['id']}") == 1  # with the check of the key
        assert trips("GET", "/v1/jobs?limit=5") == 1
        assert trips("POST", "/v1/jobs", json=BODY) == 2


def test_a_list_shows_nothing_that_was_read_before_its_key_was_refused(serve, settings, offered, monkeypatch):
    app = create_app(settings)
    admin, secret = make_key(settings, Scope.ADMIN)
    with serve(app) as http:
        http.headers["Authorization"] = f"Bearer {secret}"
        http.post("/v1/jobs", json=BODY)
        _, limited = make_key(settings, Scope.SUBMIT, requests_per_s=1)
        theirs = {"Authorization": f"Bearer {limited}"}
        answers = [http.get("/v1/jobs?limit=5", headers=theirs) for _ in range(3)]
        assert {answer.status_code for answer in answers} <= {200, 429}
        assert answers[0].json() == {"data": [], "next_cursor": None, "has_more": False}
        for _ in range(2):
            assert http.get("/v1/jobs?limit=1").json()["data"]
        http.delete(f"/v1/keys/{admin}")
        for _ in range(2):
            refused = http.get("/v1/jobs?limit=5")
            assert (refused.status_code, "data" in refused.json()) == (401, False)

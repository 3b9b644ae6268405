"""What the jobs of a key may ask for: priority `high`, and how long their results are kept."""

import re
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from dyno.models.api_key import Scope
from dyno.models.result import Roof
from dyno.store.redis import Keys
from service.app import create_app
from tests.service.keys.conftest import make_key, problem

BODY = {"workload": "matmul", "params": {"n": 64}, "device": "tpu", "queue_if_absent": True}
HIGH = BODY | {"priority": "high"}
PAIR = {
    "specs": [HIGH | {"measure": {"max_s": 1}}, {"workload": "matmul", "params": {"n": 64, "repeats": 20}}],
    "pairs": 2,
}
DAY_S = 86400
REFUSED = (403, "priority-not-allowed")


@pytest.fixture(scope="module")
def admin(caller):
    return caller(Scope.ADMIN)


@pytest.fixture
def created(admin, service):
    """A client with a key that the admin creates over HTTP."""
    with ExitStack() as stack:

        def one(**fields):
            answer = admin.http.post("/v1/keys", json={"name": "ci", "scope": "submit"} | fields)
            assert answer.status_code == 201, answer.text
            headers = {"Authorization": f"Bearer {answer.json()['secret']}"}
            return stack.enter_context(httpx.Client(base_url=service.base_url, headers=headers))

        yield one


def test_priority_high_is_a_right_that_new_keys_need(created, admin, client, settings):
    plain, entitled = created(), created(high_priority=True)
    assert plain.get("/v1/me").json()["key"]["high_priority"] is False
    for answer in (
        plain.post("/v1/jobs", json=HIGH),
        plain.post("/v1/jobs", json=HIGH, headers={"Prefer": "handling=lenient"}),
        plain.post("/v1/jobs?validate_only=true", json=HIGH),
        plain.post("/v1/comparisons", json=PAIR),
    ):
        assert problem(answer) == REFUSED
        assert "--high-priority" in answer.json()["detail"]
    assert plain.get("/v1/jobs").json()["data"] == []
    assert plain.post("/v1/jobs", json=BODY).status_code == 202
    for http in (entitled, admin.http):
        assert http.get("/v1/me").json()["key"]["high_priority"] is True
        assert http.post("/v1/jobs", json=HIGH).json()["spec"]["priority"] == "high"
    assert entitled.post("/v1/comparisons", json=PAIR).status_code == 202


def test_a_rerun_needs_the_right_too(created, client, settings):
    http = created(high_priority=True)
    job = http.post("/v1/jobs", json=HIGH).json()
    client.hset(Keys(settings.namespace).api_key(job["owner"]), "high_priority", 0)
    assert problem(http.post(f"{job['urls']['self']}/rerun")) == REFUSED


def test_a_damaged_record_grants_no_right(created, client, settings):
    http = created(high_priority=True)
    owner = http.post("/v1/jobs", json=BODY).json()["owner"]
    client.hdel(Keys(settings.namespace).api_key(owner), "high_priority")
    assert problem(http.post("/v1/jobs", json=HIGH)) == REFUSED


def test_a_key_limits_how_long_results_are_kept(created):
    http = created(limits={"expires_in_s": DAY_S})
    assert http.get("/v1/me").json()["key"]["limits"]["expires_in_s"] == DAY_S
    for way in ({}, {"Prefer": "handling=lenient"}):
        job = http.post("/v1/jobs", json=BODY, headers=way).json()
        assert job["spec"]["expires_in_s"] == DAY_S
        answer = http.post("/v1/jobs", json=BODY | {"expires_in_s": DAY_S + 1}, headers=way)
        assert problem(answer) == (422, "invalid-spec")
        [error] = answer.json()["errors"]
        assert (error["pointer"], error["code"]) == ("/expires_in_s", "limit-exceeded")
        assert str(DAY_S) in error["detail"]
    assert http.post("/v1/jobs?validate_only=true", json=BODY).json()["spec"]["expires_in_s"] == DAY_S
    assert http.post("/v1/jobs", json=BODY | {"expires_in_s": 60}).json()["spec"]["expires_in_s"] == 60
    assert http.post(f"{job['urls']['self']}/rerun").json()["spec"]["expires_in_s"] == DAY_S

    specs = [
        {**BODY, "expires_in_s": 2 * DAY_S, "measure": {"max_s": 1}},
        {"workload": "matmul", "params": {"n": 64, "repeats": 20}},
    ]
    answer = http.post("/v1/comparisons", json={"specs": specs, "pairs": 2})
    assert problem(answer) == (422, "invalid-comparison")
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/specs/0/expires_in_s"]
    del specs[0]["expires_in_s"]
    made = http.post("/v1/comparisons", json={"specs": specs, "pairs": 2}).json()
    assert http.get(f"/v1/jobs/{made['job']}").json()["spec"]["expires_in_s"] == DAY_S


def test_the_settings_have_the_defaults_of_all_keys_and_none_for_clients_without(settings, serve):
    changes = {"namespace": f"{settings.namespace}-fair", "max_queued": 8, "key_expires_in_s": DAY_S}
    fair = settings.model_copy(update=changes)
    with serve(create_app(fair)) as http:
        first = http.post("/v1/jobs", json=HIGH)
        assert (first.status_code, first.json()["spec"]["expires_in_s"]) == (202, 30 * DAY_S)
        again = f"{first.json()['urls']['self']}/rerun"
        for _ in range(2):
            assert http.post("/v1/jobs", json=BODY).status_code == 202

        greedy, other = (
            {"Authorization": f"Bearer {make_key(fair, scope)[1]}"} for scope in (Scope.ADMIN, Scope.SUBMIT)
        )
        assert http.post(again, headers=greedy).json()["spec"]["expires_in_s"] == DAY_S
        assert http.post("/v1/jobs", json=BODY, headers=greedy).status_code == 202
        answer = http.post("/v1/jobs", json=BODY, headers=greedy)
        assert problem(answer) == (429, "limit-reached")
        assert answer.headers["RateLimit-Policy"] == '"queued-jobs";q=2'
        assert int(answer.headers["Retry-After"]) > 0
        assert http.post("/v1/jobs", json=BODY, headers=other).status_code == 202
        own = {"Authorization": f"Bearer {make_key(fair, Scope.SUBMIT, queued_jobs=3)[1]}"}
        assert [http.post("/v1/jobs", json=BODY, headers=own).status_code for _ in range(3)] == [202, 202, 429]
        assert problem(http.post("/v1/jobs", json=BODY, headers=own)) == (429, "queue-full")


def test_the_key_of_the_guide_to_grafana_reads_results_of_other_keys(caller, finished):
    guide = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    said = re.search(r"_Bearer Token_[^.]*?scope\s+`(\w+)`", guide)
    finished()
    asked = {"workload": "matmul", "metric": "throughput"}
    assert caller(Scope(said[1])).http.get("/v1/results", params=asked).json() != []


def test_the_page_of_a_device_shows_each_caller_its_own_results(finished, caller, http, offered):
    """An unmeasured roof is listed in the page's table, with a link to its job."""
    job = finished(roofs=[Roof(reason="not measured")])
    page = f"/fleet/{offered.full_id}"
    assert job in http.get(page).text
    assert job not in caller(Scope.SUBMIT).http.get(page).text
    assert job in caller(Scope.ADMIN).http.get(page).text

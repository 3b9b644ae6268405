"""API keys as users see them: the command creates a key, HTTP requests send it."""

import json
import sys
import uuid
from pathlib import Path

import pytest

from api_tests.conftest import ran
from tests.waiting import eventually

DYNO = Path(sys.executable).parent / "dyno"
BODY = {"workload": "matmul", "params": {"n": 64}, "queue_if_absent": True}


@pytest.fixture
def env(house):
    """The environment of an API with its own namespace, as the other tests' service must stay without keys."""
    return {**house.env, "DYNO_NAMESPACE": f"keys-{uuid.uuid4().hex[:12]}"}


@pytest.fixture
def http(house, env):
    with house.another_api(**env) as (_, api):
        yield api.http


def dyno(env, *arguments, code=0):
    done = ran(DYNO, *arguments, env=env | {"COLUMNS": "200"})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_key_created_on_the_host_is_needed_from_then_on_and_revoked_at_once(http, env):
    assert http.get("/v1/jobs").status_code == 200
    secret = dyno(env, "keys", "create", "--scope", "submit", "--name", "ci", "--queued-jobs", "1").strip()
    eventually(lambda: http.get("/v1/jobs").status_code == 401, 10, "a key is asked for")
    assert http.get("/v1/jobs").headers["WWW-Authenticate"] == "Bearer"
    assert http.get("/livez").status_code == http.get("/readyz").status_code == 200

    mine = {"Authorization": f"Bearer {secret}"}
    job = http.post("/v1/jobs", json=BODY, headers=mine).json()
    [key] = json.loads(dyno(env, "keys", "list", "--json"))
    assert (key["id"], key["name"], key["scope"], key["limits"]["queued_jobs"]) == (job["owner"], "ci", "submit", 1)
    refused = http.post("/v1/jobs", json=BODY, headers=mine)
    assert (refused.status_code, refused.headers["RateLimit-Policy"]) == (429, '"queued-jobs";q=1')
    assert http.get("/v1/keys", headers=mine).status_code == 403

    other = {"Authorization": f"Bearer {dyno(env, 'keys', 'create', '--scope', 'submit', '--name', 'other').strip()}"}
    assert http.get(job["urls"]["self"], headers=other).status_code == 404
    assert http.get("/v1/jobs", headers=other).json()["data"] == []

    url = str(http.base_url)
    assert [row["id"] for row in json.loads(dyno({**env, "DYNO_API_KEY": secret}, "jobs", "--url", url, "--json"))] == [
        job["id"]
    ]
    without = dyno(env, "jobs", "--url", url, code=3)
    assert "dyno keys create" in without
    assert "DYNO_API_KEY" in without
    dyno(env, "keys", "revoke", key["id"])
    assert http.get("/v1/jobs", headers=mine).status_code == 401
    assert "revoked" in dyno(env, "keys", "list")


def test_a_greedy_key_fills_its_share_of_the_queue_and_others_still_get_in(house, env):
    with house.another_api(**env, DYNO_MAX_QUEUED="8") as (_, api):
        http = api.http
        admin = {"Authorization": f"Bearer {dyno(env, 'keys', 'create', '--scope', 'admin', '--name', 'me').strip()}"}

        def key(name, **fields):
            made = http.post("/v1/keys", json={"name": name, "scope": "submit"} | fields, headers=admin).json()
            return {"Authorization": f"Bearer {made['secret']}"}

        greedy, modest, urgent = key("greedy"), key("modest"), key("urgent", high_priority=True)
        body = BODY | {"device": "tpu"}
        answers = [http.post("/v1/jobs", json=body, headers=greedy) for _ in range(10)]
        assert [answer.status_code for answer in answers] == [202] * 2 + [429] * 8
        refused = answers[-1].json()
        assert (refused["code"], answers[-1].headers["RateLimit-Policy"]) == ("limit-reached", '"queued-jobs";q=2')
        assert "2 jobs of this key are queued and its limit is 2" in refused["detail"]
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert http.post("/v1/jobs", json=body, headers=modest).status_code == 202

        high = body | {"priority": "high"}
        answer = http.post("/v1/jobs", json=high, headers=modest)
        assert (answer.status_code, answer.json()["code"]) == (403, "priority-not-allowed")
        assert http.post("/v1/jobs", json=high, headers=urgent).json()["queue"]["position"] == 0


@pytest.mark.verify
def test_a_service_is_opened_again_with_dyno_keys_open(http, env):
    made = json.loads(dyno(env, "keys", "create", "--scope", "read", "--name", "ci", "--json"))
    assert "aren't revoked" in dyno(env, "keys", "open", code=1)
    dyno(env, "keys", "revoke", made["id"])
    eventually(lambda: http.get("/v1/jobs").status_code == 401, 10, "no key is left, and one is asked for")
    dyno(env, "keys", "open")
    eventually(lambda: http.get("/v1/jobs").status_code == 200, 10, "none is asked for")

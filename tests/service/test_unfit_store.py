"""While a restart of Redis or a loss of power could take it, nothing new is accepted."""

import json
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import pytest

from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys
from service.app import create_app
from tests.waiting import eventually

BODY = {"workload": "matmul", "params": {"n": 64}, "device": "cpu", "expires_in_s": 3600}
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def settings(redis_url, namespace):
    return Settings(redis_url=redis_url, namespace=namespace, device_ttl_s=600, schedules_every_s=0.02)


@pytest.fixture
def new(http, finished):
    """Requests that make something which Dyno then keeps."""
    jobs = [finished(), finished()]
    exported = http.get("/v1/results", params={"format": "jsonl"}).text
    return {
        "job": lambda: http.post("/v1/jobs", json=BODY),
        "job with a wait": lambda: http.post("/v1/jobs", json=BODY, headers={"Prefer": "wait=0"}),
        "rerun": lambda: http.post(f"/v1/jobs/{jobs[0]}/rerun"),
        "two specs in turns": lambda: http.post("/v1/comparisons", json={"specs": [BODY, BODY]}),
        "comparison": lambda: http.post("/v1/comparisons", json={"jobs": jobs}),
        "sweep": lambda: http.post("/v1/sweeps", json={"spec": BODY, "grid": {"params.n": [64, 128]}}),
        "schedule": lambda: http.put("/v1/schedules/nightly", json={"cron": "0 3 * * *", "spec": BODY}),
        "import": lambda: http.post("/v1/results/import", content=exported, headers=NDJSON),
        "baseline": lambda: http.put("/v1/baselines/main", json={"job": jobs[0]}),
    }


@contextmanager
def configured(client, option, value, http):
    """Change an option of Redis. The API notices both changes."""
    before = client.config_get(option)
    status = http.get("/readyz").status_code
    client.config_set(option, value)
    try:
        eventually(lambda: http.get("/readyz").status_code != status, what="the next check finds it")
        yield
    finally:
        client.config_set(option, before[option])
        eventually(lambda: http.get("/readyz").status_code == status, what="the next check finds it")


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("appendonly", "no", "appendonly is off"),
        pytest.param("appendfsync", "no", "appendfsync is no", marks=pytest.mark.verify),
        pytest.param("maxmemory-policy", "allkeys-lru", "allkeys-lru", marks=pytest.mark.verify),
    ],
)
def test_while_redis_could_lose_it_nothing_new_is_accepted_or_stored(
    http, new, client, settings, option, value, reason
):
    names = [
        Keys(settings.namespace).jobs,
        *(f"{settings.namespace}:{name}" for name in ("sweeps", "schedules", "baselines")),
    ]
    repeated = [
        partial(http.post, url, json=body, headers={"Idempotency-Key": option + url})
        for url, body in (("/v1/jobs", BODY), ("/v1/sweeps", {"spec": BODY, "grid": {"params.n": [64, 128]}}))
    ]
    kept = [repeat() for repeat in repeated]
    with configured(client, option, value, http):
        for repeat in repeated:
            again = repeat()
            assert again.status_code == 202, again.text
            assert again.headers["Idempotent-Replayed"] == "true"
        before = [client.dump(name) for name in names]
        for what, request in new.items():
            answer = request()
            assert (answer.status_code, answer.json()["code"]) == (503, "store-unfit"), what
            assert reason in answer.json()["detail"], what
            assert int(answer.headers["Retry-After"]) > 0, what
        assert [client.dump(name) for name in names] == before
    accepted = {what: request() for what, request in new.items()}
    assert {what: answer.text for what, answer in accepted.items() if not answer.is_success} == {}
    for answer in [*kept, *accepted.values()]:
        for job in [answer.json(), *answer.json().get("points", ())]:
            http.post(f"/v1/jobs/{job.get('job') or job.get('id')}/cancel")


def test_while_redis_could_lose_the_job_a_firing_waits(http, offered, client, settings):
    keys, url = Keys(settings.namespace), "/v1/schedules/each-day"
    http.put(url, json={"cron": "0 3 * * *", "spec": BODY}).raise_for_status()
    due_s = client.time()[0] - 60
    document = json.loads(str(client.hget(keys.schedules(None), "each-day")))
    document["next_firings"] = [datetime.fromtimestamp(due_s, UTC).isoformat()]
    with configured(client, "appendonly", "no", http):
        client.hset(keys.schedules(None), "each-day", json.dumps(document))
        client.zadd(keys.schedules_due, {":each-day": due_s * 1000})
        checks = client.info("commandstats")["cmdstat_config|get"]["calls"]
        eventually(lambda: client.info("commandstats")["cmdstat_config|get"]["calls"] > checks, what="it looked")
        assert http.get(url).json()["firings"] == []
    [firing] = eventually(lambda: http.get(url).json()["firings"], what="it fires")
    assert http.post(f"/v1/jobs/{firing['job']}/cancel").is_success
    http.delete(url)


def test_a_damaged_list_of_queued_jobs_refuses_no_submit(http, offered, client, settings):
    def checks():
        return int(client.info("commandstats")["cmdstat_config|get"]["calls"])

    queued, before = Keys(settings.namespace).jobs_with_status("queued"), checks()
    client.delete(queued)
    client.set(queued, "a string")
    eventually(lambda: http.get("/readyz").status_code and checks() > before, what="a check since the damage")
    assert http.get("/readyz").status_code == 200
    accepted = http.post("/v1/jobs", json=BODY)
    assert accepted.status_code == 202
    http.post(f"/v1/jobs/{accepted.json()['id']}/cancel")


def test_redis_must_sync_as_often_as_asked(http, settings, serve, client):
    assert http.post("/v1/jobs", json=BODY | {"queue_if_absent": True}).is_success, "everysec, as by default"
    with serve(create_app(settings.model_copy(update={"durability": "always"}))) as strict:
        refused = strict.post("/v1/jobs", json=BODY | {"queue_if_absent": True})
        assert (refused.status_code, refused.json()["code"]) == (503, "store-unfit")
        assert "appendfsync is everysec" in refused.json()["detail"]
        with configured(client, "appendfsync", "always", strict):
            assert strict.post("/v1/jobs", json=BODY | {"queue_if_absent": True}).status_code == 202


@pytest.mark.parametrize(("durability", "status"), [("everysec", 503), ("none", 202)])
def test_a_redis_that_keeps_nothing_is_used_only_if_asked_for_by_name(serve, durability, status):
    with EmbeddedServer(appendfsync="none") as server:
        settings = Settings(redis_url=server.url, durability=durability)
        with serve(create_app(settings)) as http:
            answer = http.post("/v1/jobs", json=BODY | {"queue_if_absent": True})
            assert answer.status_code == status
            ready = http.get("/readyz").json()
            assert "restart" in (ready["detail"] if status == 503 else "; ".join(ready["notes"]))

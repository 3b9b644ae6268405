"""Firing: what is made up for after an outage, refusals, keys that went, and several APIs.

The tests write a schedule as it was some time ago, as if no API had been there since.
"""

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from dyno.models.api_key import Scope
from dyno.models.job_schedule import MOST_KEPT
from dyno.settings import Settings
from dyno.store.redis import Keys
from service.app import create_app
from tests.service.keys.conftest import make_key
from tests.waiting import eventually

WITHIN_S = 20
MINUTE = timedelta(minutes=1)
SPEC = {"workload": "matmul", "params": {"n": 64}, "device": "cpu", "expires_in_s": 3600}
EACH_MINUTE = "* * * * *"


@pytest.fixture(scope="module")
def settings(redis_url, namespace):
    return Settings(redis_url=redis_url, namespace=namespace, device_ttl_s=600, schedules_every_s=0.02)


@pytest.fixture(scope="module")
def http(settings, serve):
    """One of two APIs on one store."""
    with ExitStack() as stack:
        clients = [stack.enter_context(serve(create_app(settings))) for _ in range(2)]
        yield clients[0]


@pytest.fixture
def save(http, offered):
    """Save a schedule under a name of its own. It is deleted afterwards, and its queued jobs are canceled."""
    names = []

    def one(name, cron=EACH_MINUTE, headers=None, **spec):
        body = {"cron": cron, "spec": SPEC | spec}
        answer = http.put(f"/v1/schedules/{name}", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        names.append(name)
        return name

    yield one
    for name in names:
        http.delete(f"/v1/schedules/{name}")
        for job in jobs_of(http, name):
            http.post(job["urls"]["cancel"])


def jobs_of(http, name):
    listed = http.get("/v1/jobs", params={"label": f"schedule={name}", "limit": 200})
    return list(listed.json()["data"]) if listed.is_success else []


def read(http, name):
    return http.get(f"/v1/schedules/{name}").raise_for_status().json()


@pytest.fixture
def no_api_since(client, settings):
    """Set the next firing of a schedule back to `since`."""
    keys = Keys(settings.namespace)

    def write(name, since, owner="", **fields):
        stored = client.hget(keys.schedules(owner), name)
        document = json.loads(stored) | {"next_firings": [since.isoformat()]} | fields
        client.hset(keys.schedules(owner), name, json.dumps(document))
        client.zadd(keys.schedules_due, {f"{owner}:{name}": since.timestamp() * 1000})

    return write


def minutes_ago(number):
    return datetime.now(UTC).replace(second=0, microsecond=0) - number * MINUTE


def at(text):
    return datetime.fromisoformat(text)


def first_of(http, name):
    """The first firing of the schedule, once there is one."""
    fired = eventually(lambda: read(http, name)["firings"], WITHIN_S, "it fired")
    return fired[-1]


def test_the_last_time_is_made_up_for_and_the_others_are_missed(http, save, no_api_since):
    name, since = save("made-up"), minutes_ago(4)
    no_api_since(name, since)
    firing = first_of(http, name)
    due = at(firing["due_at"])
    assert timedelta() <= at(firing["fired_at"]) - due < MINUTE
    found = read(http, name)
    missed = [due - number * MINUTE for number in range(1, (due - since) // MINUTE + 1)]
    assert [at(each) for each in found["missed"]] == missed
    assert found["missed_count"] == len(missed)
    job = http.get(f"/v1/jobs/{firing['job']}").json()
    assert (job["spec"]["labels"], job["owner"], job["status"]) == ({"schedule": name}, None, "queued")
    assert at(found["next_firings"][0]) > at(found["firings"][0]["fired_at"])
    assert len(found["next_firings"]) == 5


def test_a_time_of_more_than_ten_minutes_ago_is_missed(http, save, no_api_since):
    since = minutes_ago(11) - timedelta(days=2)
    name = save("too-late", f"{since.minute} {since.hour} * * *")
    no_api_since(name, since)
    found = eventually(lambda: (now := read(http, name))["missed"] and now, WITHIN_S, "missed")
    assert [at(each) for each in found["missed"]] == [since + timedelta(days=days) for days in (2, 1, 0)]
    assert (found["missed_count"], found["firings"], jobs_of(http, name)) == (3, [], [])
    assert at(found["next_firings"][0]) == since + timedelta(days=3)


def test_a_time_of_nine_minutes_ago_is_made_up_for(http, save, no_api_since):
    since = minutes_ago(8)
    name = save("late", f"{since.minute} {since.hour} * * *")
    no_api_since(name, since)
    assert at(first_of(http, name)["due_at"]) == since
    assert len(jobs_of(http, name)) == 1


def test_a_long_outage_is_counted_and_not_listed_in_full(http, save, no_api_since):
    name, since = save("long"), minutes_ago(3 * 24 * 60)
    no_api_since(name, since)
    due = at(first_of(http, name)["due_at"])
    found = read(http, name)
    assert found["missed_count"] == (due - since) // MINUTE
    assert [at(each) for each in found["missed"]] == [due - number * MINUTE for number in range(1, MOST_KEPT + 1)]


def test_two_apis_make_one_job_for_each_schedule(http, save, no_api_since):
    since = minutes_ago(1)
    names = [save(f"many-{number}", f"{since.minute} {since.hour} * * *") for number in range(30)]
    for name in names:
        no_api_since(name, since)
    for name in names:
        fired = first_of(http, name)
        assert [job["id"] for job in jobs_of(http, name)] == [fired["job"]]
    metrics = http.get("/metrics").text
    [line] = [line for line in metrics.splitlines() if line.startswith('dyno_schedule_firings_total{outcome="fired"}')]
    assert float(line.split()[-1]) >= len(names)


def test_a_refused_submit_is_told_and_does_not_stop_the_schedule(http, save, no_api_since):
    http.put("/v1/baselines/gone", json={"metric": "throughput", "at_least": 1}).raise_for_status()
    since = minutes_ago(1)
    name = save("refused", f"{since.minute} {since.hour} * * *", baseline="gone")
    http.delete("/v1/baselines/gone").raise_for_status()
    no_api_since(name, since)
    refused = first_of(http, name)
    assert (refused["job"], refused["code"]) == (None, "invalid-spec")
    assert "baseline" in refused["detail"]
    found = read(http, name)
    assert (found["stopped"], at(found["next_firings"][0]), jobs_of(http, name)) == (
        None,
        since + timedelta(days=1),
        [],
    )
    http.put("/v1/baselines/gone", json={"metric": "throughput", "at_least": 1}).raise_for_status()
    no_api_since(name, since)
    fired = eventually(lambda: len(now := read(http, name)["firings"]) == 2 and now, WITHIN_S, "it fired again")
    assert fired[0]["job"] == jobs_of(http, name)[0]["id"]


def test_a_disabled_schedule_does_not_fire_and_misses_nothing(http, save, no_api_since):
    name = save("disabled")
    body = {"cron": EACH_MINUTE, "spec": SPEC}
    off = http.put(f"/v1/schedules/{name}", json=body | {"enabled": False}).json()
    assert (off["enabled"], off["next_firings"]) == (False, [])
    other = save("enabled")
    no_api_since(other, minutes_ago(1))
    first_of(http, other)  # so the APIs have looked
    on = http.put(f"/v1/schedules/{name}", json=body).json()
    assert (on["missed_count"], len(on["next_firings"])) == (0, 5)


def test_a_schedule_that_this_version_cannot_read_stops_no_other(http, save, no_api_since):
    broken, ended, whole = (save(name) for name in ("broken", "ended", "whole"))
    no_api_since(broken, minutes_ago(9), spec=None)
    no_api_since(ended, minutes_ago(8), timezone="Mars/Olympus")
    no_api_since(whole, minutes_ago(1))
    first_of(http, whole)
    stopped = eventually(lambda: read(http, ended)["stopped"], WITHIN_S, "it stopped")
    assert (stopped["code"], read(http, ended)["next_firings"]) == ("invalid-schedule", [])
    assert "Mars/Olympus" in stopped["detail"]


@pytest.fixture
def with_keys(redis_url, settings, namespace):
    return settings.model_copy(update={"namespace": f"{namespace}-keys"})


def test_a_schedule_stops_when_its_key_was_revoked_or_a_key_is_needed(with_keys, serve, client, device):
    since = minutes_ago(1)
    with serve(create_app(with_keys)) as http:
        body = {"cron": f"{since.minute} {since.hour} * * *", "spec": SPEC | {"queue_if_absent": True}}
        http.put("/v1/schedules/anyones", json=body).raise_for_status()
        (admin, admins_secret), (mine, secret) = (make_key(with_keys, scope) for scope in (Scope.ADMIN, Scope.SUBMIT))
        eventually(lambda: http.get("/v1/schedules").status_code == 401, WITHIN_S, "a key is needed")
        http.headers["Authorization"] = f"Bearer {secret}"
        http.put("/v1/schedules/mine", json=body).raise_for_status()
        http.headers["Authorization"] = f"Bearer {admins_secret}"
        http.put("/v1/schedules/admins", json=body).raise_for_status()
        http.delete(f"/v1/keys/{mine}").raise_for_status()
        keys = Keys(with_keys.namespace)
        for owner, name in (("", "anyones"), (mine, "mine"), (admin, "admins")):
            document = json.loads(client.hget(keys.schedules(owner), name) or "")
            client.hset(keys.schedules(owner), name, json.dumps(document | {"next_firings": [since.isoformat()]}))
            client.zadd(keys.schedules_due, {f"{owner}:{name}": since.timestamp() * 1000})
        assert http.get(f"/v1/jobs/{first_of(http, 'admins')['job']}").json()["owner"] == admin
        for name, why in (("mine", "revoked"), ("anyones", "without a key")):
            stopped = eventually(lambda name=name: read(http, name)["stopped"], WITHIN_S, "it stopped")
            assert stopped["code"] == "not-authorized"
            assert why in stopped["detail"]
            assert (read(http, name)["next_firings"], read(http, name)["firings"]) == ([], [])

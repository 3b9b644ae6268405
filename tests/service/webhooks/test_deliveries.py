"""Valid and invalid webhooks, and the deliveries that clients see."""

import pytest
from pydantic import ValidationError

from dyno.settings import Settings
from dyno.store.redis import Keys
from service.app import create_app
from tests.inbox import Inbox
from tests.service.webhooks.conftest import SECRET

UNKNOWN = "msg_01J00000000000000000000000"
SPEC = {"workload": "matmul", "params": {"n": 64}, "device": "cpu"}


def pointers(answer):
    assert answer.status_code == 422, answer.text
    return {(each["pointer"], each["code"]) for each in answer.json()["errors"]}


@pytest.mark.parametrize(
    ("webhook", "pointer"),
    [
        ("http://hooks.example.org/", "/webhook"),
        ("https://10.1.2.3/", "/webhook"),
        ("https://[::1]/", "/webhook"),
        ("https://0x7f.1/", "/webhook"),
        ("https://user@hooks.example.org/", "/webhook"),
        ({"url": "ftp://hooks.example.org/"}, "/webhook/url"),
        ({"url": "https://hooks.example.org/", "secret": "x"}, "/webhook/secret"),
        ({}, "/webhook/url"),
        (["https://hooks.example.org/"], "/webhook"),
        (7, "/webhook"),
    ],
)
def test_forbidden_urls_are_refused_with_a_pointer(http, offered, webhook, pointer):
    for params in ({}, {"validate_only": True}):
        found = pointers(http.post("/v1/jobs", json=SPEC | {"webhook": webhook}, params=params))
        assert {at for at, _ in found} == {pointer}


def test_a_webhook_in_one_of_two_specs_has_a_pointer_there(http, offered):
    first, second = ({"n": 64, "repeats": repeats} for repeats in (10, 20))
    specs = [SPEC | {"params": first, "webhook": "https://10.1.2.3/"}, {"workload": "matmul", "params": second}]
    found = pointers(http.post("/v1/comparisons", json={"pairs": 2, "specs": specs}))
    assert ("/specs/0/webhook", "webhook-refused") in found


def test_a_url_is_shown_as_an_object_and_kept_by_a_rerun(http, submitted, inbox):
    first = submitted(webhook=inbox.url)
    again = http.post(f"/v1/jobs/{first}/rerun").raise_for_status().json()
    http.post(again["urls"]["cancel"])
    for job_id in (first, again["id"]):
        assert http.get(f"/v1/jobs/{job_id}").json()["spec"]["webhook"] == {"url": inbox.url}


def test_a_stored_url_that_is_now_forbidden_hides_no_job(http, submitted, inbox, client, settings):
    job_id, old = submitted(webhook=inbox.url), "https://.example.org/"
    client.hset(Keys(settings.namespace).job(job_id), "webhook", old)
    assert http.get(f"/v1/jobs/{job_id}").json()["spec"]["webhook"] == {"url": old}


def test_without_a_secret_webhooks_are_refused(settings, serve, offered):
    with serve(create_app(settings.model_copy(update={"webhook_secret": None}))) as http:
        answer = http.post("/v1/jobs", json=SPEC | {"webhook": "https://hooks.example.org/"})
        assert pointers(answer) == {("/webhook", "webhooks-off")}
        assert "DYNO_WEBHOOK_SECRET" in answer.json()["detail"]
        assert http.get("/v1/webhook-secret").json() == {"secret": None}


@pytest.mark.parametrize("secret", ["hidden", "whsec_hidden", "whsec_c2hvcnQ=", SECRET.removeprefix("whsec_")])
def test_an_invalid_secret_prevents_the_start_and_is_not_printed(secret, monkeypatch):
    monkeypatch.setenv("DYNO_WEBHOOK_SECRET", secret)
    with pytest.raises(ValidationError, match="24 to 64 bytes") as caught:
        Settings()
    assert secret not in str(caught.value)
    monkeypatch.setenv("DYNO_WEBHOOK_SECRET", "")
    assert Settings().webhook_secret is None


@pytest.fixture
def three(canceled, delivery, inbox):
    """Deliveries of three jobs, newest first; that of the last will be retried."""
    with Inbox(500) as refusing:
        ids = [canceled(url) for url in (inbox.url, inbox.url, refusing.url)]
        yield [delivery(job_id, ended=1)["id"] for job_id in ids][::-1]


def test_deliveries_are_paged_newest_first(http, three):
    answer, seen = http.get("/v1/webhook-deliveries", params={"limit": 1}), []
    while len(seen) < len(three):
        assert answer.json()["has_more"] == ("next" in answer.links)
        seen += [each["id"] for each in answer.raise_for_status().json()["data"]]
        answer = http.get(answer.links["next"]["url"]) if "next" in answer.links else answer
    assert seen == three
    listed = http.get("/openapi.json").json()["paths"]["/v1/webhook-deliveries"]["get"]["responses"]["200"]
    assert "Link" in listed["headers"]


def test_deliveries_are_found_by_status_and_time(http, three):
    def found(**params):
        data = http.get("/v1/webhook-deliveries", params=params).raise_for_status().json()["data"]
        return [each["id"] for each in data if each["id"] in three]

    oldest = http.get("/v1/webhook-deliveries", params={"job": three[-1].replace("msg_", "job_")}).json()["data"][0]
    assert found(status="pending") == three[:1]
    assert found(status="delivered") == three[1:]
    assert found(created_after=oldest["created_at"]) == three[:-1]
    assert found(created_before=oldest["created_at"]) == []
    assert http.get("/v1/webhook-deliveries", params={"job": UNKNOWN.replace("msg_", "job_")}).json()["data"] == []


@pytest.mark.parametrize("params", [{"status": "lost"}, {"job": "x"}, {"cursor": "x"}, {"limit": 0}, {"sort": "x"}])
def test_a_wrong_filter_is_named(http, params):
    answer = http.get("/v1/webhook-deliveries", params=params)
    assert {at for at, _ in pointers(answer)} == {f"/query/{name}" for name in params}


def test_a_redelivery_is_audited_with_its_caller(http, inbox, canceled, delivery, caplog):
    job_id = canceled(inbox.url)
    first = delivery(job_id, ended=1)
    assert http.post(f"/v1/webhook-deliveries/{first['id']}/redeliver").status_code == 202
    assert delivery(job_id, ended=2)["status"] == "delivered"
    [line] = [each.message for each in caplog.records if each.name == "dyno.audit"]
    assert line == f'webhook-redelivered by="anyone" job="{job_id}"'


def test_unknown_deliveries_are_not_found(http, submitted, inbox):
    waiting = submitted(webhook=inbox.url)
    for unknown in (UNKNOWN, "msg_x", waiting.replace("job_", "msg_"), waiting):
        answer = http.post(f"/v1/webhook-deliveries/{unknown}/redeliver")
        assert (answer.status_code, answer.json()["code"]) == (404, "delivery-not-found")


def test_deliveries_are_deleted_with_their_job(http, inbox, canceled, delivery):
    job_id = canceled(inbox.url)
    found = delivery(job_id, ended=1)
    assert http.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert found["id"] not in http.get("/v1/webhook-deliveries").text
    assert http.post(f"/v1/webhook-deliveries/{found['id']}/redeliver").status_code == 404

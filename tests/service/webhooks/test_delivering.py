"""Webhooks of done jobs are delivered, and a receiver that fails delays no other."""

import json
import logging
from datetime import datetime, timedelta

import pytest
from standardwebhooks import Webhook

from dyno.models.job import Failure, FailureClass, WorkerRef
from dyno.processes import free_port
from dyno.store.redis import Keys
from dyno.webhook_delivery import MAX_ATTEMPTS_AT_ONCE, MAX_ATTEMPTS_PER_RECEIVER
from service.app import create_app
from tests.inbox import Inbox
from tests.service.webhooks.conftest import PAUSE_S, SECRET
from tests.waiting import eventually


def verified(http, message):
    """The message, verified by the Standard Webhooks library; it raises for a wrong signature or time."""
    secret = http.get("/v1/webhook-secret").json()["secret"]
    return Webhook(secret).verify(message.body, message.headers)


def test_a_canceled_job_sends_one_signed_webhook(http, inbox, canceled, delivery):
    job_id = canceled(inbox.url)
    found = delivery(job_id, ended=1)
    assert (found["status"], found["type"], found["attempts_made"]) == ("delivered", "job.canceled", 1)
    [message] = inbox.messages
    told = verified(http, message)
    job = http.get(f"/v1/jobs/{job_id}").json()
    assert (told["type"], told["timestamp"]) == ("job.canceled", job["finished_at"])
    of_job = {name: job[name] for name in ("id", "status", "version", "created_at", "finished_at", "urls")}
    assert of_job.items() <= told["data"].items()
    assert told["data"]["spec"] == {"workload": "matmul", "labels": {}}
    assert message.headers["webhook-id"] == found["id"] == job_id.replace("job_", "msg_")


def test_succeeded_and_failed_jobs_send_webhooks(http, inbox, finished, submitted, delivery, claimed):
    succeeded = finished(spec={"webhook": {"url": inbox.url}})
    assert delivery(succeeded, ended=1)["type"] == "job.succeeded"
    leases, claim = claimed()
    leases.finish(claim, "succeed")
    with_hook = submitted(webhook=inbox.url)
    again = leases.claim(claim.device, [claim.queue], WorkerRef(id="w", device="cpu:0-1", host="here"))
    assert again.spec.webhook is None, "a worker is told where the webhook leads"
    timeout = Failure(failure_class=FailureClass.TIMEOUT, reason="timeout", message="…", log_tail="printed")
    assert leases.finish(again, "fail", status_reason="timeout", failure=timeout)
    assert delivery(with_hook, ended=1)["type"] == "job.failed"
    assert [verified(http, each)["data"]["id"] for each in inbox.messages] == [succeeded, with_hook]
    told = verified(http, inbox.messages[1])["data"]
    assert (told["status_reason"], told["failure"]) == ("timeout", {"class": "timeout", "reason": "timeout"})


def test_a_webhook_is_delivered_once_after_three_failed_attempts(http, canceled, delivery, due):
    port = free_port()
    job_id = canceled(f"http://127.0.0.1:{port}/hook")
    refused = delivery(job_id, ended=1)
    with Inbox(500, 200, port=port) as inbox:
        due(job_id)
        delivery(job_id, ended=2)
        inbox.answering.clear()
        due(job_id)
        delivery(job_id, ended=3)
        inbox.answering.set()
        due(job_id)
        found = delivery(job_id, ended=4)
    ends = [(each["ended"]["outcome"], each["ended"]["status_code"]) for each in found["attempts"]]
    assert ends == [("unreachable", None), ("refused", 500), ("timeout", None), ("delivered", 204)]
    assert (found["status"], found["next_attempt_at"]) == ("delivered", None)
    wait = datetime.fromisoformat(refused["next_attempt_at"]) - datetime.fromisoformat(refused["attempts"][0]["at"])
    assert timedelta(seconds=0.9 * PAUSE_S) <= wait <= timedelta(seconds=1.1 * PAUSE_S + 60)
    assert {each.headers["webhook-id"] for each in inbox.messages} == {found["id"]}
    assert len({each.body for each in inbox.messages}) == 1
    assert verified(http, inbox.messages[-1])["data"]["id"] == job_id


def test_a_webhook_answered_410_is_not_retried(canceled, delivery, due):
    with Inbox(410) as inbox:
        job_id = canceled(inbox.url)
        found = delivery(job_id, ended=1)
        due(job_id)
    assert (found["status"], found["next_attempt_at"], len(inbox.messages)) == ("failed", None, 1)


def test_after_eight_attempts_only_a_redelivery_sends_again(http, canceled, delivery, due):
    with Inbox(*[503] * 8) as inbox:
        job_id = canceled(inbox.url)
        for attempt in range(1, 8):
            assert delivery(job_id, ended=attempt)["status"] == "pending"
            due(job_id)
        assert delivery(job_id, ended=8)["status"] == "failed"
        asked = http.post(f"/v1/webhook-deliveries/{job_id.replace('job_', 'msg_')}/redeliver")
        assert (asked.status_code, asked.json()["status"]) == (202, "pending")
        found = delivery(job_id, ended=9)
    assert (found["status"], found["attempts_made"]) == ("delivered", 9)
    assert {each.headers["webhook-id"] for each in inbox.messages} == {found["id"]}


@pytest.mark.parametrize(("field", "damage"), [("spec", "{"), ("webhook", "nowhere")])
def test_internal_failures_are_reported_and_retried_after_the_pause(
    http, inbox, canceled, delivery, client, settings, field, damage
):
    job_id = canceled(inbox.url)
    delivery_id = delivery(job_id, ended=1)["id"]
    client.hset(Keys(settings.namespace).job(job_id), field, damage)
    http.post(f"/v1/webhook-deliveries/{delivery_id}/redeliver").raise_for_status()
    found = delivery(job_id, ended=2)
    last = found["attempts"][-1]
    assert (last["ended"]["outcome"], last["ended"]["status_code"]) == ("error", None)
    assert last["ended"]["detail"]
    wait = datetime.fromisoformat(found["next_attempt_at"]) - datetime.fromisoformat(last["at"])
    assert timedelta(seconds=0.9 * PAUSE_S) <= wait <= timedelta(seconds=1.1 * PAUSE_S + 60)


def test_silent_receivers_delay_no_other(settings, serve, inbox):
    patient = settings.model_copy(update={"namespace": f"{settings.namespace}-slow", "webhook_timeout_s": 600.0})
    spec = {"workload": "matmul", "device": "tpu", "queue_if_absent": True}
    with Inbox() as slow, serve(create_app(patient)) as http:
        slow.answering.clear()

        def ends(url):
            job = http.post("/v1/jobs", json=spec | {"webhook": url}).raise_for_status().json()
            http.post(job["urls"]["cancel"]).raise_for_status()

        for _ in range(MAX_ATTEMPTS_AT_ONCE + 1):
            ends(slow.url)
        eventually(lambda: len(slow.messages) >= MAX_ATTEMPTS_PER_RECEIVER)
        ends(inbox.url)
        eventually(lambda: inbox.messages, what="the other is told")
        assert len(slow.messages) == MAX_ATTEMPTS_PER_RECEIVER


def test_no_secret_is_stored_returned_counted_or_logged(http, inbox, canceled, delivery, client, settings, caplog):
    caplog.set_level(logging.DEBUG)
    job_id = canceled(inbox.url)
    delivery(job_id, ended=1)
    with Inbox(410) as refusing:
        delivery(canceled(refusing.url), ended=1)
    derived = http.get("/v1/webhook-secret").json()["secret"]
    assert derived != SECRET
    stored = [client.dump(key) for key in client.scan_iter(f"{settings.namespace}:*")]
    told = [http.get(path).text for path in ("/v1/jobs", f"/v1/jobs/{job_id}/events", "/v1/webhook-deliveries")]
    everywhere = f"{stored!r} {told} {http.get('/metrics').text} {caplog.text} {settings!r} {inbox.messages}"
    for secret in (SECRET, derived):
        assert secret.removeprefix("whsec_") not in everywhere
    assert 'dyno_webhooks_total{status="delivered"}' in http.get("/metrics").text


def test_the_webhook_url_is_not_in_the_workers_spec(canceled, client, settings, inbox):
    job_id = canceled(f"{inbox.url}?token=hidden")
    record = client.hgetall(Keys(settings.namespace).job(job_id))
    assert "webhook" not in json.loads(record["spec"])
    assert record["webhook"].endswith("token=hidden")

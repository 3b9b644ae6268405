"""Webhooks of API keys: each key has its own deliveries and its own secret."""

from contextlib import ExitStack

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from dyno.models.api_key import Scope
from dyno.webhook_delivery import MAX_ATTEMPTS_AT_ONCE, MAX_ATTEMPTS_PER_OWNER, MAX_ATTEMPTS_PER_RECEIVER
from service.app import create_app
from tests.inbox import Inbox
from tests.service.keys.conftest import make_key, problem
from tests.waiting import eventually


def listed(who):
    return [each["id"] for each in who.http.get("/v1/webhook-deliveries").raise_for_status().json()["data"]]


def test_a_key_handles_its_own_deliveries_and_an_admin_sees_all(owner, caller, finished):
    stranger, reader, admin = caller(), caller(Scope.READ), caller(Scope.ADMIN)
    with Inbox() as inbox:
        job_id = finished(spec={"webhook": inbox.url})
        eventually(lambda: inbox.messages)
    delivery = job_id.replace("job_", "msg_")
    assert (listed(owner), listed(admin), listed(stranger), listed(reader)) == ([delivery], [delivery], [], [])
    path = f"/v1/webhook-deliveries/{delivery}/redeliver"
    assert problem(stranger.http.post(path)) == (404, "delivery-not-found")
    assert problem(reader.http.post(path)) == (403, "scope-missing")
    assert [who.http.post(path).status_code for who in (owner, admin)] == [202, 202]

    secrets = [who.http.get("/v1/webhook-secret").json()["secret"] for who in (owner, stranger, admin)]
    assert len(set(secrets)) == 3
    message = inbox.messages[0]
    assert Webhook(secrets[0]).verify(message.body, message.headers)["data"]["id"] == job_id
    for other in secrets[1:]:
        with pytest.raises(WebhookVerificationError):
            Webhook(other).verify(message.body, message.headers)


def test_a_key_with_silent_receivers_delays_no_other(settings, serve):
    patient = settings.model_copy(update={"namespace": f"{settings.namespace}-slow", "webhook_timeout_s": 600.0})
    spec = {"workload": "matmul", "device": "tpu", "queue_if_absent": True}
    (_, greedy), (_, other) = make_key(patient), make_key(patient)
    with ExitStack() as stack:
        silent = [stack.enter_context(Inbox()) for _ in range(MAX_ATTEMPTS_AT_ONCE // MAX_ATTEMPTS_PER_RECEIVER)]
        quick = stack.enter_context(Inbox())
        http = stack.enter_context(serve(create_app(patient)))

        def ends(secret, inbox):
            mine = {"Authorization": f"Bearer {secret}"}
            job = http.post("/v1/jobs", json=spec | {"webhook": inbox.url}, headers=mine).raise_for_status().json()
            http.post(job["urls"]["cancel"], headers=mine).raise_for_status()

        for inbox in silent:
            inbox.answering.clear()
            for _ in range(MAX_ATTEMPTS_PER_RECEIVER):
                ends(greedy, inbox)
        eventually(lambda: sum(len(inbox.messages) for inbox in silent) >= MAX_ATTEMPTS_PER_OWNER)
        ends(other, quick)
        eventually(lambda: quick.messages, what="the other key's is told")
        assert sum(len(inbox.messages) for inbox in silent) == MAX_ATTEMPTS_PER_OWNER

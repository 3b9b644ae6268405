"""Webhooks of API keys: each sees and sends its own, and has a secret of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from dyno.access import Scope
from tests.inbox import Inbox
from tests.service.keys.conftest import Caller, problem
from tests.waiting import eventually


def listed(who: Caller) -> list[str]:
    return [each["id"] for each in who.http.get("/v1/webhook-deliveries").raise_for_status().json()["data"]]


def test_a_key_sees_sends_and_checks_its_own_and_an_admin_sees_all(
    owner: Caller, caller: Callable[..., Caller], finished: Callable[..., str]
) -> None:
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

"""Webhooks as users see them: a URL in the spec, signed messages at its receiver, and listed deliveries."""

import base64
import json
import re
import uuid
from pathlib import Path

import pytest

from tests.inbox import Inbox
from tests.waiting import eventually

SECRET = f"whsec_{base64.b64encode(b'a secret of 32 bytes, not random').decode()}"
SENDS = {
    "DYNO_WEBHOOK_SECRET": SECRET,
    "DYNO_WEBHOOK_ALLOWED_HOSTS": "127.0.0.1",
    "DYNO_WEBHOOK_RETRY_S": "0,0,0,0,0,0,0",
    "DYNO_WEBHOOK_EVERY_S": "0.05",
    "DYNO_WEBHOOK_TIMEOUT_S": "20",
}
PAGE = (Path(__file__).parent.parent / "docs" / "webhooks.md").read_text()
WITH_THE_LIBRARY, WITHOUT_IT = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
WAITS = {"workload": "matmul", "params": {"n": 64}, "device": "tpu", "queue_if_absent": True}


@pytest.fixture
def sending(house, api):
    """An API that sends webhooks, beside one that doesn't, with the same store and worker."""
    with house.another_api(**SENDS) as (_, one):
        yield one


def deliveries(api, job):
    return api.http.get("/v1/webhook-deliveries", params={"job": job["id"]}).json()["data"]


def is_signed(secret, message):
    """Check the signature with both programs of docs/webhooks.md."""
    names = {"body": message.body, "headers": message.headers}
    exec(WITH_THE_LIBRARY.replace("whsec_…", secret), names)  # raises if anything is wrong
    exec(WITHOUT_IT, names)
    is_from_dyno = names["is_from_dyno"]
    assert not is_from_dyno(secret, message.headers, message.body + b" ")
    return bool(is_from_dyno(secret, message.headers, message.body))


def test_a_done_jobs_webhook_is_delivered_after_three_failures(sending, tiny):
    with Inbox(500, 503, 302) as inbox:
        job = sending.submit(tiny, webhook=inbox.url, labels={"commit": "abc"})
        done = sending.finished(job)
        eventually(lambda: deliveries(sending, job)[0]["status"] == "delivered", what="delivered")
    [delivery] = deliveries(sending, job)
    assert [each["ended"]["status_code"] for each in delivery["attempts"]] == [500, 503, 302, 204]
    assert [each.path for each in inbox.messages] == ["/hook"] * 4
    assert {each.headers["webhook-id"] for each in inbox.messages} == {delivery["id"]}
    secret = sending.http.get("/v1/webhook-secret").json()["secret"]
    assert all(is_signed(secret, each) for each in inbox.messages)
    told = json.loads(inbox.messages[-1].body)
    assert (told["type"], told["data"]["id"], told["data"]["status"]) == ("job.succeeded", job["id"], "succeeded")
    assert told["timestamp"] == done["finished_at"]
    assert told["data"]["spec"]["labels"] == {"commit": "abc"}
    assert sending.http.get(told["data"]["urls"]["result"]).json()["job"] == job["id"]

    with Inbox(port=inbox.port) as again:
        assert sending.http.post(f"/v1/webhook-deliveries/{delivery['id']}/redeliver").status_code == 202
        eventually(lambda: again.messages, what="sent again")
    assert again.messages[0].headers["webhook-id"] == delivery["id"]


def test_a_delivery_survives_the_api_that_was_sending_it(house):
    env = SENDS | {"DYNO_NAMESPACE": f"webhooks-{uuid.uuid4().hex[:12]}", "DYNO_WEBHOOK_TIMEOUT_S": "5"}
    with Inbox() as inbox:
        with house.another_api(**env) as (process, api):
            inbox.answering.clear()
            job = api.submit(WAITS, webhook=inbox.url)
            assert api.cancel(job).status_code == 200
            eventually(lambda: inbox.messages, what="the first attempt is under way")
            process.kill()
            process.wait()
        sent = len(inbox.messages)
        inbox.answering.set()
        with house.another_api(**env) as (_, api):
            eventually(lambda: deliveries(api, job)[0]["status"] == "delivered", what="delivered by another API")
            [delivery] = deliveries(api, job)
    assert delivery["attempts"][-2]["ended"] is None, "the outcome of the dead process' attempt is unknown"
    assert len(inbox.messages) == sent + 1
    assert {each.headers["webhook-id"] for each in inbox.messages} == {delivery["id"]}

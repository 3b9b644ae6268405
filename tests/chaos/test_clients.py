"""Clients that retry until they succeed, against a server that makes it hard for them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from chaos.clients import ApiKey, CancelResponse, Responses, submit_all
from chaos.plan import PlannedJob

JOB = PlannedJob("key", 0.0, "tiny", {"workload": "matmul"}, twice=False, cancel_after_s=None)
ACCEPTED = (202, {"id": "job_1"})
AWAY = (503, {"code": "store-unavailable"})
KEY = ApiKey("key_1", "dyno_1")
Answer = tuple[int, Mapping[str, str | None]] | None


class Moody:
    """Responses each request with the next of `answers`, and the last one from then on; None cuts the connection."""

    def __init__(self, answers: Sequence[Answer], retry_after: bool = True) -> None:
        self.asked: list[tuple[str, str | None, str | None, bytes]] = []
        moods = list(answers)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                key, secret = self.headers.get("Idempotency-Key"), self.headers.get("Authorization")
                outer.asked.append((self.path, key, secret, body))
                answer = moods.pop(0) if len(moods) > 1 else moods[0]
                if answer is None:
                    self.close_connection = True
                    return
                status, said = answer
                text = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                if status == 503 and retry_after:
                    self.send_header("Retry-After", "1")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def submitted(moody: Moody, *jobs: PlannedJob, keys: Sequence[ApiKey] = (ApiKey(),)) -> Responses:
    responses = Responses()
    try:
        asyncio.run(submit_all(moody.url, jobs, time.monotonic(), responses, keys))
    finally:
        moody.close()
    return responses


def test_a_submit_is_repeated_unchanged_until_it_is_accepted() -> None:
    moody = Moody([AWAY, None, ACCEPTED])
    responses = submitted(moody, JOB)
    assert responses.accepted == {"key": {"job_1"}}
    assert moody.asked == [("/v1/jobs", "key", None, b'{"workload":"matmul"}')] * 3
    assert responses.retries == {"503": 1, "RemoteProtocolError": 1}
    assert responses.unexpected == []


def test_two_responses_to_one_key_are_both_recorded() -> None:
    responses = submitted(Moody([ACCEPTED, (202, {"id": "job_2"})]), JOB._replace(twice=True))
    assert responses.accepted == {"key": {"job_1", "job_2"}}
    assert responses.ids == {"job_1", "job_2"}


def test_api_keys_take_turns_and_a_submit_is_repeated_with_its_own() -> None:
    moody, jobs = Moody([AWAY, *[ACCEPTED] * 4]), [JOB._replace(key=key) for key in "abc"]
    submitted(moody, *jobs, keys=(ApiKey(), KEY))
    assert {asked[1:3] for asked in moody.asked} == {("a", None), ("b", "Bearer dyno_1"), ("c", None)}
    assert len(moody.asked) == 4


@pytest.mark.parametrize(("owner", "unexpected"), [("key_1", 0), ("key_2", 1), (None, 1)])
def test_a_job_of_another_owner_is_unexpected(owner: str | None, unexpected: int) -> None:
    assert len(submitted(Moody([(202, {"id": "job_1", "owner": owner})]), JOB, keys=[KEY]).unexpected) == unexpected


def test_a_cancel_is_recorded_before_it_is_sent_and_repeated_until_it_has_a_response() -> None:
    moody = Moody([ACCEPTED, None, (409, {"code": "job-finished"})])
    responses = submitted(moody, JOB._replace(cancel_after_s=0.0))
    assert responses.canceling == {"job_1"}
    assert responses.cancels == {"job_1": [CancelResponse(409, "None")]}
    assert [asked[0] for asked in moody.asked] == ["/v1/jobs", *["/v1/jobs/job_1/cancel"] * 2]
    assert responses.unexpected == []


@pytest.mark.parametrize(("answer", "retry_after"), [((500, {}), True), ((422, {}), True), (AWAY, False)])
def test_any_other_response_is_unexpected(answer: Answer, retry_after: bool) -> None:
    responses = submitted(Moody([answer], retry_after), JOB)
    [unexpected] = responses.unexpected
    assert unexpected.startswith("POST /v1/jobs:")
    assert responses.accepted == {}

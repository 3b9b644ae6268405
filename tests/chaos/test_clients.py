"""Clients that retry until they succeed, against a server that makes it hard for them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
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
        self.asked: list[tuple[str, str | None, bytes]] = []
        self.secrets: list[tuple[str | None, str | None]] = []
        moods = list(answers)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.path, self.headers.get("Idempotency-Key"), body))
                outer.secrets.append((self.headers.get("Idempotency-Key"), self.headers.get("Authorization")))
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


@pytest.fixture
def moods() -> Iterator[list[Moody]]:
    made: list[Moody] = []
    yield made
    for one in made:
        one.close()


def submitted(moody: Moody, moods: list[Moody], *jobs: PlannedJob, keys: Sequence[ApiKey] = (ApiKey(),)) -> Responses:
    moods.append(moody)
    responses = Responses()
    asyncio.run(submit_all(moody.url, jobs, time.monotonic(), responses, keys))
    return responses


def test_a_submit_is_repeated_as_it_was_until_it_is_accepted(moods: list[Moody]) -> None:
    moody = Moody([AWAY, None, ACCEPTED])
    responses = submitted(moody, moods, JOB)
    assert responses.accepted == {"key": {"job_1"}}
    assert moody.asked == [("/v1/jobs", "key", b'{"workload":"matmul"}')] * 3
    assert responses.retries == {"503": 1, "RemoteProtocolError": 1}
    assert responses.unexpected == []


def test_two_answers_to_one_key_are_both_noted(moods: list[Moody]) -> None:
    responses = submitted(Moody([ACCEPTED, (202, {"id": "job_2"})]), moods, JOB._replace(twice=True))
    assert responses.accepted == {"key": {"job_1", "job_2"}}
    assert responses.ids == {"job_1", "job_2"}


def test_keys_take_turns_and_a_submit_is_repeated_with_its_own(moods: list[Moody]) -> None:
    moody, jobs = Moody([AWAY, *[ACCEPTED] * 4]), [JOB._replace(key=key) for key in "abc"]
    submitted(moody, moods, *jobs, keys=(ApiKey(), KEY))
    assert len(moody.secrets) == 4
    assert set(moody.secrets) == {("a", None), ("b", "Bearer dyno_1"), ("c", None)}


@pytest.mark.parametrize(("owner", "unexpected"), [("key_1", 0), ("key_2", 1), (None, 1)])
def test_a_job_that_is_not_its_callers_is_unexpected(owner: str | None, unexpected: int, moods: list[Moody]) -> None:
    moody = Moody([(202, {"id": "job_1", "owner": owner})])
    assert len(submitted(moody, moods, JOB, keys=[KEY]).unexpected) == unexpected


def test_a_cancel_is_noted_before_it_is_sent_and_repeated_until_it_is_answered(moods: list[Moody]) -> None:
    moody = Moody([ACCEPTED, None, (409, {"code": "job-finished"})])
    responses = submitted(moody, moods, JOB._replace(cancel_after_s=0.0))
    assert responses.canceling == {"job_1"}
    assert responses.cancels == {"job_1": [CancelResponse(409, "None")]}
    assert [path for path, _, _ in moody.asked] == ["/v1/jobs", *["/v1/jobs/job_1/cancel"] * 2]
    assert responses.unexpected == []


@pytest.mark.parametrize("answer", [(500, {}), (422, {}), (404, {})])
def test_any_other_answer_is_unexpected(answer: Answer, moods: list[Moody]) -> None:
    [unexpected] = submitted(Moody([answer]), moods, JOB).unexpected
    assert unexpected.startswith("POST /v1/jobs:")


def test_a_503_that_does_not_say_when_to_come_back_is_unexpected(moods: list[Moody]) -> None:
    responses = submitted(Moody([AWAY], retry_after=False), moods, JOB)
    assert len(responses.unexpected) == 1
    assert responses.accepted == {}

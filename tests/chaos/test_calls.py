"""Callers who don't give up, against a server that makes it hard for them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from chaos.api_keys import ApiKey
from chaos.calls import Answers, Callers, Canceled
from chaos.orders import Order

ORDER = Order("key", 0.0, "tiny", {"workload": "matmul"}, twice=False, cancel_after_s=None)
ACCEPTED = (202, {"id": "job_1"})
AWAY = (503, {"code": "store-unavailable"})
KEY = ApiKey("key_1", "dyno_1")
Answer = tuple[int, Mapping[str, str | None]] | None


class Moody:
    """Answers each request with the next of `answers`, and the last one from then on; None cuts the connection."""

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


def placed(moody: Moody, moods: list[Moody], *orders: Order, keys: Sequence[ApiKey] = (ApiKey(),)) -> Answers:
    moods.append(moody)
    answers = Answers()
    asyncio.run(Callers(moody.url, answers, keys).place(orders, time.monotonic()))
    return answers


def test_a_submit_is_repeated_as_it_was_until_it_is_accepted(moods: list[Moody]) -> None:
    moody = Moody([AWAY, None, ACCEPTED])
    answers = placed(moody, moods, ORDER)
    assert answers.accepted == {"key": {"job_1"}}
    assert moody.asked == [("/v1/jobs", "key", b'{"workload":"matmul"}')] * 3
    assert answers.again == {"503": 1, "RemoteProtocolError": 1}
    assert answers.strange == []


def test_two_answers_to_one_key_are_both_noted(moods: list[Moody]) -> None:
    answers = placed(Moody([ACCEPTED, (202, {"id": "job_2"})]), moods, ORDER._replace(twice=True))
    assert answers.accepted == {"key": {"job_1", "job_2"}}
    assert answers.ids == {"job_1", "job_2"}


def test_keys_take_turns_and_a_submit_is_repeated_with_its_own(moods: list[Moody]) -> None:
    moody, orders = Moody([AWAY, *[ACCEPTED] * 4]), [ORDER._replace(key=key) for key in "abc"]
    placed(moody, moods, *orders, keys=(ApiKey(), KEY))
    assert len(moody.secrets) == 4
    assert set(moody.secrets) == {("a", None), ("b", "Bearer dyno_1"), ("c", None)}


@pytest.mark.parametrize(("owner", "strange"), [("key_1", 0), ("key_2", 1), (None, 1)])
def test_a_job_that_is_not_its_callers_is_strange(owner: str | None, strange: int, moods: list[Moody]) -> None:
    moody = Moody([(202, {"id": "job_1", "owner": owner})])
    assert len(placed(moody, moods, ORDER, keys=[KEY]).strange) == strange


def test_a_cancel_is_noted_before_it_is_sent_and_repeated_until_it_is_answered(moods: list[Moody]) -> None:
    moody = Moody([ACCEPTED, None, (409, {"code": "job-finished"})])
    answers = placed(moody, moods, ORDER._replace(cancel_after_s=0.0))
    assert answers.canceling == {"job_1"}
    assert answers.cancels == {"job_1": [Canceled(409, "None")]}
    assert [path for path, _, _ in moody.asked] == ["/v1/jobs", *["/v1/jobs/job_1/cancel"] * 2]
    assert answers.strange == []


@pytest.mark.parametrize("answer", [(500, {}), (422, {}), (404, {})])
def test_any_other_answer_is_strange(answer: Answer, moods: list[Moody]) -> None:
    [strange] = placed(Moody([answer]), moods, ORDER).strange
    assert strange.startswith("POST /v1/jobs:")


def test_a_503_that_does_not_say_when_to_come_back_is_strange(moods: list[Moody]) -> None:
    answers = placed(Moody([AWAY], retry_after=False), moods, ORDER)
    assert len(answers.strange) == 1
    assert answers.accepted == {}

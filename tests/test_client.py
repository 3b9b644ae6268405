"""The client against a real HTTP server that answers what a test wants."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from dyno.client import Client, Refused, ServerUnreachable, following
from dyno.client.events import Message, messages
from dyno.job import Job, QueuePlace, Status, Urls
from dyno.spec import Spec


class Handler(http.server.BaseHTTPRequestHandler):
    answers: ClassVar[list[tuple[int, bytes]]] = []
    seen: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).seen.append({"path": self.path, "key": self.headers["Idempotency-Key"], "body": json.loads(body)})
        if not type(self).answers:
            self.connection.close()  # cut before an answer
            return
        self._answer()

    def do_GET(self) -> None:
        type(self).seen.append({"path": self.path, "authorization": self.headers["Authorization"]})
        if type(self).answers[0][0] == 0:
            type(self).answers.pop(0)
            self.connection.close()
            return
        self._answer()

    def _answer(self) -> None:
        status, payload = type(self).answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Handler.answers, Handler.seen = [], []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_refusal_names_every_wrong_field(url: str) -> None:
    errors = [{"pointer": "/params/n", "code": "too_small", "detail": "at least 1"}, {"pointer": "/x", "detail": "no"}]
    Handler.answers = [(422, json.dumps({"status": 422, "detail": "2 wrong", "errors": errors}).encode())]
    with Client(url) as client, pytest.raises(Refused) as raised:
        client.submit({"workload": "matmul"})
    assert raised.value.status == 422
    assert "/params/n: at least 1" in raised.value.detail
    assert "/x: no" in raised.value.detail


def test_a_submit_cut_off_is_tried_again_under_the_same_key(url: str) -> None:
    with Client(url) as client, pytest.raises(ServerUnreachable):
        client.submit({"workload": "matmul"})
    keys = {request["key"] for request in Handler.seen}
    assert len(Handler.seen) >= 3
    assert len(keys) == 1


def test_an_answer_that_is_not_json_is_said_to_be_no_dyno(url: str) -> None:
    Handler.answers = [(200, b"<html>")]
    with Client(url) as client, pytest.raises(ServerUnreachable, match="not Dyno"):
        client.submit({"workload": "matmul"})


def test_nobody_there_is_unreachable_not_a_traceback() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServerUnreachable):
        client.job("job_x")


def test_waiting_outlives_a_broken_connection_and_a_service_that_is_away(url: str) -> None:
    job = Job(
        id="job_1",
        status=Status.CANCELED,
        done=True,
        attempt=0,
        spec=Spec(workload="matmul"),
        queue=QueuePlace(name="cpu"),
        created_at=datetime.now(UTC),
        queued_at=datetime.now(UTC),
        urls=Urls(self="/v1/jobs/job_1", result="/v1/jobs/job_1/result", cancel="/v1/jobs/job_1/cancel"),
        schema=1,
        version=3,
    )
    away = json.dumps({"status": 503, "detail": "Redis is away"}).encode()
    busy = json.dumps({"status": 429, "detail": "too many requests"}).encode()
    Handler.answers = [(0, b""), (503, away), (429, busy), (200, job.model_dump_json(by_alias=True).encode())]
    with Client(url) as client:
        assert client.wait("job_1").status is Status.CANCELED
    assert len(Handler.seen) == 4


def test_a_key_is_sent_with_every_request_and_the_one_given_comes_before_the_environments(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Handler.answers = [(200, b'{"data": []}')] * 3
    monkeypatch.delenv("DYNO_API_KEY", raising=False)
    with Client(url) as client:
        client.devices()
    monkeypatch.setenv("DYNO_API_KEY", "dyno_environment\n")
    for key in (None, "dyno_given"):
        with Client(url, key) as client:
            client.devices()
    sent = [request["authorization"] for request in Handler.seen]
    assert sent == [None, "Bearer dyno_environment", "Bearer dyno_given"]


def test_whoever_is_asked_whether_they_live_is_not_told_the_key(url: str) -> None:
    Handler.answers = [(200, b'{"status": "ok"}')]
    with Client(url, "dyno_given") as client:
        assert client.alive()
    assert [request["authorization"] for request in Handler.seen] == [None]


def test_waiting_for_a_job_that_does_not_exist_ends_at_once(url: str) -> None:
    Handler.answers = [(404, json.dumps({"status": 404, "detail": "no such job"}).encode())]
    with Client(url) as client, pytest.raises(Refused):
        client.wait("job_1")
    assert len(Handler.seen) == 1


def test_following_outlives_a_limit_as_waiting_does(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.0)
    told = {"job": "job_1", "version": 2, "at": "2026-11-22T04:00:00Z", "event": "stop", "status": "canceled"}
    event = f"id: 1-0\nevent: status\ndata: {json.dumps(told | {'done': True})}\n\n"
    Handler.answers = [(429, json.dumps({"status": 429}).encode()), (200, event.encode())]
    with Client(url) as client:
        assert [each.kind for each in client.events("job_1")] == ["status"]


EVENTS = (
    b"retry: 1000\nid: 1-0\n\n: ping\n\nid: 2-0\r\nevent: log\ndata: one\ndata: t\xe2\x80\xa8o\n\n"
    b"id: 3-0\nevent: log\nda"
)


def test_events_are_the_same_wherever_they_are_cut_into_pieces_and_half_ones_are_none() -> None:
    whole = [Message("1-0", "", ""), Message("2-0", "log", "one\nt\u2028o")]
    for at in range(len(EVENTS)):
        assert list(messages([EVENTS[:at], EVENTS[at:]])) == whole
    assert list(messages([EVENTS[: EVENTS.index(b"\n\nid: 3") + 1]])) == whole[:1]

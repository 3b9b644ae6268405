"""Both clients against a real HTTP server that answers what a test wants."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from dyno.client import AsyncClient, Client, DownloadDamaged, Refused, ServerUnreachable, calls, following, steps
from dyno.client.events import Message, Messages
from dyno.events import AnyEvent
from dyno.job import Job, QueuePlace, Status, Urls
from dyno.result import Artifact
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


Ask = Callable[[Any], Any]
Through = Callable[..., Any]


@pytest.fixture(params=[Client, AsyncClient])
def through(request: pytest.FixtureRequest, url: str) -> Through:
    """Makes a call of one client or the other, and returns what it comes to."""

    def asked(ask: Ask, key: str | None = None, url: str = url) -> Any:
        async def awaited() -> Any:
            async with AsyncClient(url, key) as client:
                return await ask(client)

        if request.param is AsyncClient:
            return asyncio.run(awaited())
        with Client(url, key) as client:
            return ask(client)

    return asked


def test_both_clients_have_the_same_calls_with_the_same_arguments() -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        own = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
        return {name: list(inspect.signature(each).parameters) for name, each in own.items()}

    assert calls(Client) == calls(AsyncClient)
    assert {"submit", "wait", "run", "jobs", "result", "compare", "events", "cancel"} <= calls(Client).keys()
    assert all(inspect.getdoc(getattr(Client, name)) for name in calls(Client) if name != "close")


def test_a_refusal_names_every_wrong_field(through: Through) -> None:
    errors = [{"pointer": "/params/n", "code": "too_small", "detail": "at least 1"}, {"pointer": "/x", "detail": "no"}]
    Handler.answers = [(422, json.dumps({"status": 422, "detail": "2 wrong", "errors": errors}).encode())]
    with pytest.raises(Refused) as raised:
        through(lambda client: client.submit({"workload": "matmul"}))
    assert raised.value.status == 422
    assert "/params/n: at least 1" in raised.value.detail
    assert "/x: no" in raised.value.detail


def test_a_submit_cut_off_is_tried_again_under_the_same_key(through: Through) -> None:
    with pytest.raises(ServerUnreachable):
        through(lambda client: client.submit({"workload": "matmul"}))
    keys = {request["key"] for request in Handler.seen}
    assert len(Handler.seen) >= 3
    assert len(keys) == 1


def test_an_answer_that_is_not_json_is_said_to_be_no_dyno(through: Through) -> None:
    Handler.answers = [(200, b"<html>")]
    with pytest.raises(ServerUnreachable, match="not Dyno"):
        through(lambda client: client.submit({"workload": "matmul"}))


def test_nobody_there_is_unreachable_not_a_traceback(through: Through) -> None:
    with pytest.raises(ServerUnreachable):
        through(lambda client: client.job("job_x"), url="http://127.0.0.1:9")
    assert through(lambda client: client.alive(), url="http://127.0.0.1:9") is False


def canceled(version: int = 3) -> bytes:
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
        version=version,
    )
    return job.model_dump_json(by_alias=True).encode()


def test_waiting_outlives_a_broken_connection_and_a_service_that_is_away(
    through: Through, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "RETRY_S", 0.0)
    away = json.dumps({"status": 503, "detail": "Redis is away"}).encode()
    busy = json.dumps({"status": 429, "detail": "too many requests"}).encode()
    Handler.answers = [(0, b""), (503, away), (429, busy), (200, canceled())]
    seen: list[Job] = []
    assert through(lambda client: client.wait("job_1", seen.append)).status is Status.CANCELED
    assert [job.version for job in seen] == [3]
    assert len(Handler.seen) == 4


def test_who_would_wait_and_is_answered_at_once_asks_again_when_it_was_told_to() -> None:
    """Else it would ask again at once, for as long as too many wait."""
    call = calls.waited("job_1", None)
    next(call)
    call.send(httpx.Response(200, content=canceled().replace(b'"done":true', b'"done":false')))
    assert call.send(httpx.Response(304, headers={"Retry-After": "2"})) == steps.Pause(2.0)
    assert isinstance(next(call), steps.Ask)


def test_a_key_is_sent_with_every_request_and_the_one_given_comes_before_the_environments(
    through: Through, monkeypatch: pytest.MonkeyPatch
) -> None:
    Handler.answers = [(200, b'{"data": []}')] * 3
    monkeypatch.delenv("DYNO_API_KEY", raising=False)
    through(lambda client: client.devices())
    monkeypatch.setenv("DYNO_API_KEY", "dyno_environment\n")
    for key in (None, "dyno_given"):
        through(lambda client: client.devices(), key)
    sent = [request["authorization"] for request in Handler.seen]
    assert sent == [None, "Bearer dyno_environment", "Bearer dyno_given"]


def test_whoever_is_asked_whether_they_live_is_not_told_the_key(through: Through) -> None:
    Handler.answers = [(200, b'{"status": "ok"}')]
    assert through(lambda client: client.alive(), "dyno_given")
    assert [request["authorization"] for request in Handler.seen] == [None]


def test_waiting_for_a_job_that_does_not_exist_ends_at_once(through: Through) -> None:
    Handler.answers = [(404, json.dumps({"status": 404, "detail": "no such job"}).encode())]
    with pytest.raises(Refused):
        through(lambda client: client.wait("job_1"))
    assert len(Handler.seen) == 1


def test_a_download_is_kept_only_if_it_is_what_was_listed(through: Through, tmp_path: Path) -> None:
    content, to = b"0123456789" * 1000, tmp_path / "kept"
    listed = Artifact(name="a.bin", bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), url="")
    Handler.answers = [(200, b"damaged"), (200, content)]
    with pytest.raises(DownloadDamaged):
        through(lambda client: client.download("job_1", listed, to))
    assert list(tmp_path.iterdir()) == []
    through(lambda client: client.download("job_1", listed, to))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("kept", content)]


def collected(client: Client | AsyncClient, job_id: str) -> Any:
    """A client's events as a list, or a coroutine of it."""

    async def awaited() -> list[AnyEvent]:
        return [event async for event in client.events(job_id)]

    return awaited() if isinstance(client, AsyncClient) else list(client.events(job_id))


def test_following_outlives_a_limit_as_waiting_does(through: Through, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.0)
    told = {"job": "job_1", "version": 2, "at": "2026-11-22T04:00:00Z", "event": "stop", "status": "canceled"}
    event = f"id: 1-0\nevent: status\ndata: {json.dumps(told | {'done': True})}\n\n"
    Handler.answers = [(429, json.dumps({"status": 429}).encode()), (200, event.encode())]
    assert [each.kind for each in through(lambda client: collected(client, "job_1"))] == ["status"]


EVENTS = (
    b"retry: 1000\nid: 1-0\n\n: ping\n\nid: 2-0\r\nevent: log\ndata: one\ndata: t\xe2\x80\xa8o\n\n"
    b"id: 3-0\nevent: log\nda"
)


def test_events_are_the_same_wherever_they_are_cut_into_pieces_and_half_ones_are_none() -> None:
    whole = [Message("1-0", "", ""), Message("2-0", "log", "one\nt\u2028o")]
    for at in range(len(EVENTS)):
        connection = Messages()
        assert [*connection.of(EVENTS[:at]), *connection.of(EVENTS[at:])] == whole
    assert list(Messages().of(EVENTS[: EVENTS.index(b"\n\nid: 3") + 1])) == whole[:1]

"""Both clients against a real HTTP server that answers as a test says."""

import hashlib
import inspect
import json
from collections.abc import Iterator
from unittest.mock import create_autospec

import pytest

from dyno.client import DEFAULT_URL, AsyncClient, Client, DownloadDamaged, Refused, ServerUnreachable
from dyno.client.streams import SseMessage, SseParser
from dyno.models.job import Job
from dyno.models.result import Artifact
from tests.client.stub_server import Handler, canceled


def test_both_clients_have_the_same_calls_with_the_same_arguments():
    def calls(kind):
        own = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
        return {name: list(inspect.signature(each).parameters) for name, each in own.items()}

    assert calls(Client) == calls(AsyncClient)
    assert {"submit", "wait", "run", "jobs", "result", "compare", "events", "cancel"} <= calls(Client).keys()
    for kind in (Client, AsyncClient):
        assert all(inspect.getdoc(getattr(kind, name)) for name in calls(kind) if name != "close")


def test_calls_are_functions_that_tools_can_read():
    assert inspect.signature(Client.submit).return_annotation is Job
    assert inspect.signature(AsyncClient.wait).return_annotation is Job
    assert inspect.signature(Client.exported_lines).return_annotation == Iterator[str]
    assert inspect.iscoroutinefunction(AsyncClient.submit)
    assert inspect.isasyncgenfunction(AsyncClient.exported_lines)
    create_autospec(Client, instance=True).submit({"workload": "matmul"})


def test_a_refusal_names_every_wrong_field(through):
    errors = [{"pointer": "/params/n", "code": "too_small", "detail": "at least 1"}, {"pointer": "/x", "detail": "no"}]
    Handler.answers = [(422, json.dumps({"status": 422, "detail": "2 wrong", "errors": errors}).encode())]
    with pytest.raises(Refused) as raised:
        through(lambda client: client.submit({"workload": "matmul"}))
    assert raised.value.status == 422
    assert "/params/n: at least 1" in raised.value.detail
    assert "/x: no" in raised.value.detail


def test_a_refused_connection_is_unreachable_not_a_traceback(through):
    with pytest.raises(ServerUnreachable):
        through(lambda client: client.job("job_x"), url="http://127.0.0.1:9")
    assert through(lambda client: client.alive(), url="http://127.0.0.1:9") is False


def test_every_request_sends_the_key_and_an_argument_overrides_the_environment(through, monkeypatch):
    Handler.answers = [(200, b'{"data": [], "cordoned_away": []}')] * 3
    monkeypatch.delenv("DYNO_API_KEY", raising=False)
    through(lambda client: client.devices())
    monkeypatch.setenv("DYNO_API_KEY", "dyno_environment\n")
    for key in (None, "dyno_given"):
        through(lambda client: client.devices(), key)
    sent = [request["authorization"] for request in Handler.seen]
    assert sent == [None, "Bearer dyno_environment", "Bearer dyno_given"]


def test_the_url_comes_from_the_argument_the_environment_or_the_default(url, monkeypatch):
    """So the environment's key is sent to the environment's URL."""
    monkeypatch.setenv("DYNO_API_KEY", "dyno_environment")
    monkeypatch.setenv("DYNO_URL", url)
    Handler.answers = [(200, canceled())]
    with Client() as client:
        client.job("job_1")
    assert [request["authorization"] for request in Handler.seen] == ["Bearer dyno_environment"]
    assert (AsyncClient().url, Client("http://127.0.0.1:9").url) == (url, "http://127.0.0.1:9")
    monkeypatch.delenv("DYNO_URL")
    assert (AsyncClient().url, Client().url) == (DEFAULT_URL, DEFAULT_URL)


def test_alive_does_not_send_the_key(through):
    Handler.answers = [(200, b'{"status": "ok"}')]
    assert through(lambda client: client.alive(), "dyno_given")
    assert [request["authorization"] for request in Handler.seen] == [None]


def test_a_download_is_kept_only_if_its_digest_is_the_listed_one(through, tmp_path):
    content, to = b"0123456789" * 1000, tmp_path / "kept"
    listed = Artifact(name="a.bin", bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), url="")
    Handler.answers = [(200, b"damaged"), (200, content)]
    with pytest.raises(DownloadDamaged):
        through(lambda client: client.download("job_1", listed, to))
    assert list(tmp_path.iterdir()) == []
    through(lambda client: client.download("job_1", listed, to))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("kept", content)]


EVENTS = (
    b"retry: 1000\nid: 1-0\n\n: ping\n\nid: 2-0\r\nevent: log\ndata: one\ndata: t\xe2\x80\xa8o\n\n"
    b"id: 3-0\nevent: log\nda"
)


def test_events_are_parsed_alike_however_they_are_split_and_partial_ones_are_dropped():
    whole = [SseMessage("1-0", "", ""), SseMessage("2-0", "log", "one\nt\u2028o")]
    for at in range(len(EVENTS)):
        connection = SseParser()
        assert [*connection.of(EVENTS[:at]), *connection.of(EVENTS[at:])] == whole
    assert list(SseParser().of(EVENTS[: EVENTS.index(b"\n\nid: 3") + 1])) == whole[:1]

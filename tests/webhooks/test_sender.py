"""One attempt, at real receivers on loopback: where it connects, which certificates it trusts, what it limits."""

import asyncio
import socket
import ssl
import threading
from contextlib import contextmanager, suppress

import pytest

from dyno.models.webhook import Outcome
from dyno.processes import free_port
from dyno.settings import Settings
from dyno.webhook_delivery import LOOKUP_S, WebhookSender
from tests.certificates import certificate_for
from tests.inbox import Inbox

pytestmark = pytest.mark.anyio

NAME = "hooks.example.test"  # which no name server knows
HEADERS = {"webhook-id": "msg_1"}
MOST_SENT_BYTES = 32 * 2**20  # buffers of the kernel and a little more


def sender(*allowed, resolve=None, within_s=60):
    return WebhookSender(Settings(webhook_allowed_hosts=allowed, webhook_timeout_s=within_s), resolve)


def leading_to(*answers):
    """A resolver that returns the next of `answers` for any name, and then raises OSError."""
    left = list(answers)

    async def found(host, port, owner):
        if not left:
            raise OSError("no such name")
        return left.pop(0)

    return found


@contextmanager
def answering(*pieces):
    """A port that sends the pieces, then repeats the last one while the client reads. Also counts the bytes sent."""
    sent = [0]

    def serve():
        with suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                while sent[0] < 2 * MOST_SENT_BYTES:
                    connection.sendall(pieces[-1])
                    sent[0] += len(pieces[-1])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], sent
        thread.join(60)


async def test_the_status_of_the_response_decides():
    with Inbox(200, 299, 404, 500) as inbox:
        ends = [await sender("127.0.0.1").send(inbox.url, '{"a":1}', HEADERS) for _ in range(4)]
    assert [(each.outcome, each.status_code) for each in ends] == [
        *((Outcome.DELIVERED, 200), (Outcome.DELIVERED, 299)),
        *((Outcome.REFUSED, 404), (Outcome.REFUSED, 500)),
    ]
    [message, *_] = inbox.messages
    assert (message.path, message.body) == ("/hook", b'{"a":1}')
    assert message.headers["host"] == f"127.0.0.1:{inbox.port}"
    assert message.headers["content-type"] == "application/json"
    assert message.headers["webhook-id"] == "msg_1"


async def test_a_redirect_is_a_failure_and_is_not_followed():
    with Inbox(302, 307, 308) as inbox:
        ends = [await sender("127.0.0.1").send(inbox.url, "{}", HEADERS) for _ in range(3)]
    assert [(each.outcome, each.status_code) for each in ends] == [(Outcome.REFUSED, n) for n in (302, 307, 308)]
    assert len(inbox.messages) == 3


async def test_a_name_that_resolves_to_a_private_address_is_not_called():
    with Inbox() as inbox:
        url = f"https://{NAME}:{inbox.port}/"
        for addresses in (["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"]):
            ended = await sender(resolve=leading_to(addresses)).send(url, "{}", HEADERS)
            unknown = await sender(resolve=leading_to()).send(url, "{}", HEADERS)
            assert (ended.outcome, ended.status_code) == (Outcome.UNREACHABLE, None)
            assert ended == unknown.model_copy(update={"duration_s": ended.duration_s}), (
                "a caller learns which names exist"
            )
            assert min(ended.duration_s, unknown.duration_s) >= LOOKUP_S
        assert (await sender().send("https://localhost/", "{}", HEADERS)).outcome is Outcome.BLOCKED
        assert (await sender().send(inbox.url, "{}", HEADERS)).outcome is Outcome.BLOCKED
        nowhere = sender(resolve=leading_to())
        assert (await nowhere.send(f"http://{NAME}/", "{}", HEADERS)).outcome is Outcome.BLOCKED
    assert inbox.messages == []


async def test_the_sender_connects_to_the_address_it_checked():
    with Inbox() as inbox:
        once = leading_to(["127.0.0.1"])
        ended = await sender(NAME, resolve=once).send(f"http://{NAME}:{inbox.port}/x?y", "{}", HEADERS)
        assert ended.outcome is Outcome.DELIVERED, ended
        again = await sender(NAME, resolve=once).send(f"http://{NAME}:{inbox.port}/x?y", "{}", HEADERS)
    assert again.outcome is Outcome.UNREACHABLE
    assert [(each.path, each.headers["host"]) for each in inbox.messages] == [("/x?y", f"{NAME}:{inbox.port}")]


async def test_the_next_address_is_tried_if_one_refuses():
    with Inbox() as inbox:
        two = leading_to(["127.0.0.2", "127.0.0.1"])
        ended = await sender(NAME, resolve=two).send(f"http://{NAME}:{inbox.port}/", "{}", HEADERS)
    assert ended.outcome is Outcome.DELIVERED, ended


async def test_tls_is_for_the_name_and_must_be_trusted(tmp_path, monkeypatch):
    cert, key = certificate_for(f"DNS:{NAME}", tmp_path)
    server, named = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    server.load_cert_chain(cert, key)
    server.sni_callback = lambda connection, name, context: named.append(name)
    with Inbox(tls=server) as inbox:

        async def outcome(name):
            one = sender(name, resolve=leading_to(["127.0.0.1"]))
            return (await one.send(f"https://{name}:{inbox.port}/", "{}", HEADERS)).outcome

        assert await outcome(NAME) is Outcome.UNREACHABLE
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert await outcome("other.example.test") is Outcome.UNREACHABLE
        assert await outcome(NAME) is Outcome.DELIVERED
    assert named == [NAME, "other.example.test", NAME]
    assert len(inbox.messages) == 1


async def test_proxies_of_the_environment_are_ignored(monkeypatch):
    with Inbox() as inbox, Inbox() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert (await sender("127.0.0.1").send(inbox.url, "{}", HEADERS)).outcome is Outcome.DELIVERED
    assert (len(inbox.messages), proxy.messages) == (1, [])


async def test_a_refused_connection_is_unreachable_and_a_silent_receiver_a_timeout():
    gone = await sender("127.0.0.1").send(f"http://127.0.0.1:{free_port()}/", "{}", HEADERS)
    assert (gone.outcome, gone.status_code) == (Outcome.UNREACHABLE, None)
    with Inbox() as inbox:
        inbox.answering.clear()
        silent = await sender("127.0.0.1", within_s=0.2).send(inbox.url, "{}", HEADERS)
    assert (silent.outcome, silent.status_code) == (Outcome.TIMEOUT, None)


async def test_a_name_server_that_hangs_is_a_timeout():
    async def hangs(host, port, owner):
        await asyncio.Event().wait()
        raise AssertionError

    ended = await sender(NAME, resolve=hangs, within_s=0.2).send(f"https://{NAME}/", "{}", HEADERS)
    assert ended.outcome is Outcome.TIMEOUT


async def test_an_endless_response_is_not_read():
    with answering(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536) as (port, sent):
        ended = await sender("127.0.0.1").send(f"http://127.0.0.1:{port}/", "{}", HEADERS)
    assert ended.outcome is Outcome.DELIVERED
    assert sent[0] < MOST_SENT_BYTES


async def test_endless_headers_are_not_read_to_their_end():
    with answering(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536) as (port, sent):
        ended = await sender("127.0.0.1").send(f"http://127.0.0.1:{port}/", "{}", HEADERS)
    assert ended.outcome is Outcome.UNREACHABLE
    assert sent[0] < MOST_SENT_BYTES

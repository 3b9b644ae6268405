"""A client that stops reading, over a real connection: what the API holds for it, and for how long."""

import re
import socket
import threading
from contextlib import contextmanager

import httpx
import uvicorn

import service.server
from dyno.store.leases import LogPiece
from service.__main__ import Server
from service.app import create_app
from service.jobs import routes as jobs
from tests.waiting import eventually

LONG = "x" * 250 * 1024
WITHIN_S = 30  # half the time after which a stream itself gives up


@contextmanager
def served(app):
    """Run the server of `python -m service`; yields its port."""
    server = Server(uvicorn.Config(app, port=0, log_config=None, loop="uvloop"), app.state.stopping, prints=False)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def follow(port, job_id, *, window_bytes):
    """A connection on which the log has begun to arrive."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
    connection.settimeout(WITHIN_S)
    connection.connect(("127.0.0.1", port))
    head = f"GET /v1/jobs/{job_id}/logs?follow=true HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode())
    assert connection.recv(15) == b"HTTP/1.1 200 OK"
    return connection


def opens(http, job_id):
    with http.stream("GET", f"/v1/jobs/{job_id}/logs", params={"follow": "true"}) as answer:
        return answer.status_code == 200


def test_a_client_that_stops_reading_is_closed_and_its_slot_is_freed(settings, claimed, monkeypatch):
    monkeypatch.setattr(service.server, "USER_TIMEOUT_MS", 300)
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, LONG))
    with (
        served(create_app(settings.model_copy(update={"max_streams": 1}))) as port,
        follow(port, claim.job_id, window_bytes=4096),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        eventually(lambda: opens(http, claim.job_id), WITHIN_S)


def test_a_long_log_is_sent_in_pieces(settings, claimed):
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, LONG))
    leases.finish(claim, "fail")
    with served(create_app(settings)) as port, follow(port, claim.job_id, window_bytes=2**20) as connection:
        said = b""
        while more := connection.recv(2**20):
            said += more
    sizes = [int(size, 16) for size in re.findall(rb"\r\n([0-9a-f]+)\r\n", said)]
    assert sum(sizes) == len(LONG)
    assert max(sizes) == jobs.PIECE_CHARACTERS

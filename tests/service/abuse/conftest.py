"""Fixtures: a separate API process with low limits, and clients that write raw bytes to its socket."""

import json
import re
import resource
import socket
import uuid
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.service.processes import running
from tests.waiting import eventually

WITHIN_S = 60
PIECE_S = 0.05
MOST = 40  # connections
JOB = {"workload": "matmul", "device": "tpu", "queue_if_absent": True}  # it stays queued, whatever devices are live
SOON = {
    "max_connections": str(MOST),
    "max_head_bytes": "4096",
    "head_timeout_s": "1",  # tests on a busy machine are slow from connect to request
    "body_timeout_s": "1",
}


class Caller:
    """One connection to the API."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)

    def send(self, data):
        """Send as much as the API accepts before it closes the connection."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)
        return self

    def get(self, path, *fields):
        return self.send("\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode())

    def trickle(self, first, piece):
        """Send `first`, then `piece` repeatedly until a response arrives."""
        self.send(first)
        self.socket.settimeout(PIECE_S)

        def answered():
            self.send(piece)
            try:
                self.socket.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                return False
            except ConnectionResetError:
                pass
            return True

        eventually(answered, what="it is answered")
        self.socket.settimeout(WITHIN_S)
        return self

    def answers(self):
        """All responses until the API closes the connection."""
        said = b""
        with self.socket:
            while piece := self.some():
                said += piece
        return _answers(said)

    def answer(self):
        """The next response."""
        return self.next_answers(1)[0]

    def next_answers(self, count):
        said = b""
        while len(found := _answers(said)) < count or len(found[-1].content) < int(found[-1].headers["content-length"]):
            piece = self.some()
            assert piece, f"closed behind {said!r}"
            said += piece
        return found

    def some(self, most_bytes=65536):
        """The next bytes; empty once the connection is closed."""
        try:
            return self.socket.recv(most_bytes)
        except ConnectionResetError:
            return b""

    def is_closed(self):
        """Whether the API has closed the connection. Discards received bytes."""
        self.socket.settimeout(0)
        try:
            while self.some():
                pass
        except BlockingIOError:
            return False
        finally:
            self.socket.settimeout(WITHIN_S)
        return True


def _answers(said):
    """The responses whose head is complete."""
    found = []
    while b"\r\n\r\n" in said:
        head, _, rest = said.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        fields = httpx.Headers([tuple(line.split(": ", 1)) for line in lines[1:]])
        length = int(fields["content-length"])
        found.append(httpx.Response(int(lines[0].split()[1]), headers=fields, content=rest[:length]))
        said = rest[length:]
    return found


@dataclass(frozen=True)
class Api:
    pid: int
    port: int
    http: httpx.Client
    log: Path

    def call(self):
        return Caller(self.port)

    def ended(self):
        """The number of connections that the API closed, by reason."""
        told = re.findall(r'^dyno_connections_ended_total{why="(.+)"} (.+)$', self.http.get("/metrics").text, re.M)
        return Counter({why: int(float(count)) for why, count in told})

    def connections(self):
        """The number of open connections, including the one of this request."""
        told = re.search(r"^dyno_connections (.+)$", self.http.get("/metrics").text, re.M)
        return int(float(told[1]))


@contextmanager
def api_process(folder, files=None, **settings):
    """Its log is in `folder`. `files`: the soft and the hard limit on how many it may open.

    Whatever is done to it, it lives.
    """
    limited = None if files is None else partial(resource.setrlimit, resource.RLIMIT_NOFILE, files)
    log = folder / f"{uuid.uuid4().hex}.log"
    with log.open("wb") as said, running(stderr=said, preexec_fn=limited, **settings) as (process, url):
        with httpx.Client(base_url=url, timeout=WITHIN_S) as http:
            yield Api(process.pid, int(url.rpartition(":")[2]), http, log)
        assert process.poll() is None
    assert " ERROR " not in log.read_text()


@pytest.fixture(scope="session")
def run_api(redis_url, tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    return partial(api_process, folder, redis_url=redis_url, namespace=f"abuse-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def api(run_api):
    """One API for all tests: each compares with the state at its start."""
    with run_api(**SOON) as api:
        yield api


def problem(answer):
    """The problem, after checking its form and the headers of every response."""
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    found = json.loads(answer.content)
    assert found["status"] == answer.status_code
    assert found["request_id"] == answer.headers["x-request-id"]
    return found

"""A webhook receiver on loopback that answers as a test says and keeps the messages."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Message:
    """One request. Header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


class Inbox:
    """Context manager. Answers with the statuses in `answers`, then with 204. Redirects lead to the inbox itself.

    While `answering` is cleared, requests wait for their responses.
    """

    def __init__(self, *answers, port=0, tls=None):
        self.messages: list[Message] = []
        self.answering = threading.Event()
        self.answering.set()
        self._answers = deque(answers)
        self._server = _Server(("127.0.0.1", port), _handler(self))
        self.port = self._server.server_address[1]
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="inbox", daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hook"

    def answer_to(self, message):
        self.messages.append(message)
        status = self._answers.popleft() if self._answers else 204
        self.answering.wait()
        return status

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, error, at):
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """Ignore clients that disconnect before the response, which some tests do on purpose."""


def _handler(inbox):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = inbox.answer_to(Message(self.path, headers, body))
            with suppress(OSError):
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", inbox.url)
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_GET = do_POST

        def log_message(self, format, *args):
            pass

    return Handler

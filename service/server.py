"""The API process below the application: limits of a connection, TLS files, open files, dead peers.

A proxy enforces the other limits (docs/operations.md, deploy/nginx.conf). Routes read bodies themselves, and limit
their size and time (service/validation.py, service/artifacts/routes.py).
"""

import asyncio
import contextvars
import logging
import resource
import socket
import ssl
from _ssl import _test_decode_cert  # type: ignore[attr-defined]
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from starlette.datastructures import MutableHeaders
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dyno.logging import current_request_id
from dyno.models.job import new_ulid
from dyno.settings import Settings
from service.middleware import DEFAULT_HEADERS, HttpMetrics
from service.problems import problem

log = logging.getLogger(__name__)

MAX_FIELDS = 100


class Refusal(NamedTuple):
    """`why` is a label of dyno_connections_ended_total; the other fields are for the problem."""

    why: str
    code: str
    detail: str


MALFORMED = Refusal("malformed", "bad-request", "this is not an HTTP/1.1 request")


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a limit on open connections, and on the size and the time of a request's head.

    uvicorn.Config has no setting for these limits: `limit_concurrency` doesn't close silent connections,
    `h11_max_incomplete_event_size` is for h11 alone, and `timeout_keep_alive` begins after a response.
    The tests in tests/service/abuse try each limit over a real socket, in case a release of uvicorn changes a limit.
    """

    def __init__(self, settings: Settings, metrics: HttpMetrics, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._settings, self._metrics = settings, metrics
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0  # bytes of an incomplete head, or of a chunk's extensions and trailers
        self._refusal: Refusal | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._metrics.connections.inc()
        if len(self.connections) > self._settings.max_connections:
            detail = f"all {self._settings.max_connections} connections are in use"
            self._refuse(Refusal("full", "too-many-connections", detail))
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_head_timer()
        self._metrics.connections.dec()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > self._settings.max_head_bytes and self._refusal is None:
            self._refuse(self._too_large())
        elif not self._is_working:
            self._start_head_timer()

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._stop_head_timer()
        size_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size_bytes > self._settings.max_head_bytes or len(self.headers) > MAX_FIELDS:
            self._refuse(self._too_large())
            raise ValueError("head too large")  # stops the parser, which then calls `send_400_response`
        self.scope["headers"] = list(self.headers)  # uvicorn adds the trailers of a chunked body to its own list
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        if self._refusal is None:
            self._refuse(MALFORMED)

    @property
    def _is_working(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_head_timer(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self._settings.head_timeout_s, self._head_timed_out)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_timed_out(self) -> None:
        if self._head_bytes:
            within = f"{self._settings.head_timeout_s:g} s"
            detail = f"the request head didn't arrive within {within}"
            self._refuse(Refusal("slow_head", "head-timeout", detail))
        else:
            self._metrics.count_closed("silent")
            self.transport.close()

    def _too_large(self) -> Refusal:
        most = f"{self._settings.max_head_bytes} bytes and {MAX_FIELDS} fields"
        return Refusal("large_head", "head-too-large", f"the limit of a request head is {most}")

    def _refuse(self, refusal: Refusal) -> None:
        """Send a problem and close. If an earlier request has no response yet, close after that response instead."""
        self._refusal = refusal
        self._metrics.count_closed(refusal.why)
        if self._is_working:
            self.cycle.keep_alive = False
            if self.pipeline or not self.cycle.more_body or self.cycle.response_started:
                return
        self.transport.write(contextvars.copy_context().run(_problem_bytes, refusal))
        self.transport.close()


def _problem_bytes(refusal: Refusal) -> bytes:
    """The response as bytes. Call this in a separate context, because it sets the request id that the problem reads."""
    current_request_id.set(request_id := f"req_{new_ulid()}")
    response = problem(refusal.code, refusal.detail, headers={"Connection": "close"})
    headers = MutableHeaders(raw=list(response.raw_headers))
    headers.update({**DEFAULT_HEADERS, "X-Request-ID": request_id})
    status = HTTPStatus(response.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *(b": ".join(pair) for pair in headers.raw)]
    return b"\r\n".join([*lines, b"", bytes(response.body)])


FILES_PER_CONNECTION = 2  # its socket, and either a file that it sends or receives, or one of the process' own files


def allowed_connections(requested: int) -> int:
    """`requested`, or fewer if the limit on open files demands it; raises the process' soft limit as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_PER_CONNECTION * requested
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == needed:
        return requested
    most = allowed // FILES_PER_CONNECTION
    log.warning("the limit of %d open files allows %d connections, not %d", allowed, most, requested)
    return most


USER_TIMEOUT_MS = 90_000  # longer than a long poll


def set_tcp_user_timeout(listening: Iterable[socket.socket]) -> None:
    """Make the kernel end connections whose peer acknowledges nothing for 90 s. Accepted sockets inherit the option.

    Otherwise a client that stops reading could keep its connection, and its stream, forever.
    """
    for listener in listening:
        with socket.fromfd(
            listener.fileno(), listener.family, listener.type
        ) as duplicate:  # uvloop's own socket objects refuse options
            duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


_CERT, _KEY = "DYNO_TLS_CERT_FILE", "DYNO_TLS_KEY_FILE"
_OF_ANOTHER = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED")  # the second: a key of another algorithm


def tls_error(settings: Settings) -> str | None:
    """The reason why TLS doesn't work with these files, and the setting to change; None if TLS works or is off."""
    cert, key = settings.tls_cert_file, settings.tls_key_file
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        return f"TLS needs both {_CERT} and {_KEY}; set both or neither"
    for setting, file in ((_CERT, cert), (_KEY, key)):
        try:
            file.open("rb").close()
        except OSError as error:
            return f"{setting}: {file} can't be read: {error.strerror}"
    return _unusable(cert, key)


def _unusable(cert: Path, key: Path) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cert)
    except ssl.SSLError:
        return f"{_CERT}: {cert} has no certificate in PEM"
    passwords = iter([""])  # without a callback OpenSSL asks on the terminal
    try:
        context.load_cert_chain(cert, key, lambda: next(passwords, ""))
    except ssl.SSLError as error:
        if not list(passwords):
            return f"{_KEY}: {key} is encrypted; provide it without a password, readable only by Dyno"
        if error.reason in _OF_ANOTHER:
            return f"{_KEY}: {key} is not the key of {cert}"
        if error.reason is None:  # the key's PEM can't be parsed; the certificate's was parsed above
            return f"{_KEY}: {key} has no private key in PEM"
        return f"{_CERT}, {_KEY}: OpenSSL refuses {cert} and {key}: {error.reason}"
    return None


_RENEWAL_CHECK_S = 5.0


class CertificateWatch:
    """Loads renewed TLS files into the server's context. New connections then get the new certificate.

    Construct it before the server reads the files. `metrics` gets the expiry of the certificate in use.
    """

    def __init__(self, settings: Settings, metrics: HttpMetrics, cert: Path, key: Path) -> None:
        self._settings, self._metrics, self._cert, self._key = settings, metrics, cert, key
        self._loaded = self._versions()
        self._metrics.tls_expiry.set(expiry_s(cert))

    @classmethod
    def of(cls, settings: Settings, metrics: HttpMetrics) -> "CertificateWatch | None":
        """Return None if TLS is off."""
        cert, key = settings.tls_cert_file, settings.tls_key_file
        return None if cert is None or key is None else cls(settings, metrics, cert, key)

    async def run(self, context: ssl.SSLContext) -> NoReturn:
        """Reload the files when they change; checks every 5 s."""
        while True:
            await asyncio.sleep(_RENEWAL_CHECK_S)
            await self.reload(context)

    async def reload(self, context: ssl.SSLContext) -> None:
        """Load the files if they have changed. Unusable files are logged once, and the old certificate stays in use."""
        versions = await asyncio.to_thread(self._versions)
        if versions == self._loaded:
            return
        self._loaded = versions
        try:
            # Check in a separate context: loading a certificate without its key would leave `context` with neither.
            if wrong := await asyncio.to_thread(tls_error, self._settings):
                log.error("the renewed TLS files can't be used, the old ones stay in use: %s", wrong)
                return
            context.load_cert_chain(self._cert, self._key)
            self._metrics.tls_expiry.set(expiry_s(self._cert))
        except OSError as error:  # the files changed again after the check; the next check loads them
            log.error("the renewed TLS files can't be loaded: %s", error)
        else:
            log.warning("loaded the renewed TLS files")

    def _versions(self) -> list[tuple[int, int, int] | None]:
        return [_version(file) for file in (self._cert, self._key)]


def expiry_s(cert: Path) -> float:
    """The time when the first certificate in the file expires, in seconds since 1970.

    Python's ssl module has no public function that reads a certificate from a file; `_test_decode_cert` is private.
    Raises OSError if the file can't be read or holds no certificate.
    """
    return ssl.cert_time_to_seconds(_test_decode_cert(str(cert))["notAfter"])


def _version(file: Path) -> tuple[int, int, int] | None:
    """A value that changes with the contents, even if `file` is a link to another file now. None if unreadable."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size

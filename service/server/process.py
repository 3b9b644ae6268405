"""The API process: limit on open files, TLS, event loop, TCP timeouts and garbage collection.

- At the limit on open files the server can't accept connections, and requests can't open files or connect to Redis.
- The two TLS files are checked before the server listens: OpenSSL's errors name neither file, and it would prompt for
  a password on the terminal.
- uvloop's server reports a connection after the TLS handshake, and counts unsent bytes above TLS only. TlsProtocol
  reports it when it is accepted, and reports when TCP takes no more bytes.
- By default a full garbage collection runs after many allocations, and blocks all requests for 50 ms and more. Here
  only young objects are collected, in less than a millisecond, and the rest every ten minutes, except objects from
  startup (`gc.freeze`). Little garbage waits for that: requests, connections and streams leave no reference cycles
  (tests/service/abuse/test_garbage.py).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import uvloop
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from dyno.asyncio_tasks import cancel_and_wait
from dyno.settings import Settings

log = logging.getLogger(__name__)

FILES_PER_CONNECTION = 2  # its socket, and a file it sends or receives or a share of the process' other files


def allowed_connections(wanted: int) -> int:
    """`wanted`, or fewer if the limit on open files demands it; raises the process' soft limit as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_PER_CONNECTION * wanted
    if _below(soft, needed):
        soft = hard if _below(hard, needed) else needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if not _below(soft, needed):
        return wanted
    log.warning("the limit of %d open files allows %d connections, not %d", soft, soft // FILES_PER_CONNECTION, wanted)
    return soft // FILES_PER_CONNECTION


def _below(limit: int, files: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < files


_CERT, _KEY = "DYNO_TLS_CERT_FILE", "DYNO_TLS_KEY_FILE"
_OF_ANOTHER = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED")  # the second: the key is for another algorithm


class _PasswordAsked(Exception):
    """The key is encrypted."""


def tls_error(settings: Settings) -> str | None:
    """Why TLS doesn't work with these files, and which setting to change; None if it works or is off."""
    cert, key = settings.tls_cert_file, settings.tls_key_file
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        return f"TLS needs both {_CERT} and {_KEY}; set both or neither"
    unreadable = _unreadable(_CERT, cert) or _unreadable(_KEY, key)
    return unreadable or _certificate_error(cert) or _key_error(cert, key)


def _unreadable(setting: str, file: Path) -> str | None:
    try:
        with file.open("rb"):
            return None
    except OSError as error:
        return f"{setting}: {file} can't be read: {error.strerror}"


def _certificate_error(cert: Path) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cert)
    except ssl.SSLError:
        return f"{_CERT}: {cert} has no certificate in PEM"
    return None


def _key_error(cert: Path, key: Path) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, _refuse_password)
    except _PasswordAsked:
        return f"{_KEY}: {key} is encrypted; provide it without a password, readable only by Dyno"
    except ssl.SSLError as error:
        if error.reason in _OF_ANOTHER:
            return f"{_KEY}: {key} is not the key of {cert}"
        if error.reason is None:  # the PEM can't be parsed; the certificate's was
            return f"{_KEY}: {key} has no private key in PEM"
        return f"{_CERT}, {_KEY}: OpenSSL refuses {cert} and {key}: {error.reason}"
    return None


def _refuse_password() -> str:
    raise _PasswordAsked


# For TLS' closing handshake, including the writes before it; service/server/response_transport.py closes sooner.
TLS_SHUTDOWN_S = 3600.0


class TlsPayloadProtocol(Protocol):
    """The protocol above TLS."""

    def opened(self, tcp: asyncio.Transport) -> bool:
        """Called before the handshake; whether the connection may go on."""

    def gone(self) -> None:
        """The connection has ended, perhaps before the handshake was done."""

    def leave(self, why: str) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class TlsProtocol(SSLProtocol):  # type: ignore[misc]
    def __init__(
        self, loop: asyncio.AbstractEventLoop, inner: TlsPayloadProtocol, context: ssl.SSLContext, within_s: float
    ) -> None:
        limits = {"ssl_handshake_timeout": within_s, "ssl_shutdown_timeout": TLS_SHUTDOWN_S}
        super().__init__(loop, inner, context, None, server_side=True, **limits)
        self._inner = inner

    def connection_made(self, transport: asyncio.Transport) -> None:
        if self._inner.opened(transport):
            super().connection_made(transport)
        else:
            self._inner.leave("full")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._inner.gone()
        del self._inner  # breaks a reference cycle, which only the garbage collector would free

    def pause_writing(self) -> None:
        super().pause_writing()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()  # first: TLS' own writes may pause it again
        super().resume_writing()


USER_TIMEOUT_S = 90.0  # longer than a long poll, so that it doesn't cut off a proxy that waits for one


def set_tcp_user_timeout(listening: Iterable[socket.socket], after_s: float) -> None:
    """Abort connections accepted from now on whose peer hasn't acknowledged sent bytes for `after_s`.

    Without it the kernel retries a vanished host for a quarter of an hour, and a client that keeps its window shut for
    as long as that lives. Until then both keep their buffers, and a stream keeps its slot.
    """
    for each in listening:
        with socket.fromfd(each.fileno(), each.family, each.type) as own:  # uvloop's sockets can't set options
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(after_s * 1000))


class ServerLoop(uvloop.Loop):
    """uvloop with a timeout of `handshake_s` for TLS handshakes, not 60 s, and of `gone_after_s` for vanished peers."""

    handshake_s = 10.0
    gone_after_s = USER_TIMEOUT_S

    async def create_server(self, *given: Any, **how: Any) -> Any:
        (made, *where), context = given, how.pop("ssl", None)

        def handshake() -> TlsProtocol:
            return TlsProtocol(self, made(), context, self.handshake_s)

        protocol = made if context is None else handshake
        server: Any = await super().create_server(protocol, *where, **how, start_serving=False)
        set_tcp_user_timeout(server.sockets, self.gone_after_s)  # before the first connection, which inherits it
        await server.start_serving()
        return server


EVERY_S = 600.0
_NEVER = 2**30


class GarbageCollection:
    """Run the process' full garbage collections, from `start` to `stop`."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._before = gc.get_threshold()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        young, middle, _ = self._before = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        gc.collect()
        gc.freeze()
        self._task = asyncio.create_task(self._look(), name="garbage")

    async def stop(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)
            self._task = None
        gc.unfreeze()
        gc.set_threshold(*self._before)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            gc.collect()

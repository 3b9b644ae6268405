"""The API process: limit on open files, TLS, event loop, TCP timeouts and garbage collection.

- Beyond the limit on open files nothing could be accepted, and requests couldn't open a file or a connection to
  Redis.
- The two TLS files are checked before anything listens: OpenSSL names neither, and asks a terminal for a password.
- uvloop's server tells a protocol of a connection once the TLS handshake is done, and counts unsent bytes above TLS
  only. TlsProtocol reports the connection when it is accepted, and when TCP takes no more.
- By itself the garbage collector looks through everything whenever much was allocated, and holds up every caller for
  50 ms and more. Here it looks at young objects only, in less than a millisecond, and at the rest every ten minutes,
  without what was there from the start (`gc.freeze`). Little waits for that: requests, connections and streams leave
  nothing that only the collector can free (tests/service/abuse/test_garbage.py).
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

FILES_PER_CONNECTION = 2  # its own, and a file that is sent or received, or a share of what else the process has open


def allowed_connections(wanted: int) -> int:
    """As many connections as `wanted`, or as the system lets this process have; raises its soft limit for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_PER_CONNECTION * wanted
    if _below(soft, needed):
        soft = hard if _below(hard, needed) else needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if not _below(soft, needed):
        return wanted
    log.warning(
        "%d open files are allowed, so at most %d connections, not %d", soft, soft // FILES_PER_CONNECTION, wanted
    )
    return soft // FILES_PER_CONNECTION


def _below(limit: int, files: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < files


_CERT, _KEY = "DYNO_TLS_CERT_FILE", "DYNO_TLS_KEY_FILE"
_OF_ANOTHER = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED")  # the second: it is for another algorithm


class _PasswordAsked(Exception):
    """The key is encrypted."""


def tls_error(settings: Settings) -> str | None:
    """Why the API can't speak TLS with these files, and which setting to change; null where it can, or need not."""
    cert, key = settings.tls_cert_file, settings.tls_key_file
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        return f"TLS needs both {_CERT} and {_KEY}"
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
        return f"{_CERT}: {cert} holds no certificate in PEM"
    return None


def _key_error(cert: Path, key: Path) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, _refuse_password)
    except _PasswordAsked:
        return f"{_KEY}: {key} is encrypted; it has to be there without a password, readable by Dyno alone"
    except ssl.SSLError as error:
        if error.reason in _OF_ANOTHER:
            return f"{_KEY}: {key} is not the key of {cert}"
        if error.reason is None:  # PEM can't be read, and the certificate could
            return f"{_KEY}: {key} holds no private key in PEM"
        return f"{_CERT}, {_KEY}: OpenSSL refuses {cert} and {key}: {error.reason}"
    return None


def _refuse_password() -> str:
    raise _PasswordAsked


# For TLS' own end, what has to be written before it included: service/server/response_transport.py is sooner.
TLS_SHUTDOWN_S = 3600.0


class TlsPayloadProtocol(Protocol):
    """A protocol for what TLS carries."""

    def opened(self, tcp: asyncio.Transport) -> bool:
        """Whether the connection may go on; nothing was said on it yet."""

    def gone(self) -> None:
        """The connection has ended, whether or not anything was said on it."""

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
        del self._inner  # which refers to this, too, and only the collector would part them

    def pause_writing(self) -> None:
        super().pause_writing()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()  # first: what TLS then writes may pause it again
        super().resume_writing()


USER_TIMEOUT_S = 90.0  # longer than a long poll is held, so that no proxy in between hits it with its own patience


def set_tcp_user_timeout(listening: Iterable[socket.socket], after_s: float) -> None:
    """Connections accepted from now on end once nothing that was sent has been taken for `after_s`.

    Without it the kernel tries a caller whose host vanished for a quarter of an hour, and one whose window stays shut
    for as long as it lives; until then both keep their buffers, and a stream its place.
    """
    for each in listening:
        with socket.fromfd(each.fileno(), each.family, each.type) as own:  # uvloop's objects take no options
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(after_s * 1000))


class ServerLoop(uvloop.Loop):
    """A handshake of TLS has `handshake_s`, for which uvloop itself gives 60 s; who is gone, `gone_after_s`."""

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
    """From `start` to `stop` the looks at everything are this one's matter, in the whole process."""

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

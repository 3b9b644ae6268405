"""TLS on a connection: uvloop's, for a caller who counts from the opening of the connection on.

uvloop's server tells a protocol of a connection once TLS' handshake is done, and of what isn't sent only the part above
TLS. Here it is told when the connection is accepted, and when TCP takes no more.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

# For TLS' own end, what has to be written before it included: service/server/line.py is sooner.
END_S = 3600.0


class Guarded(Protocol):
    """A protocol for what TLS carries."""

    def opened(self, tcp: asyncio.Transport) -> bool:
        """Whether the connection may go on; nothing was said on it yet."""

    def gone(self) -> None:
        """The connection has ended, whether or not anything was said on it."""

    def leave(self, why: str) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Handshake(SSLProtocol):  # type: ignore[misc]
    def __init__(
        self, loop: asyncio.AbstractEventLoop, inner: Guarded, context: ssl.SSLContext, within_s: float
    ) -> None:
        limits = {"ssl_handshake_timeout": within_s, "ssl_shutdown_timeout": END_S}
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

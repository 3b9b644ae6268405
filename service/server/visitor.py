"""uvicorn's connection as a guest of service/server/crowd.py: it comes, takes its answers or doesn't, and goes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, cast

from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dyno.settings import Settings
from service.meter import Meter
from service.server.crowd import Crowd, Waits
from service.server.line import Line
from service.server.unframed import unframed


class Visitor(HttpToolsProtocol, ABC):
    """The responses of a connection, which counts towards `limit`; requests are the subclass's matter."""

    _line: Line  # once it is made: over TLS, after the handshake

    def __init__(self, settings: Settings, limit: Crowd, meter: Meter, **of_server: Any) -> None:
        super().__init__(**of_server)
        self._settings, self._limit, self._meter = settings, limit, meter
        self._tcp: asyncio.Transport | None = None  # while it is open
        self._inside = False
        self._answer_due: asyncio.TimerHandle | None = None
        self._left_bytes = 0  # of answers, when that was set
        self._running: RequestResponseCycle | None = None  # uvicorn itself knows the last one that was asked for

    @property
    def _is_working(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @abstractmethod
    def _has_to_send(self) -> Waits | None:
        """What the caller has, whatever it has yet to take."""

    @abstractmethod
    def _to_come_bytes(self) -> int:
        """On their way from the caller as the connection closes, as far as is known."""

    # what the transport says

    def opened(self, tcp: asyncio.Transport) -> bool:
        """Before TLS' handshake, where there is one; whether there is a place."""
        self._tcp = tcp
        self._meter.connections.inc()
        self._inside = self._limit.enter(self)
        return self._inside

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._tcp is None:
            self.opened(transport)
        self._line = Line(transport, self._tcp or transport, self._to_come_bytes)
        super().connection_made(self._line)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone()
        self._line.lost()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn itself does so only where nobody reset the connection
        for cycle in (self._running, self.cycle):
            if cycle is not None:
                cycle.body = bytearray()  # nobody reads it any more
        # They refer to this, too, and only the collector would part them.
        self.pipeline.clear()
        self._running = self.cycle = None  # type: ignore[assignment]

    def gone(self) -> None:
        """The connection has ended; over TLS also one that was never made."""
        if self._tcp is not None:
            self._tcp = None
            self._meter.connections.dec()
            self._limit.out(self)
            self._answer_is_taken()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._line.is_closing():
            self._answer_is_taken()
            self._report_wait()

    # what becomes of its answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await self.flow.drain()  # what is made before there is room for it lies in memory, with all it is made of
            if not cycle.disconnected:
                told = unframed(cycle) if scope["http_version"] == "1.0" else send
                await self._line.answer(cast(ASGIApp, app), scope, receive, told)

        self._running = cycle
        super()._start_asgi_task(cycle, answer)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_reader()

    def _await_reader(self) -> None:
        """Where answers aren't taken, and where the connection ends with the last one."""
        if self._answer_due is None and self._tcp is not None:
            self._line.takes()  # what it does is counted from now on
            self._set_answer_due()
            self._report_wait()

    def _set_answer_due(self) -> None:
        self._left_bytes = self._line.left_bytes
        self._answer_due = self.loop.call_later(self._settings.write_timeout_s, self._answer_is_late)

    def _answer_is_late(self) -> None:
        if self._line.left_bytes < self._left_bytes:
            self._set_answer_due()
        else:
            self.leave("stuck")

    def _answer_is_taken(self) -> None:
        if self._answer_due is not None:
            self._answer_due.cancel()
            self._answer_due = None

    # what the limit on connections knows of it

    def _report_wait(self) -> None:
        self._limit.waits(self, Waits.READER if self._answer_due is not None else self._has_to_send())

    def leave(self, why: str) -> None:
        self._meter.left(why)
        if self._tcp is not None:
            self._tcp.abort()

    def takes(self) -> bool:
        return self._line.takes()

    @property
    def held_bytes(self) -> int:
        return self._line.held_bytes

"""One caller's connection: uvicorn's, with bounds on how long callers may keep it waiting and what they make it hold.

uvicorn closes a connection that is idle after an answer, and nothing else. Here, besides:

- a head has to come within `head_timeout_s` of its first byte, the first one of the connection's opening, and has at
  most `max_head_bytes` and MAX_FIELDS. (Bodies are read by the routes that want one, with service/requests/body.py or
  upload.py.)
- an answer of which nothing is taken is given up after `write_timeout_s`, or sooner where others need its room
  (service/server/crowd.py); it is written in pieces, so that little of it waits (service/server/line.py).
- a request that was answered before it had come in whole is the last of its connection: nobody reads on.
- what is no HTTP 1 is answered with a problem, as everything else is, and not logged: a line for each would be a way to
  fill a disk. What was asked properly before it on the same connection is still answered.

It rests on how uvicorn's own class is made; tests/service/abuse would be the first to miss something.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from dyno.settings import Settings
from service.meter import Meter
from service.server.crowd import Crowd, Waits
from service.server.heads import MALFORMED, Fault, Head, announced_bytes
from service.server.line import LINGER_BYTES
from service.server.refusal import refusal
from service.server.visitor import Visitor

MAX_PIPELINED = 16  # requests that wait for the answer to the one before; their heads are no larger than one may be
UNKNOWN_BYTES = LINGER_BYTES // 8  # may be on their way behind what is no request, or one without a length
_TOO_MANY = Fault("malformed", "bad-request", f"at most {MAX_PIPELINED} requests, without bodies, wait for an answer")


class Part(Enum):
    """What of a request comes next."""

    NONE = "it hasn't begun"
    HEAD = "the rest of its head"
    BODY = "the rest of it"


class Connection(Visitor):
    """The requests of a connection. The parser calls `on_…` from within `data_received`, for all that a piece holds."""

    def __init__(self, settings: Settings, limit: Crowd, meter: Meter, **of_server: Any) -> None:
        super().__init__(settings, limit, meter, **of_server)
        self._behind_bytes: deque[int] = deque()  # of the heads of requests that wait for an answer to another
        self._part = Part.NONE
        self._head = Head(settings.max_head_bytes)
        self._untold_bytes = 0  # fed to the parser since it last told of a whole head or of a body's bytes
        self._stays = False  # whether the connection outlasts the answer to the request that is being read
        self._deaf = False
        self._fault = MALFORMED
        self._head_due: asyncio.TimerHandle | None = None

    # what the transport says

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._inside:
            self._await_head()
        else:
            self._refuse(Fault("full", "too-many-connections", f"all {self._limit.most} connections are in use"))

    def gone(self) -> None:
        super().gone()
        self._head_is_here()

    def data_received(self, data: bytes) -> None:
        if self._line.is_closing():
            self._line.drop(len(data))
        elif not self._deaf:
            self._read(data)

    def _read(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._untold_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._read_no_more()  # and answer as if it hadn't asked for another protocol
        except httptools.HttpParserError:
            self._refuse(self._fault)
            return
        if self._untold_bytes > self._settings.max_head_bytes:
            self._refuse(self._head.too_large)
        elif not self._is_working:
            self._await_head()
        else:
            self._report_wait()

    # what the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part = Part.HEAD
        self._head.begin()

    def on_url(self, url: bytes) -> None:
        self._stop_at(self._head.add(len(url)))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._stop_at(self._head.add(len(name) + len(value), fields=1))
        if self._part is Part.HEAD:  # fields behind the body are read by nobody, and not mixed with these
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._untold_bytes = 0
        self._head_is_here()
        self._stop_at(self._head.check(self.parser.get_http_version(), self.parser.get_method(), self.headers))
        if self._is_working:
            self._stop_at(self._fault_behind_another())
        super().on_headers_complete()
        if self.pipeline:
            self.flow.resume_reading()  # uvicorn reads no more then, not even that the caller hangs up
        self._part = Part.BODY
        self._stays, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_body(self, body: bytes) -> None:
        self._untold_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._untold_bytes = 0
        self._part = Part.NONE
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._stays
        super().on_message_complete()

    def _fault_behind_another(self) -> Fault | None:
        """Of a request that is to wait until that is answered: meanwhile it lies in memory."""
        self._behind_bytes.append(self._head.size_bytes)
        too_large = sum(self._behind_bytes) > self._settings.max_head_bytes
        too_many = len(self._behind_bytes) > MAX_PIPELINED
        return _TOO_MANY if too_large or too_many or announced_bytes(self.headers) != 0 else None

    def _stop_at(self, fault: Fault | None) -> None:
        if fault is not None:
            self._fault = fault
            raise httptools.HttpParserError  # comes out of feed_data as another one

    # what becomes of it

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        while len(self._behind_bytes) > len(self.pipeline):
            self._behind_bytes.popleft()
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()
        elif not self._is_working:
            self._report_wait()
            if self._part is Part.HEAD:
                self._await_head()

    def shutdown(self) -> None:
        self._stays = False
        super().shutdown()

    def _await_head(self) -> None:
        if self._head_due is None:
            self._head_due = self.loop.call_later(self._settings.head_timeout_s, self._head_is_late)

    def _head_is_here(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _head_is_late(self) -> None:
        if self._part is Part.NONE:
            self.leave("silent")
            return
        within = f"{self._settings.head_timeout_s:g} s"
        self._refuse(Fault("slow_head", "head-timeout", f"the head of the request was not complete after {within}"))

    def _read_no_more(self) -> None:
        self._deaf = True
        self._stays = False
        if self._is_working:
            self.cycle.keep_alive = False

    def _refuse(self, fault: Fault) -> None:
        self._meter.left(fault.why)
        self._read_no_more()
        before = self._is_working and (self._part is not Part.BODY or bool(self.pipeline))
        if before or (self._is_working and self.cycle.response_started):
            return  # that is still answered, and the connection closed then
        self._line.write(refusal(fault.code, fault.detail))
        self._line.close()
        self._await_reader()

    def _has_to_send(self) -> Waits | None:
        if not self._is_working:
            return Waits.NEXT
        return Waits.BODY if self._part is Part.BODY else None

    def _to_come_bytes(self) -> int:
        if not self._inside or (self._part is Part.NONE and not self._deaf):
            return 0
        announced = announced_bytes(self.headers or ()) if self._part is Part.BODY else None
        return UNKNOWN_BYTES if announced is None else announced

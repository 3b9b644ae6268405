"""One HTTP connection: uvicorn's protocol with limits on time and memory.

By itself uvicorn only closes connections that are idle after a response. In addition:

- A request head must arrive within `head_timeout_s` of its first byte; the first head within that of the connection's
  opening. It has at most `max_head_bytes` and MAX_FIELDS. Routes read bodies themselves (service/validation.py,
  service/routes/artifacts.py).
- If a client reads nothing of a response for `write_timeout_s`, its connection is aborted, or sooner if others need
  the room (service/server/connections.py). Responses are written in pieces, so that few bytes wait in memory
  (service/server/response_transport.py).
- A request that was answered before it arrived completely is the last one of its connection.
- The response to anything but HTTP/1 is a problem, too. It isn't logged: clients could fill a disk that way. Earlier
  requests on the same connection are still answered.
- HTTP/1.0 has no chunks (RFC 9112, 6.1): the end of the connection ends a response without a length.

The class depends on internals of uvicorn's class; tests/service/abuse notices if those change.
"""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from enum import Enum
from http import HTTPStatus
from typing import Any, NamedTuple, cast

import httptools
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Send
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dyno.logging import current_request_id
from dyno.models.job import new_ulid
from dyno.settings import Settings
from service.middleware import DEFAULT_HEADERS, HttpMetrics
from service.problems import problem
from service.server.connections import ConnectionLimit, WaitsFor
from service.server.response_transport import LINGER_BYTES, ResponseTransport


def problem_bytes(code: str, detail: str) -> bytes:
    """The problem as bytes of an HTTP response, with the default headers; it is the last one of its connection."""
    return contextvars.copy_context().run(_problem_bytes, code, detail)


def _problem_bytes(code: str, detail: str) -> bytes:
    request_id = f"req_{new_ulid()}"
    current_request_id.set(request_id)  # `problem` reads it
    answer = problem(code, detail, headers={"Connection": "close"})
    headers = MutableHeaders(raw=list(answer.raw_headers))
    headers.update({**DEFAULT_HEADERS, "X-Request-ID": request_id})
    status = HTTPStatus(answer.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *(b": ".join(pair) for pair in headers.raw)]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


def http10_send(cycle: RequestResponseCycle) -> Send:
    """Replaces uvicorn's `send`, which writes chunks without a length even to HTTP/1.0 clients."""
    has_length = True

    async def send(message: Message) -> None:
        nonlocal has_length
        if message["type"] == "http.response.start":
            has_length = any(name.lower() == b"content-length" for name, _ in message["headers"])
            if not has_length:
                cycle.chunked_encoding = False
        elif not has_length:
            cycle.expected_content_length = len(message.get("body", b""))  # uvicorn checks each piece against it
        await cycle.send(cast(ASGISendEvent, message))

    return send


MAX_FIELDS = 100
VERSIONS = frozenset({"1.0", "1.1"})
WITHOUT_BODY = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS"})  # bodies that no route reads would stay in memory


class RequestFault(NamedTuple):
    """`why` is a label of the metrics; the rest is for the problem."""

    why: str
    code: str
    detail: str


MALFORMED = RequestFault("malformed", "bad-request", "this is not an HTTP/1.1 request")
# RFC 9112, 3.2 and 6.1: two readers of such a request may disagree on its host, or on where it ends.
_NO_HOST = RequestFault("malformed", "bad-request", "send exactly one Host header")
_CODED = RequestFault("malformed", "bad-request", "the only supported transfer coding is chunked")


class RequestHead:
    """Check the head of the request being read, and the trailers behind its body. Methods return a fault or None."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.size_bytes = self._fields = 0

    def begin(self) -> None:
        self.size_bytes = self._fields = 0

    def add(self, size_bytes: int, fields: int = 0) -> RequestFault | None:
        self.size_bytes += size_bytes
        self._fields += fields
        return self.too_large if self.size_bytes > self._max_bytes or self._fields > MAX_FIELDS else None

    @property
    def too_large(self) -> RequestFault:
        most = f"{self._max_bytes} bytes and {MAX_FIELDS} fields"
        return RequestFault("large_head", "head-too-large", f"the limit of a request head is {most}")

    def check(self, version: str, method: bytes, fields: Collection[tuple[bytes, bytes]]) -> RequestFault | None:
        if version not in VERSIONS:
            return MALFORMED
        hosts = sum(name == b"host" for name, _ in fields)
        if hosts > 1 or (hosts == 0 and version != "1.0"):
            return _NO_HOST
        if any(name == b"transfer-encoding" and value.strip().lower() != b"chunked" for name, value in fields):
            return _CODED
        if method in WITHOUT_BODY and announced_bytes(fields) != 0:
            return RequestFault("malformed", "bad-request", f"send {method.decode()} requests without a body")
        return None


def announced_bytes(fields: Collection[tuple[bytes, bytes]]) -> int | None:
    """The announced length of the body; None if it is chunked."""
    given = {name: value for name, value in fields if name in (b"content-length", b"transfer-encoding")}
    return None if b"transfer-encoding" in given else int(given.get(b"content-length", b"0").strip() or b"0")


class ResponseProtocol(HttpToolsProtocol, ABC):
    """The responses of a connection, which counts towards `limit`; the subclass handles its requests."""

    _line: ResponseTransport  # set once the connection is made: over TLS, after the handshake

    def __init__(self, settings: Settings, limit: ConnectionLimit, meter: HttpMetrics, **of_server: Any) -> None:
        super().__init__(**of_server)
        self._settings, self._limit, self._meter = settings, limit, meter
        self._tcp: asyncio.Transport | None = None  # while it is open
        self._inside = False
        self._answer_due: asyncio.TimerHandle | None = None
        self._left_bytes = 0  # unread bytes when `_answer_due` was set
        self._running: RequestResponseCycle | None = None  # uvicorn's `cycle` is that of the last request received

    @property
    def _is_working(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @abstractmethod
    def _has_to_send(self) -> WaitsFor | None:
        """What the client has to send, regardless of unread responses."""

    @abstractmethod
    def _to_come_bytes(self) -> int:
        """Bytes that the client may still be sending as the connection closes, as far as known."""

    # Called by the transport

    def opened(self, tcp: asyncio.Transport) -> bool:
        """Register the connection, before any TLS handshake; False if there is no room for it."""
        self._tcp = tcp
        self._meter.connections.inc()
        self._inside = self._limit.enter(self)
        return self._inside

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._tcp is None:
            self.opened(transport)
        self._line = ResponseTransport(transport, self._tcp or transport, self._to_come_bytes)
        super().connection_made(self._line)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone()
        self._line.lost()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn itself does so only if the client didn't reset the connection
        for cycle in (self._running, self.cycle):
            if cycle is not None:
                cycle.body = bytearray()  # free its memory: no one reads it any more
        # Break reference cycles, which only the garbage collector would free.
        self.pipeline.clear()
        self._running = self.cycle = None  # type: ignore[assignment]

    def gone(self) -> None:
        """The connection has ended; over TLS perhaps before the handshake was done."""
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

    # Responses

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await self.flow.drain()  # a response made before there is room for it would stay in memory, with its data
            if not cycle.disconnected:
                version_send = http10_send(cycle) if scope["http_version"] == "1.0" else send
                await self._line.answer(cast(ASGIApp, app), scope, receive, version_send)

        self._running = cycle
        super()._start_asgi_task(cycle, answer)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_reader()

    def _await_reader(self) -> None:
        """Start the write timeout: the client doesn't read, or the connection ends with this response."""
        if self._answer_due is None and self._tcp is not None:
            self._line.takes()  # count what the client reads from now on
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

    # For the limit on connections

    def _report_wait(self) -> None:
        self._limit.waits(self, WaitsFor.READER if self._answer_due is not None else self._has_to_send())

    def leave(self, why: str) -> None:
        self._meter.left(why)
        if self._tcp is not None:
            self._tcp.abort()

    def takes(self) -> bool:
        return self._line.takes()

    @property
    def held_bytes(self) -> int:
        return self._line.held_bytes


MAX_PIPELINED = 16  # waiting requests; the limit on one request head applies to all their heads together
UNKNOWN_BYTES = LINGER_BYTES // 8  # assumed to follow malformed requests, and bodies without a length
_TOO_MANY = RequestFault("malformed", "bad-request", f"the limit is {MAX_PIPELINED} pipelined requests without bodies")


class RequestPart(Enum):
    """The part of a request that the connection reads."""

    NONE = "no request has begun"
    HEAD = "the head"
    BODY = "the body"


class HttpProtocol(ResponseProtocol):
    """The requests of a connection. `data_received` feeds the parser, which calls `on_…` for all parts of the data."""

    def __init__(self, settings: Settings, limit: ConnectionLimit, meter: HttpMetrics, **of_server: Any) -> None:
        super().__init__(settings, limit, meter, **of_server)
        self._behind_bytes: deque[int] = deque()  # sizes of the heads of pipelined requests
        self._part = RequestPart.NONE
        self._head = RequestHead(settings.max_head_bytes)
        self._untold_bytes = 0  # fed to the parser since it last reported a whole head or bytes of a body
        self._stays = False  # whether the connection stays open after the response to the request being read
        self._deaf = False
        self._fault = MALFORMED
        self._head_due: asyncio.TimerHandle | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._inside:
            self._await_head()
        else:
            self._refuse(RequestFault("full", "too-many-connections", f"all {self._limit.most} connections are in use"))

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
            self._read_no_more()  # and respond in HTTP/1.1: other protocols aren't supported
        except httptools.HttpParserError:
            self._refuse(self._fault)
            return
        if self._untold_bytes > self._settings.max_head_bytes:
            self._refuse(self._head.too_large)
        elif not self._is_working:
            self._await_head()
        else:
            self._report_wait()

    # Called by the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part = RequestPart.HEAD
        self._head.begin()

    def on_url(self, url: bytes) -> None:
        self._stop_at(self._head.add(len(url)))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._stop_at(self._head.add(len(name) + len(value), fields=1))
        if self._part is RequestPart.HEAD:  # ignore trailers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._untold_bytes = 0
        self._head_is_here()
        self._stop_at(self._head.check(self.parser.get_http_version(), self.parser.get_method(), self.headers))
        if self._is_working:
            self._stop_at(self._fault_behind_another())
        super().on_headers_complete()
        if self.pipeline:
            self.flow.resume_reading()  # uvicorn pauses here, and would miss that the client disconnects
        self._part = RequestPart.BODY
        self._stays, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_body(self, body: bytes) -> None:
        self._untold_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._untold_bytes = 0
        self._part = RequestPart.NONE
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._stays
        super().on_message_complete()

    def _fault_behind_another(self) -> RequestFault | None:
        """The fault of a pipelined request, which stays in memory until the requests before it are answered."""
        self._behind_bytes.append(self._head.size_bytes)
        too_large = sum(self._behind_bytes) > self._settings.max_head_bytes
        too_many = len(self._behind_bytes) > MAX_PIPELINED
        return _TOO_MANY if too_large or too_many or announced_bytes(self.headers) != 0 else None

    def _stop_at(self, fault: RequestFault | None) -> None:
        if fault is not None:
            self._fault = fault
            raise httptools.HttpParserError  # feed_data raises another error of this class

    # Responses and timeouts

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
            if self._part is RequestPart.HEAD:
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
        if self._part is RequestPart.NONE:
            self.leave("silent")
            return
        within = f"{self._settings.head_timeout_s:g} s"
        self._refuse(RequestFault("slow_head", "head-timeout", f"the request head didn't arrive within {within}"))

    def _read_no_more(self) -> None:
        self._deaf = True
        self._stays = False
        if self._is_working:
            self.cycle.keep_alive = False

    def _refuse(self, fault: RequestFault) -> None:
        self._meter.left(fault.why)
        self._read_no_more()
        before = self._is_working and (self._part is not RequestPart.BODY or bool(self.pipeline))
        if before or (self._is_working and self.cycle.response_started):
            return  # the request before is still answered; then the connection is closed
        self._line.write(problem_bytes(fault.code, fault.detail))
        self._line.close()
        self._await_reader()

    def _has_to_send(self) -> WaitsFor | None:
        if not self._is_working:
            return WaitsFor.NEXT
        return WaitsFor.BODY if self._part is RequestPart.BODY else None

    def _to_come_bytes(self) -> int:
        if not self._inside or (self._part is RequestPart.NONE and not self._deaf):
            return 0
        announced = announced_bytes(self.headers or ()) if self._part is RequestPart.BODY else None
        return UNKNOWN_BYTES if announced is None else announced

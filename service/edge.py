"""The outermost layer: every answer's id, security headers, access line and time, whoever made the answer."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dyno.logging import current_job_id, current_request_id, log_event
from dyno.models.job import new_ulid
from dyno.settings import Settings
from service.headers_only import HeadersOnly
from service.meter import Meter
from service.problems import problem

ACCESS = logging.getLogger("dyno.access")
UNMATCHED = "unmatched"
_OWN_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

# Whether the answer to this request is held back for news: its time says nothing of how fast the service is.
held: ContextVar[bool] = ContextVar("held", default=False)
_heard: ContextVar[Receive] = ContextVar("heard")

# The id of the caller's API key, set once its request is authorized.
caller: ContextVar[str | None] = ContextVar("caller", default=None)

# Of every answer that doesn't say otherwise.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
# Of what a browser may render: it runs nothing in it, and it is of no origin.
SANDBOXED = {"Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}

_ENDED = "the service ended before this was answered; it may have been done"
_ASKED_WITH = ("Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Prefer")
_ANSWERED_WITH = ("Content-Disposition", "ETag", "Idempotent-Replayed", "Link", "Location", "Preference-Applied")
_TRACED_WITH = ("traceparent", "tracestate", "X-Request-ID")
_LIMITED_WITH = ("RateLimit", "RateLimit-Policy", "Retry-After", "WWW-Authenticate")


def install(app: FastAPI, meter: Meter, settings: Settings) -> None:
    """Lay it around `app`: outside of its own layers too, one of which answers when all others fail."""
    build = app.build_middleware_stack

    def outermost() -> ASGIApp:
        inner: ASGIApp = HeadersOnly(build(), app.state.routes)
        if settings.cors_origins:
            inner = _Cors(
                inner,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "HEAD", "POST", "DELETE"],
                allow_headers=[*_ASKED_WITH, *_TRACED_WITH],
                expose_headers=[*_ANSWERED_WITH, *_LIMITED_WITH, "X-Request-ID"],
            )
        return Edge(inner, meter)

    app.build_middleware_stack = outermost  # type: ignore[method-assign]


class _Cors(CORSMiddleware):
    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        if answer.status_code == HTTPStatus.OK:
            return answer
        return problem("bad-request", bytes(answer.body).decode(), headers={"Vary": answer.headers["Vary"]})


class Edge:
    """Plain ASGI, so that streams go through as they come."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app, self._meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, self._meter)
        _heard.set(receive)
        answer = partial(exchange.send, send)
        try:
            await self._app(scope, receive, answer)
        except asyncio.CancelledError:  # by the server, whose time to end is over
            if not exchange.begun:  # else it hangs up, and a traceback for each would tell nobody anything
                await problem("shutting-down", _ENDED)(scope, receive, answer)
        finally:
            exchange.tell()


async def caller_left() -> None:
    """Returns when the caller of this request has hung up. Only once its body was read, or where it has none."""
    while (await _heard.get()())["type"] != "http.disconnect":
        pass


class _Exchange:
    """One request and its answer.

    The context variables are left set: the task is the request's own, and what the server logs of it comes after us.
    """

    def __init__(self, scope: Scope, meter: Meter) -> None:
        self._scope, self._meter = scope, meter
        self._began_s = time.monotonic()
        self._id = _own_id(scope) or f"req_{new_ulid()}"
        self._status: int | None = None
        current_request_id.set(self._id)
        current_job_id.set(None)
        held.set(False)
        caller.set(None)

    async def send(self, send: Send, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(raw=list(message["headers"]))
            headers["X-Request-ID"] = self._id
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
            seconds = time.monotonic() - self._began_s
            self._meter.answered(self._scope["method"], self._route, message["status"], seconds, held=held.get())
        await send(message)

    def tell(self) -> None:
        """The access line, when the last byte is on its way."""
        facts = {
            "method": self._scope["method"],
            "route": self._route,
            "status": self._status,
            "duration_s": round(time.monotonic() - self._began_s, 6),
            "request_id": self._id,
            "key": caller.get(),
        }
        log_event(ACCESS, logging.INFO, "request", facts)

    @property
    def begun(self) -> bool:
        """Whether its answer is."""
        return self._status is not None

    @property
    def _route(self) -> str:
        """The template: a path would be a label without bounds, and may be anything in a log."""
        return str(getattr(self._scope.get("route"), "path", UNMATCHED))


def _own_id(scope: Scope) -> str | None:
    given = [value for name, value in scope["headers"] if name == b"x-request-id"]
    return given[0].decode() if len(given) == 1 and _OWN_ID.fullmatch(given[0]) else None

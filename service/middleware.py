"""Middleware around all routes: request ids, security headers, access log, metrics, traces, CORS and HEAD.

All of it is plain ASGI, so that streams pass through piece by piece. Metrics cover this process and end with it. If no
route handles HEAD, the response has the headers of GET and no body (RFC 9110, 9.3.2). Each request has a span, which
is named by OpenTelemetry's conventions for HTTP servers. The span joins the client's trace if the client sends one.
"""

import asyncio
import logging
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from pathlib import Path

import prometheus_client
from fastapi import FastAPI
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dyno.logging import current_job_id, current_request_id, log_event
from dyno.models.job import new_ulid
from dyno.settings import Settings
from dyno.tracing import Carrier, Tracer
from service.problems import problem

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})  # other methods get the label "other"
# Why the service closed a connection before its client did; docs/operations.md explains each reason.
CLOSE_REASONS = ("full", "large_head", "malformed", "silent", "slow_head")
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads this variable on import

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


def metrics_folder() -> Path | None:
    """The folder in which the processes of this address add up their metrics; None if this is the only process."""
    return Path(folder) if (folder := os.environ.get(METRICS_FOLDER)) else None


class HttpMetrics:
    """The metrics of one app, in its own registries: the whole process shares prometheus_client's default registry.

    `metrics_folder`: the folder in which several processes add up their metrics.
    """

    def __init__(self, version: str, metrics_folder: Path | None = None) -> None:
        self._registry, self._folder = prometheus_client.CollectorRegistry(), metrics_folder
        self._own = prometheus_client.CollectorRegistry()  # metrics that can't be summed over processes
        if metrics_folder is None:
            prometheus_client.ProcessCollector(registry=self._own)
        build = prometheus_client.Info("dyno_build", "The version of this API process", registry=self._own)
        build.info({"version": version, "python": platform.python_version()})
        self.connections = prometheus_client.Gauge(
            "dyno_connections", "Open client connections", registry=self._registry, multiprocess_mode="livesum"
        )
        self.streams = prometheus_client.Gauge(
            "dyno_streams", "Open streaming responses", registry=self._registry, multiprocess_mode="livesum"
        )
        self.tls_expiry = prometheus_client.Gauge(
            "dyno_tls_expiry_timestamp_seconds",
            "When the TLS certificate in use expires, in seconds since 1970; 0 without TLS",
            registry=self._registry,
            multiprocess_mode="livemin",
        )
        self._endings = prometheus_client.Counter(
            "dyno_connections_ended", "Connections that this API process closed", ["why"], registry=self._registry
        )
        for why in CLOSE_REASONS:
            self._endings.labels(why)
        self._requests = prometheus_client.Histogram(
            "dyno_http_request_duration_seconds",
            "Time from a request to the start of its response, in this API process; held: a long poll",
            ["method", "route", "status", "held"],
            buckets=BOUNDS_S,
            registry=self._registry,
        )

    def observe_response(self, method: str, route: str, status: int, seconds: float, *, held: bool) -> None:
        """`route` becomes a label, so it must be a template and not a path."""
        label = method if method in METHODS else "other"
        self._requests.labels(label, route, str(status), "yes" if held else "no").observe(seconds)

    def count_closed(self, why: str) -> None:
        """Count a connection that the service closed for one of CLOSE_REASONS."""
        self._endings.labels(why).inc()

    def collect(self) -> Iterator[prometheus_client.Metric]:
        shared = self._registry
        if self._folder is not None:
            shared = prometheus_client.CollectorRegistry()
            MultiProcessCollector(shared, str(self._folder))  # type: ignore[no-untyped-call]
        yield from self._own.collect()
        yield from shared.collect()


class HeadMiddleware:
    """Serve HEAD as GET without the body, for all `routes` that don't handle HEAD themselves."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or self._has_its_own(scope):
            await self._app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}

        async def begin(message: Message) -> None:
            """End the response where its body would begin, so that a HEAD request for an endless stream ends, too."""
            if message["type"] == "http.response.start":
                if "route" in as_get:
                    scope["route"] = as_get["route"]  # for metrics and the access log
                await send(message)
                await send({"type": "http.response.body"})

        await self._app(as_get, receive, begin)

    def _has_its_own(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self._routes)


_UNTRACED = frozenset({"/livez", "/readyz", "/metrics"})  # polled constantly, so their spans would be noise
_CARRIERS = (b"traceparent", b"tracestate")


class TracingMiddleware:
    """Record a server span for each request."""

    def __init__(self, app: ASGIApp, traces: Tracer) -> None:
        self._app, self._traces = app, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        method, status = scope["method"], 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        facts = {"http.request.method": method, "url.scheme": scope["scheme"]}
        with self._traces.span(method, facts, follows=_carried(scope), kind="server") as span:
            try:
                await self._app(scope, receive, note_status)
            finally:
                route = getattr(scope.get("route"), "path", None)
                span.note(
                    {"http.route": route, "http.response.status_code": status},
                    name=f"{method} {route}" if route else None,
                    failed=f"answered {status}" if status >= 500 else None,
                )


def _carried(scope: Scope) -> Carrier:
    """The client's trace; empty if the client sends several. Lines of `tracestate` form one list (W3C, section 3.3)."""
    parents, states = ([value for name, value in scope["headers"] if name == header] for header in _CARRIERS)
    if len(parents) != 1:
        return {}
    carried = {"traceparent": parents[0].decode("latin-1")}
    return carried | ({"tracestate": b",".join(states).decode("latin-1")} if states else {})


ACCESS_LOG = logging.getLogger("dyno.access")
UNMATCHED = "unmatched"
_OWN_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

# Whether this request is a long poll: the duration of a long poll says nothing about the speed of the service.
held_back: ContextVar[bool] = ContextVar("held", default=False)
_receive: ContextVar[Receive] = ContextVar("heard")

# The id of the caller's API key, set once its request is authorized.
caller_key: ContextVar[str | None] = ContextVar("caller", default=None)

# Default headers, which a response may override.
DEFAULT_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
_DEFAULT_PAIRS = [(name.lower().encode(), value.encode()) for name, value in DEFAULT_HEADERS.items()]
# For content that a browser may render: no scripts, and an opaque origin.
SANDBOXED = {"Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
# Pictures contain a style element with the colours for dark screens.
SANDBOXED_PICTURE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
}

_ENDED = "the service shut down before it could respond; the request may have taken effect"
_ASKED_WITH = ("Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Prefer")
_ANSWERED_WITH = ("Content-Disposition", "ETag", "Idempotent-Replayed", "Link", "Location", "Preference-Applied")
_TRACED_WITH = ("traceparent", "tracestate", "X-Request-ID")
_LIMITED_WITH = ("RateLimit", "RateLimit-Policy", "Retry-After", "WWW-Authenticate")


def install(
    app: FastAPI, hot_routes: Callable[[ASGIApp], ASGIApp], traces: Tracer, meter: HttpMetrics, settings: Settings
) -> None:
    """Wrap `app`, outside Starlette's own layers, one of which responds to unexpected exceptions.

    `hot_routes` answers frequent requests before they reach Starlette's layers.
    """
    build = app.build_middleware_stack

    def outermost() -> ASGIApp:
        inner: ASGIApp = hot_routes(HeadMiddleware(build(), app.state.routes))
        if traces.on:
            inner = TracingMiddleware(inner, traces)
        if settings.cors_origins:
            inner = _Cors(
                inner,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "HEAD", "POST", "PUT", "DELETE"],
                allow_headers=[*_ASKED_WITH, *_TRACED_WITH],
                expose_headers=[*_ANSWERED_WITH, *_LIMITED_WITH, "X-Request-ID"],
            )
        return EdgeMiddleware(inner, meter)

    app.build_middleware_stack = outermost  # type: ignore[method-assign]


class _Cors(CORSMiddleware):
    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        if answer.status_code == HTTPStatus.OK:
            return answer
        return problem("bad-request", bytes(answer.body).decode(), headers={"Vary": answer.headers["Vary"]})


class EdgeMiddleware:
    """Outermost layer: request id, default headers, metrics and access log of each request."""

    def __init__(self, app: ASGIApp, meter: HttpMetrics) -> None:
        self._app, self._meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, self._meter)
        _receive.set(receive)
        answer = partial(exchange.send, send)
        try:
            await self._app(scope, receive, answer)
        except asyncio.CancelledError:  # the server cancels requests at the end of the shutdown timeout
            if not exchange.begun:  # otherwise the server closes the connection without a traceback
                await problem("shutting-down", _ENDED)(scope, receive, answer)
        finally:
            exchange.log()


async def caller_disconnected() -> None:
    """Wait until the client of this request disconnects. Call it after the body was read, if there is a body."""
    while (await _receive.get()())["type"] != "http.disconnect":
        pass


class _Exchange:
    """One request and its response.

    The context variables stay set after this layer: the task serves only this request, and the server's log uses them.
    """

    def __init__(self, scope: Scope, meter: HttpMetrics) -> None:
        self._scope, self._meter = scope, meter
        self._began_s = time.monotonic()
        self._id = _own_id(scope) or f"req_{new_ulid()}"
        self._status: int | None = None
        current_request_id.set(self._id)
        current_job_id.set(None)
        held_back.set(False)
        caller_key.set(None)

    async def send(self, send: Send, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            given = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
            names = {name for name, _ in given}
            defaults = (pair for pair in _DEFAULT_PAIRS if pair[0] not in names)
            message = {**message, "headers": [*given, (b"x-request-id", self._id.encode()), *defaults]}
            seconds = time.monotonic() - self._began_s
            self._meter.observe_response(
                self._scope["method"], self._route, message["status"], seconds, held=held_back.get()
            )
        await send(message)

    def log(self) -> None:
        """Write the access log line, after the last byte was sent."""
        facts = {
            "method": self._scope["method"],
            "route": self._route,
            "status": self._status,
            "duration_s": round(time.monotonic() - self._began_s, 6),
            "request_id": self._id,
            "key": caller_key.get(),
        }
        log_event(ACCESS_LOG, logging.INFO, "request", facts)

    @property
    def begun(self) -> bool:
        """Whether the response has begun."""
        return self._status is not None

    @property
    def _route(self) -> str:
        """The route's template: paths would create unlimited labels, and could put any text into the log."""
        return str(getattr(self._scope.get("route"), "path", UNMATCHED))


def _own_id(scope: Scope) -> str | None:
    given = [value for name, value in scope["headers"] if name == b"x-request-id"]
    return given[0].decode() if len(given) == 1 and _OWN_ID.fullmatch(given[0]) else None

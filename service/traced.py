"""A span for each request, named as OpenTelemetry has it for HTTP servers; in its caller's trace, if there is one."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dyno.logging import Carrier, Tracer

_UNTRACED = frozenset({"/livez", "/readyz", "/metrics"})  # asked again and again, and nobody asks how that went
_CARRIERS = (b"traceparent", b"tracestate")


class Traced:
    """Plain ASGI, around the routes."""

    def __init__(self, app: ASGIApp, traces: Tracer) -> None:
        self._app, self._traces = app, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        method, status = scope["method"], 500

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        facts = {"http.request.method": method, "url.scheme": scope["scheme"]}
        with self._traces.span(method, facts, follows=_carried(scope), kind="server") as span:
            try:
                await self._app(scope, receive, told)
            finally:
                route = getattr(scope.get("route"), "path", None)
                span.note(
                    {"http.route": route, "http.response.status_code": status},
                    name=f"{method} {route}" if route else None,
                    failed=f"answered {status}" if status >= 500 else None,
                )


def _carried(scope: Scope) -> Carrier:
    """None of two traces; `tracestate` is a list, whose lines are one (W3C Trace Context, 3.2 and 3.3)."""
    parents, states = ([value for name, value in scope["headers"] if name == each] for each in _CARRIERS)
    if len(parents) != 1:
        return {}
    carried = {"traceparent": parents[0].decode("latin-1")}
    return carried | ({"tracestate": b",".join(states).decode("latin-1")} if states else {})

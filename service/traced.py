"""A span for each request, named as OpenTelemetry has it for HTTP servers; in its caller's trace, if there is one."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dyno.tracing import Carrier, Traces

_UNTRACED = frozenset({"/livez", "/readyz", "/metrics"})  # asked again and again, and nobody asks how that went
_CARRIERS = (b"traceparent", b"tracestate")


class Traced:
    """Plain ASGI, around the routes."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
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
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _CARRIERS}

"""HEAD: what GET would be answered with, but for the body (RFC 9110, 9.3.2), where a route has none of its own."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadersOnly:
    """Plain ASGI, around `app` with those routes: what may read by GET may look by HEAD, and nobody else."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or self._has_its_own(scope):
            await self._app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}

        async def begin(message: Message) -> None:
            """The answer ends where its body would begin, so that a stream without an end has one, too."""
            if message["type"] == "http.response.start":
                if "route" in as_get:
                    scope["route"] = as_get["route"]  # for who counts and logs it
                await send(message)
                await send({"type": "http.response.body"})

        await self._app(as_get, receive, begin)

    def _has_its_own(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self._routes)

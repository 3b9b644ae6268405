"""The API's event loop: uvloop's, with TLS that service/crowd.py is told of."""

from __future__ import annotations

from typing import Any

import uvloop

from service.handshake import Handshake


class Loop(uvloop.Loop):
    """A handshake of TLS has `handshake_s`, for which uvloop itself gives 60 s."""

    handshake_s = 10.0

    async def create_server(self, *given: Any, **how: Any) -> Any:
        if (context := how.pop("ssl", None)) is None:
            return await super().create_server(*given, **how)
        made, *where = given

        def handshake() -> Handshake:
            return Handshake(self, made(), context, self.handshake_s)

        return await super().create_server(handshake, *where, **how)

"""The API's event loop: uvloop's, with TLS that service/server/crowd.py is told of, and an end to who is gone."""

from __future__ import annotations

from typing import Any

import uvloop

from service.server.gone import GONE_AFTER_S, let_go_of_who_is_gone
from service.server.handshake import Handshake


class Loop(uvloop.Loop):
    """A handshake of TLS has `handshake_s`, for which uvloop itself gives 60 s; who is gone, `gone_after_s`."""

    handshake_s = 10.0
    gone_after_s = GONE_AFTER_S

    async def create_server(self, *given: Any, **how: Any) -> Any:
        (made, *where), context = given, how.pop("ssl", None)

        def handshake() -> Handshake:
            return Handshake(self, made(), context, self.handshake_s)

        protocol = made if context is None else handshake
        server: Any = await super().create_server(protocol, *where, **how, start_serving=False)
        let_go_of_who_is_gone(server.sockets, self.gone_after_s)  # before the first connection, which inherits it
        await server.start_serving()
        return server

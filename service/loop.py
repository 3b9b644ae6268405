"""The API's event loop: uvloop's, with a time limit for the handshake of TLS."""

from __future__ import annotations

from typing import Any

import uvloop


class Loop(uvloop.Loop):
    """No connection is a guest (service/crowd.py) before its handshake is done, for which uvloop itself gives 60 s."""

    handshake_s = 10.0

    async def create_server(self, *where: Any, **how: Any) -> Any:
        if how.get("ssl") is not None:
            how = {"ssl_handshake_timeout": self.handshake_s} | how
        return await super().create_server(*where, **how)

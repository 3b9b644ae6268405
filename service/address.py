"""Who can reach the service, by the address it binds."""

from __future__ import annotations

import ipaddress
import socket

from dyno.settings import Settings


def is_loopback(host: str) -> bool:
    """Whether `host`, an address or a name, means this machine alone. A name that can't be resolved doesn't."""
    try:
        found = {str(address[4][0]) for address in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


def needs_keys(settings: Settings) -> bool:
    """Whether nobody may be served without a key, not even while there is none yet."""
    return settings.require_keys or (not settings.allow_unauthenticated and not is_loopback(settings.host))

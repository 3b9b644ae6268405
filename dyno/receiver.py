"""Where a webhook leads: the one form of URL that is taken, and which addresses may be called.

A caller names the URL and Dyno calls it from inside, so what isn't meant for everybody must not be reached that way:
https and public addresses only, but for hosts that `DYNO_WEBHOOK_ALLOWED_HOSTS` names.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

MOST_CHARACTERS = 2000
# Narrower than the standard, so that no two readers of a URL can differ on its host: printable ASCII, no user, no "\".
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?(?P<path>[/?][!\"$-\[\]-~]*)?",
    re.IGNORECASE | re.ASCII,
)
_PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")


class Receiver(NamedTuple):
    """`host` without brackets, in small letters; `path` with its query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What a Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def is_allowed(self, allowed: Collection[str]) -> bool:
        """Whether it is one of those that may be private and without TLS; with its port, or whatever its port."""
        return bool({self.host, f"{self.host}:{self.port}", self.authority} & set(allowed))


def parse(url: str) -> Receiver:
    """Raises ValueError, in words for the caller."""
    found = _URL.fullmatch(url)
    if found is None or len(url) > MOST_CHARACTERS:
        raise ValueError(
            "a webhook is https://, a host and perhaps a port and a path: printable ASCII, without user and fragment, "
            f"at most {MOST_CHARACTERS} characters"
        )
    scheme, host = found["scheme"].lower(), found["host"].lower()
    port = int(found["port"] or _PORTS[scheme])
    if host.startswith("[") and _literal(host.strip("[]")) is None:
        raise ValueError(f"{host} is no IPv6 address")
    if not 0 < port < 2**16:
        raise ValueError(f"{port} is no port")
    path = found["path"] or "/"
    return Receiver(scheme, host.strip("[]"), port, path if path.startswith("/") else f"/{path}")


def refusal(receiver: Receiver, allowed: Collection[str]) -> str | None:
    """What speaks against it before its name is looked up; null: nothing."""
    if receiver.is_allowed(allowed):
        return None
    if receiver.scheme != "https":
        return "a webhook must be https"
    literal = _literal(receiver.host)
    is_own = f".{receiver.host.rstrip('.')}".endswith(".localhost")
    if is_own or (literal is not None and not is_public(literal)):
        return f"{receiver.host} is not a public address"
    return None


def is_public(address: str) -> bool:
    """Whether everybody may be there: no private, loopback, link-local, shared, multicast or reserved address, however
    it is wrapped in one of IPv6."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        inside = ip.ipv4_mapped or ip.sixtofour or (IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        if inside is not None:
            return is_public(str(inside))
        if ip.is_site_local:
            return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved)


def _literal(host: str) -> str | None:
    """The address that the host is, however it is written: 127.1 and 0x7f000001 are 127.0.0.1 to those who connect."""
    with contextlib.suppress(OSError):
        return socket.inet_ntoa(socket.inet_aton(host))
    with contextlib.suppress(ValueError):
        return str(ip_address(host))
    return None

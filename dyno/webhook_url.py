"""Parse and check the URL of a webhook: its syntax, and which addresses Dyno may call.

A caller sets the URL and Dyno calls it from inside its network, so private services must not be reachable that way.
Dyno accepts https and public addresses only, except for hosts in `DYNO_WEBHOOK_ALLOWED_HOSTS`.
"""

import contextlib
import re
import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

MAX_URL_CHARACTERS = 2000
_MAX_HOST_CHARACTERS = 254  # 253 and a trailing dot
_LABEL = r"[a-z0-9_-]{1,63}"
_HOST = rf"(?P<host>{_LABEL}(\.{_LABEL})*\.?|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{{1,5}}))?"
# Stricter than the standard, so that no two URL parsers disagree on the host: printable ASCII, no user, no "\".
_URL = re.compile(rf"(?P<scheme>https?)://{_HOST}(?P<path>[/?][!\"$-\[\]-~]*)?", re.IGNORECASE | re.ASCII)
_ALLOWED = re.compile(_HOST, re.IGNORECASE | re.ASCII)
_PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")
# Networks on which versions of Python disagree, or which they consider public although clouds use them internally.
_NOT_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "192.0.0.0/24",  # IETF protocol assignments; 192.0.0.192 is the metadata service of Oracle's cloud
        "192.88.99.0/24",  # 6to4 relays, which are out of use
        "168.63.129.16/32",  # Azure's hosts talk to their virtual machines from this address
        "2001::/23",  # IETF protocol assignments, such as Teredo
        "64:ff9b:1::/48",  # NAT64 of one network
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
    )
)


class WebhookUrl(NamedTuple):
    """`host` is in lower case and without brackets; `path` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        full = _with_port(self.host, self.port)
        return full.rpartition(":")[0] if self.port == _PORTS[self.scheme] else full

    def is_allowed(self, allowed: Collection[str]) -> bool:
        """Whether `allowed` has this host, with or without its port. Allowed hosts may be private and without TLS."""
        return bool({self.host, _with_port(self.host, self.port)} & set(allowed))


def parse_webhook_url(url: str) -> WebhookUrl:
    """Parse a webhook's URL. Raises ValueError with a message for the caller."""
    match = _URL.fullmatch(url)
    if match is None or len(url) > MAX_URL_CHARACTERS:
        raise ValueError(
            "invalid webhook URL: use https://, a host, and optionally a port and a path, in printable ASCII, without "
            f"user and fragment, at most {MAX_URL_CHARACTERS} characters"
        )
    scheme, path = match["scheme"].lower(), match["path"] or "/"
    host, port = _host_and_port(match, _PORTS[scheme])
    return WebhookUrl(scheme, host, port, path if path.startswith("/") else f"/{path}")


def allowed_host(text: str) -> str:
    """Normalize an entry of `DYNO_WEBHOOK_ALLOWED_HOSTS` for comparison with receivers: a host, optionally with a port.

    Raises ValueError if no receiver could match the entry.
    """
    bare = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
    match = _ALLOWED.fullmatch(bare)
    if match is None:
        raise ValueError('invalid webhook host: use a name or an address, optionally with ":" and a port')
    host, port = _host_and_port(match, 0)
    return _with_port(host, port) if match["port"] else host


def _host_and_port(match: re.Match[str], default: int) -> tuple[str, int]:
    """The host, as in WebhookUrl, and the port of a _HOST match. Raises ValueError."""
    host, port = match["host"].lower(), int(match["port"] or default)
    if host.startswith("["):
        literal = _ip_literal(host.strip("[]"))
        if literal is None or ":" not in literal:
            raise ValueError(f"{host} is not an IPv6 address")
        host = literal
    if len(host) > _MAX_HOST_CHARACTERS:
        raise ValueError(f"a host name has at most {_MAX_HOST_CHARACTERS} characters")
    if match["port"] and not 0 < port < 2**16:
        raise ValueError(f"{port} is not a port")
    return host, port


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reject_reason(receiver: WebhookUrl, allowed: Collection[str]) -> str | None:
    """Why Dyno must not call the receiver, according to the URL alone; None if there is no reason."""
    if receiver.is_allowed(allowed):
        return None
    if receiver.scheme != "https":
        return "a webhook must use https"
    literal = _ip_literal(receiver.host)
    is_own = f".{receiver.host.rstrip('.')}".endswith(".localhost")
    if is_own or (literal is not None and not is_public_address(literal)):
        return f"{receiver.host} is not a public address"
    return None


def is_public_address(address: str) -> bool:
    """Whether the address is public: not private, loopback, link-local, shared, multicast or reserved. An IPv4 address
    inside an IPv6 address is checked too."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        inside = ip.ipv4_mapped or ip.sixtofour or (IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        if inside is not None:
            return is_public_address(str(inside))
        if ip.is_site_local:
            return False
    if any(ip in network for network in _NOT_PUBLIC):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved)


def _ip_literal(host: str) -> str | None:
    """The address if the host is an address in any notation, else None. 127.1 and 0x7f000001 are 127.0.0.1."""
    with contextlib.suppress(OSError):
        return socket.inet_ntoa(socket.inet_aton(host))
    with contextlib.suppress(ValueError):
        return str(ip_address(host))
    return None

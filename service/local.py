"""Who is served while no key is needed: callers on this host, and no page of another origin that a browser shows there.

An API on loopback relies on nobody else reaching it. But a browser on this host can be made to ask it: by a name that
comes to mean 127.0.0.1 after the page was loaded, or by a request whose answer the page may not read but whose effect
is there. And a proxy makes all the world a caller on this host.
"""

from __future__ import annotations

import ipaddress
import re

from fastapi import Request

from dyno.settings import Settings
from service.errors import HostNotAllowed, OriginNotAllowed, ProxyNotAllowed

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+?)\.?(:\d{1,5})?", re.IGNORECASE)
_CHANGES_NOTHING = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_PROXIES = re.compile(r"forwarded|via|x-forwarded-.+|x-real-ip")
_FIRST_A_KEY = "without keys the API serves its own host alone; first make one there, with `dyno keys create`"


def check_local(request: Request, settings: Settings) -> None:
    """Raises HostNotAllowed, ProxyNotAllowed and OriginNotAllowed.

    With `allow_unauthenticated` everybody is meant to be served, unless `allowed_hosts` says by which names.
    """
    if settings.allow_unauthenticated and not settings.allowed_hosts:
        return
    asked = request.headers.getlist("host")
    if len(asked) != 1 or not _is_allowed(asked[0], settings):
        raise HostNotAllowed(f'"{", ".join(asked)[:100]}" is no name of this host; {_FIRST_A_KEY}')
    if proxy := next(filter(_OF_PROXIES.fullmatch, request.headers), None):
        raise ProxyNotAllowed(f"{proxy} says that a proxy is between; {_FIRST_A_KEY}")
    if request.method not in _CHANGES_NOTHING and not _is_own_page(request, asked[0], settings):
        raise OriginNotAllowed("a page of another origin asks for this; DYNO_CORS_ORIGINS names those that may")


def _is_allowed(asked: str, settings: Settings) -> bool:
    found = _HOST.fullmatch(asked)
    if found is None:
        return False
    name = found[1].strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:  # a name, which is not looked up: whoever owns it would say what it means
        known = {"localhost", settings.host.lower(), *settings.allowed_hosts}
        return name in known or name.endswith(".localhost")


def _is_own_page(request: Request, host: str, settings: Settings) -> bool:
    """Or no page at all. Browsers say of each such request from which origin it comes, or at least whether another."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
    return origin in settings.cors_origins or origin.partition("://")[2] == host.lower()

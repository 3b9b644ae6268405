"""Requests without an API key: whether a key is needed, and who is served without one.

A key is always needed where the settings say so, else from the first key on. Before, only callers on this host are
served. An API on loopback relies on nobody else reaching it, but a browser on this host can be made to send requests:
through a name that means 127.0.0.1 once the page is loaded (DNS rebinding), or through a request whose response the
page can't read but which takes effect. And a proxy makes everybody a caller on this host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
import socket
import time

from fastapi import Request

from dyno.errors import StoreUnavailable
from dyno.settings import Settings
from dyno.store.api_keys import ApiKeys
from service.problems import HostNotAllowed, OriginNotAllowed, ProxyNotAllowed


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


FRESH_S = 1.0  # so many seconds after the first key was made, all processes ask for one
PATIENCE_S = 0.5  # with a store that says nothing, while what it said last may be believed
BELIEVED_S = 2.0  # that no key is needed: meanwhile the first one may have been made


class KeyGate:
    """Looks once a second at most, however many ask, and not at all while nobody does.

    Once it has seen keys it opens only where the store says so in words (`ApiKeys.opened`), not where it knows of none:
    one that was restarted without its data doesn't.
    """

    def __init__(self, keys: ApiKeys, *, always_closed: bool) -> None:
        self._keys, self._always = keys, always_closed
        self._closed: bool | None = None
        self._looked_s = -math.inf
        self._look: asyncio.Task[None] | None = None

    async def closed(self, *, while_away: bool = False) -> bool:
        """As it was a second ago at most. While the store is away: closed, if it was before.

        Raises StoreUnavailable where it isn't known, nor was within two seconds that it is open; `while_away`: however
        long ago that was.
        """
        if self._always:
            return True
        if time.monotonic() - self._looked_s >= FRESH_S:
            look = self._looking()
            await asyncio.wait((look,), timeout=PATIENCE_S)
            if not self._is_known(while_away):
                await asyncio.wait((look,))
            if look.done():
                look.result()
        if self._closed is None or not self._is_known(while_away):
            raise StoreUnavailable("whether a key is needed isn't known: Redis can't be used now")
        return self._closed

    def _is_known(self, while_away: bool) -> bool:
        if self._closed is False and not while_away:
            return time.monotonic() - self._looked_s < BELIEVED_S
        return self._closed is not None

    def _looking(self) -> asyncio.Task[None]:
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._do_look())
        return self._look

    async def _do_look(self) -> None:
        begun_s = time.monotonic()
        try:
            closed = await self._keys.any()
            if self._closed and not closed:
                closed = not await self._keys.opened()
        except StoreUnavailable:
            return  # whoever asked needs the store, too, and is told, or needs none
        self._closed, self._looked_s = closed, begun_s


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+?)\.?(:\d{1,5})?", re.IGNORECASE)
_CHANGES_NOTHING = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_PROXIES = re.compile(r"forwarded|via|x-forwarded-.+|x-real-ip")
_FIRST_A_KEY = "without keys the API serves its own host alone; first make one there, with `dyno keys create`"


def check_anonymous(request: Request, settings: Settings) -> None:
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

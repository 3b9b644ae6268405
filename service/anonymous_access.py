"""Requests without an API key: whether a key is needed, and which clients are served without one.

A key is always needed if the settings demand one; otherwise it is needed as soon as the first key exists. Until then
the API serves only clients on its own host. Other hosts can't reach an API on loopback, but a foreign web page can
make a browser on this host send requests. The page's host name may resolve to 127.0.0.1 after the page was loaded (DNS
rebinding), or a request may take effect even if the page can't read the response. Behind a proxy, clients look local.
"""

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
    """Whether `host`, an address or a name, resolves to loopback addresses only. False for an unresolvable name."""
    try:
        addresses = {str(address[4][0]) for address in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(addresses) and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def needs_keys(settings: Settings) -> bool:
    """Whether every request needs a key, even before the first key exists."""
    return settings.require_keys or (not settings.allow_unauthenticated and not is_loopback(settings.host))


FRESH_S = 1.0  # how long to reuse the store's answer: every process demands keys within 1 s of the first key
PATIENCE_S = 0.5  # how long to wait for the store if its previous answer may still be used
BELIEVED_S = 2.0  # how long "no key is needed" may be used: the first key may have been created meanwhile


class KeyGate:
    """Whether requests need a key now. Reads the store at most once a second, and only during a call of `closed`.

    Once keys existed, the gate opens again only if the store says so explicitly (`ApiKeys.opened`). A store without
    keys isn't enough: Redis may have restarted without its data.
    """

    def __init__(self, keys: ApiKeys, *, always_closed: bool) -> None:
        self._keys, self._always = keys, always_closed
        self._closed: bool | None = None
        self._looked_s = -math.inf
        self._look: asyncio.Task[None] | None = None

    async def closed(self, *, while_away: bool = False) -> bool:
        """Whether a key is needed, from an answer of the store that is at most one second old.

        While the store is unreachable, a closed gate stays closed. An open gate stays open for 2 s, or without a time
        limit if `while_away` is set. Raises StoreUnavailable after these 2 s, and if the store has never answered.
        """
        if self._always:
            return True
        if time.monotonic() - self._looked_s >= FRESH_S:
            before_s = self._looked_s
            await self._see(while_away)
            if self._looked_s > before_s and not self._is_known(while_away):
                await self._see(while_away)  # on a busy host, the answer was too old when it came
        if self._closed is None or not self._is_known(while_away):
            raise StoreUnavailable("Redis is unavailable, so the service can't tell whether a key is needed")
        return self._closed

    async def _see(self, while_away: bool) -> None:
        look = self._looking()
        await asyncio.wait((look,), timeout=PATIENCE_S)
        if not self._is_known(while_away):
            await asyncio.wait((look,))
        if look.done():
            look.result()

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
            return  # `closed` uses the previous answer
        self._closed, self._looked_s = closed, begun_s


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+?)\.?(:\d{1,5})?", re.IGNORECASE)
_CHANGES_NOTHING = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_PROXIES = re.compile(r"forwarded|via|x-forwarded-.+|x-real-ip")
_FIRST_A_KEY = "without keys the API serves only its own host; create a key there with `dyno keys create`"


def check_anonymous(request: Request, settings: Settings) -> None:
    """Raises HostNotAllowed, ProxyNotAllowed and OriginNotAllowed.

    With `allow_unauthenticated` every client is served, unless `allowed_hosts` limits the host names.
    """
    if settings.allow_unauthenticated and not settings.allowed_hosts:
        return
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or not _is_allowed(hosts[0], settings):
        raise HostNotAllowed(f'"{", ".join(hosts)[:100]}" is not a name of this host; {_FIRST_A_KEY}')
    if proxy := next(filter(_OF_PROXIES.fullmatch, request.headers), None):
        raise ProxyNotAllowed(f"the header {proxy} shows that the request came through a proxy; {_FIRST_A_KEY}")
    check_origin(request, settings)


def check_origin(request: Request, settings: Settings) -> None:
    """Refuse changes that a page of another origin requests: the browser adds the user's credentials to such requests.

    Raises OriginNotAllowed.
    """
    host = request.headers.get("host", "")
    if request.method not in _CHANGES_NOTHING and not _is_own_page(request, host, settings):
        raise OriginNotAllowed("a page of another origin sent this request; allow its origin in DYNO_CORS_ORIGINS")


def _is_allowed(host: str, settings: Settings) -> bool:
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match[1].strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:  # a host name; not resolved, because its owner chooses the address
        names = {"localhost", settings.host.lower(), *settings.allowed_hosts}
        return name in names or name.endswith(".localhost")


def _is_own_page(request: Request, host: str, settings: Settings) -> bool:
    """False if a page of a foreign origin sent the request. Only browsers must send Origin or Sec-Fetch-Site."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
    return origin in settings.cors_origins or origin.partition("://")[2] == host.lower()

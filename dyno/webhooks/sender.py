"""One attempt: look the name up, check every address, connect to one of those and no other, send, read the status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version

import httpx

from dyno.delivery import Ended, Outcome
from dyno.receiver import Receiver, is_public, parse, refusal
from dyno.settings import Settings
from dyno.webhooks.lookups import Lookups

MOST_ADDRESSES = 4  # of one name, tried in turn where nobody answers
CONNECT_WITHIN_S = 5.0
_DETAIL = 200

Resolve = Callable[[str, int, str], Awaitable[Sequence[str]]]  # of a host and a port, for an owner


class Sender:
    """Asks nobody's proxy, follows no redirect, and reads no more of an answer than its status."""

    def __init__(self, settings: Settings, resolve: Resolve | None = None) -> None:
        self._allowed, self._within_s = settings.webhook_allowed_hosts, settings.webhook_timeout_s
        self._resolve = resolve or Lookups().find
        self._tls = httpx.create_ssl_context()

    async def send(self, url: str, text: str, headers: Mapping[str, str], owner: str = "") -> Ended:
        """POST the text, within the time limit of the settings for all of it. `owner`: an API key; "" is nobody."""
        began_s = time.monotonic()
        outcome, status_code, detail = await self._outcome(parse(url), text.encode(), headers, owner)
        took_s = round(time.monotonic() - began_s, 3)
        return Ended(outcome=outcome, status_code=status_code, detail=detail, duration_s=took_s)

    async def _outcome(
        self, receiver: Receiver, body: bytes, headers: Mapping[str, str], owner: str
    ) -> tuple[Outcome, int | None, str | None]:
        if (refused := refusal(receiver, self._allowed)) is not None:
            return Outcome.BLOCKED, None, refused
        try:
            async with asyncio.timeout(self._within_s):
                addresses = await self._resolve(receiver.host, receiver.port, owner)
                if not receiver.is_allowed(self._allowed) and not all(map(is_public, addresses)):
                    return Outcome.BLOCKED, None, f"{receiver.host} leads to an address that is not public"
                status_code = await self._first_answer(receiver, addresses, body, headers)
        except (TimeoutError, httpx.TimeoutException):
            return Outcome.TIMEOUT, None, f"no answer within {self._within_s:g} s"
        except (httpx.HTTPError, OSError, UnicodeError) as error:
            return Outcome.UNREACHABLE, None, str(error)[:_DETAIL]
        if not httpx.codes.is_success(status_code):
            return Outcome.REFUSED, status_code, f"the receiver answered {status_code}"
        return Outcome.DELIVERED, status_code, None

    async def _first_answer(
        self, receiver: Receiver, addresses: Sequence[str], body: bytes, headers: Mapping[str, str]
    ) -> int:
        *others, last = addresses[:MOST_ADDRESSES]
        for address in others:
            try:
                return await self._answer(receiver, address, body, headers)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._answer(receiver, last, body, headers)

    async def _answer(self, receiver: Receiver, address: str, body: bytes, headers: Mapping[str, str]) -> int:
        """To the address itself, with the host's name where that is asked for and in the check of its certificate.

        A client for each: one that kept connections would know them by address alone, whatever name they are for.
        """
        url = httpx.URL(
            scheme=receiver.scheme, host=address, port=receiver.port, raw_path=receiver.path.encode("ascii")
        )
        known = {"Host": receiver.authority, "Content-Type": "application/json", "User-Agent": _user_agent()}
        limits = httpx.Timeout(self._within_s, connect=CONNECT_WITHIN_S)
        async with (
            httpx.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False, timeout=limits) as client,
            client.stream(
                "POST",
                url,
                content=body,
                headers={**known, **headers},
                extensions={"sni_hostname": receiver.host},
            ) as answer,
        ):
            return answer.status_code


def _user_agent() -> str:
    return f"Dyno/{version('tensordyno')}"

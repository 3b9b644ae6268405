"""Deliver webhooks: sign the event of a done job, POST it, record how each attempt ended.

`WebhookDeliverer` takes due deliveries from the store, a few at once. `WebhookSender` makes one attempt: it looks up
the name, checks every address, connects only to a checked address, sends, and reads the status.

Signatures follow Standard Webhooks. If all keys shared a secret, a receiver of one API key could forge events for
another key's receivers. So each key's secret is derived from the deployment's secret, which never leaves the
deployment. Derived secrets need no storage and are the same in every API process.

A name lookup blocks its thread until the name server responds, and the thread can't be stopped. `Lookups` therefore
limits these threads, in all and per API key, and counts a thread until its lookup returns. They are daemon threads, so
they don't keep the process from exiting.
"""

import asyncio
import base64
import contextlib
import hmac
import logging
import random
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from threading import Thread

import httpx
from pydantic import SecretStr
from standardwebhooks import Webhook

from dyno import asyncio_tasks, errors
from dyno.models.webhook import DeliveryStatus, Ended, Outcome, delivery_of, payload_of
from dyno.settings import SECRET_PREFIX, Settings
from dyno.store.jobs import Jobs
from dyno.store.pipelining import PipeliningRedis
from dyno.store.webhooks import DeliveryQueue, LeasedDelivery
from dyno.webhook_url import WebhookUrl, is_public_address, parse_webhook_url, reject_reason

log = logging.getLogger(__name__)

_PURPOSE = "dyno webhooks of "


def owner_secret(deployment: SecretStr, owner: str | None) -> str:
    """The secret for the owner's receivers. `owner`: None for jobs that were submitted without a key."""
    key = base64.b64decode(deployment.get_secret_value().removeprefix(SECRET_PREFIX))
    derived = hmac.digest(key, f"{_PURPOSE}{owner or ''}".encode(), "sha256")
    return SECRET_PREFIX + base64.b64encode(derived).decode()


def signature_headers(secret: str, message_id: str, at_s: float, text: str) -> Mapping[str, str]:
    """The three signature headers for `text`, sent at `at_s` (seconds since 1970)."""
    at = datetime.fromtimestamp(int(at_s), UTC)
    signature = Webhook(secret).sign(message_id, at, text)
    return {"webhook-id": message_id, "webhook-timestamp": str(int(at_s)), "webhook-signature": signature}


MAX_LOOKUPS = 64  # twice the number of attempts, since a thread that hangs outlives its attempt
MAX_LOOKUPS_PER_OWNER = 16

Addresses = Sequence[str]
LookUp = Callable[[str, int], Addresses]


def addresses_of(host: str, port: int) -> Addresses:
    """The host's addresses in the system's order. Raises OSError or UnicodeError if the host has none."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


class Lookups:
    """The name lookups of one event loop. `look_up` may block."""

    def __init__(
        self, look_up: LookUp = addresses_of, most: int = MAX_LOOKUPS, most_for_owner: int = MAX_LOOKUPS_PER_OWNER
    ) -> None:
        self._look_up, self._most, self._most_for_owner = look_up, most, most_for_owner
        self._running: Counter[str] = Counter()
        self._over = asyncio.Event()

    async def find(self, host: str, port: int, owner: str) -> Addresses:
        """Wait for a free thread, then return the result of `look_up` or raise its error. `owner`: an API key, or ""
        for jobs without an owner, which may use all threads."""
        while not self._has_room(owner):
            await self._over.wait()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Addresses] = loop.create_future()

        def report(outcome: Addresses | Exception) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._end, owner, future, outcome)

        self._running[owner] += 1
        try:
            Thread(target=_run, args=(partial(self._look_up, host, port), report), name="lookup", daemon=True).start()
        except RuntimeError as error:  # the process has reached its thread limit
            self._end(owner, future, OSError(str(error)))
        return await future

    def _has_room(self, owner: str) -> bool:
        of_owner = self._running[owner] if owner else 0
        return self._running.total() < self._most and of_owner < self._most_for_owner

    def _end(self, owner: str, future: asyncio.Future[Addresses], outcome: Addresses | Exception) -> None:
        self._running -= Counter((owner,))
        self._over.set()
        self._over.clear()
        if future.done():  # canceled: its attempt has ended
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _run(look_up: Callable[[], Addresses], report: Callable[[Addresses | Exception], None]) -> None:
    outcome: Addresses | Exception
    try:
        outcome = look_up()
    except Exception as error:  # noqa: BLE001 - raised again in the task that waits for it
        outcome = error
    report(outcome)


MAX_ADDRESSES = 4  # addresses of one name that are tried in turn until one accepts the connection
CONNECT_WITHIN_S = 5.0
LOOKUP_S = 0.5  # time until Dyno reports any unusable name; longer than most lookups
_DETAIL = 200

Resolve = Callable[[str, int, str], Awaitable[Sequence[str]]]  # host, port, owner -> addresses


class WebhookSender:
    """Makes one attempt per call. It uses no proxy, follows no redirect, and reads only the response's status."""

    def __init__(self, settings: Settings, resolve: Resolve | None = None) -> None:
        self._allowed, self._within_s = settings.webhook_allowed_hosts, settings.webhook_timeout_s
        self._resolve = resolve or Lookups().find
        self._tls = httpx.create_ssl_context()

    async def send(self, url: str, text: str, headers: Mapping[str, str], owner: str = "") -> Ended:
        """POST the text within `webhook_timeout_s`, name lookup included. `owner`: an API key, or "" without one."""
        began_s = time.monotonic()
        outcome, status_code, detail = await self._outcome(parse_webhook_url(url), text.encode(), headers, owner)
        took_s = round(time.monotonic() - began_s, 3)
        return Ended(outcome=outcome, status_code=status_code, detail=detail, duration_s=took_s)

    async def _outcome(
        self, receiver: WebhookUrl, body: bytes, headers: Mapping[str, str], owner: str
    ) -> tuple[Outcome, int | None, str | None]:
        if (refused := reject_reason(receiver, self._allowed)) is not None:
            return Outcome.BLOCKED, None, refused
        try:
            async with asyncio.timeout(self._within_s):
                addresses = await self._addresses(receiver, owner)
                status_code = await self._first_answer(receiver, addresses, body, headers)
        except (TimeoutError, httpx.TimeoutException):
            return Outcome.TIMEOUT, None, f"no response within {self._within_s:g} s"
        except (httpx.HTTPError, OSError, UnicodeError) as error:
            return Outcome.UNREACHABLE, None, str(error)[:_DETAIL]
        if not httpx.codes.is_success(status_code):
            return Outcome.REFUSED, status_code, f"the receiver answered {status_code}"
        return Outcome.DELIVERED, status_code, None

    async def _addresses(self, receiver: WebhookUrl, owner: str) -> Sequence[str]:
        """The receiver's addresses. Raises OSError unless Dyno may call all of them.

        Neither the error nor its delay may tell a caller which names exist inside the operator's network.
        """
        if receiver.is_allowed(self._allowed):
            return await self._resolve(receiver.host, receiver.port, owner)
        began_s = time.monotonic()
        try:
            addresses = await self._resolve(receiver.host, receiver.port, owner)
            if all(map(is_public_address, addresses)):
                return addresses
            reason = "an address isn't public"
        except (OSError, UnicodeError) as error:
            reason = str(error)
        log.info("the webhook receiver %s can't be called: %s", receiver.host, reason)
        await asyncio.sleep(began_s + LOOKUP_S - time.monotonic())
        raise OSError(f"{receiver.host} doesn't resolve to public addresses only")

    async def _first_answer(
        self, receiver: WebhookUrl, addresses: Sequence[str], body: bytes, headers: Mapping[str, str]
    ) -> int:
        *others, last = addresses[:MAX_ADDRESSES]
        for address in others:
            try:
                return await self._answer(receiver, address, body, headers)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._answer(receiver, last, body, headers)

    async def _answer(self, receiver: WebhookUrl, address: str, body: bytes, headers: Mapping[str, str]) -> int:
        """POST to the address itself. The Host header, SNI and the certificate check use the receiver's name.

        Each request has its own HTTP client, since a connection pool would share connections between names that have
        the same address.
        """
        url = httpx.URL(
            scheme=receiver.scheme, host=address, port=receiver.port, raw_path=receiver.path.encode("ascii")
        )
        agent = f"Dyno/{version('tensordyno')}"
        own_headers = {"Host": receiver.authority, "Content-Type": "application/json", "User-Agent": agent}
        limits = httpx.Timeout(self._within_s, connect=CONNECT_WITHIN_S)
        async with (
            httpx.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False, timeout=limits) as client,
            client.stream(
                "POST",
                url,
                content=body,
                headers={**own_headers, **headers},
                extensions={"sni_hostname": receiver.host},
            ) as answer,
        ):
            return answer.status_code


MAX_ATTEMPTS_AT_ONCE = 32
MAX_ATTEMPTS_PER_OWNER = 8  # so that an API key with many slow receivers leaves places for other keys
MAX_ATTEMPTS_PER_RECEIVER = 4  # so that a slow receiver leaves places for other receivers
JITTER = 0.1  # so that deliveries that failed at the same time aren't retried at the same time
GONE = 410
_OWN_FAULT = "Dyno could not make this attempt; see its log"


class WebhookDeliverer:
    """Delivers until it is canceled. Another deliverer then retries the attempts in progress, as after a crash."""

    def __init__(self, client: PipeliningRedis, settings: Settings, secret: SecretStr, sender: WebhookSender) -> None:
        self._settings, self._secret, self._sender = settings, secret, sender
        self._outbox, self._jobs = DeliveryQueue(client, settings), Jobs(client, settings)
        self._running: Counter[str] = Counter()  # attempts by receiver
        self._of_owners: Counter[str] = Counter()
        self._freed = asyncio.Event()
        self._failing = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as attempts:
            while True:
                await self._begin(attempts)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.webhook_every_s):
                        await self._freed.wait()
                self._freed.clear()

    async def _begin(self, attempts: asyncio.TaskGroup) -> None:
        """Start as many attempts as the limits allow."""
        try:
            while self._running.total() < MAX_ATTEMPTS_AT_ONCE:
                busy = _at_limit(self._running, MAX_ATTEMPTS_PER_RECEIVER)
                greedy = [
                    owner for owner in _at_limit(self._of_owners, MAX_ATTEMPTS_PER_OWNER) if owner
                ]  # jobs without an owner have no such limit
                leased = await self._outbox.take(receivers=busy, owners=greedy)
                if leased is None:
                    break
                self._running[leased.receiver] += 1
                self._of_owners[leased.owner] += 1
                attempts.create_task(self._attempt(leased))
            self._failing = False
        except Exception as error:  # noqa: BLE001 - whatever the error is, deliveries must go on after it
            if not self._failing:
                log.warning("can't deliver webhooks for now: %s: %s", type(error).__name__, error)
            self._failing = True

    async def _attempt(self, leased: LeasedDelivery) -> None:
        try:
            await self._settle(leased, await self._make(leased))
        except errors.UnknownJob:  # the job was deleted during the attempt, and its delivery with it
            pass
        except errors.StoreUnavailable as error:
            log.warning("can't record how a delivery for %s ended, so it will be retried: %s", leased.job_id, error)
        except Exception:
            log.exception("can't record how a delivery for %s ended", leased.job_id)
        finally:
            self._running -= Counter((leased.receiver,))  # subtraction also drops receivers with a count of zero
            self._of_owners -= Counter((leased.owner,))
            self._freed.set()

    async def _make(self, leased: LeasedDelivery) -> Ended:
        """Send the event. Converts unexpected errors to an outcome, so that the next attempt follows after a pause."""
        began_s = time.monotonic()
        try:
            return await self._send(leased)
        except (errors.StoreUnavailable, errors.UnknownJob):
            raise
        except Exception as error:
            log.exception("an attempt to deliver the webhook of %s failed", leased.job_id)
            detail = str(error) if isinstance(error, errors.RecordUnreadable) else _OWN_FAULT
            return Ended(outcome=Outcome.ERROR, detail=detail, duration_s=round(time.monotonic() - began_s, 3))

    async def _send(self, leased: LeasedDelivery) -> Ended:
        job = await self._jobs.get(leased.job_id)
        if job.spec.webhook is None:
            raise RuntimeError("a delivery of a job without a webhook")
        text = payload_of(job)
        headers = signature_headers(owner_secret(self._secret, job.owner), delivery_of(job.id), leased.at_s, text)
        return await self._sender.send(job.spec.webhook.url, text, headers, leased.owner)

    async def _settle(self, leased: LeasedDelivery, ended: Ended) -> None:
        status, again_in_s = self._next(leased, ended)
        if status is DeliveryStatus.FAILED:
            log.warning("the webhook of %s was not delivered: %s", leased.job_id, ended.outcome)
        await self._outbox.settle(leased, ended, status, again_in_s)

    def _next(self, leased: LeasedDelivery, ended: Ended) -> tuple[DeliveryStatus, float]:
        if ended.outcome is Outcome.DELIVERED:
            return DeliveryStatus.DELIVERED, 0
        pauses_s = self._settings.webhook_retry_s
        if ended.status_code == GONE or leased.tried > len(pauses_s):
            return DeliveryStatus.FAILED, 0
        return DeliveryStatus.PENDING, pauses_s[leased.tried - 1] * random.uniform(1 - JITTER, 1 + JITTER)


def _at_limit(running: Counter[str], bound: int) -> list[str]:
    """The names that have reached the maximum number of attempts."""
    return [name for name, number in running.items() if number >= bound]


def webhook_deliverer(client: PipeliningRedis, settings: Settings) -> contextlib.AbstractAsyncContextManager[None]:
    """Run a deliverer during the block, unless there is no secret to sign with."""
    if settings.webhook_secret is None:
        return contextlib.nullcontext()
    return asyncio_tasks.running(
        WebhookDeliverer(client, settings, settings.webhook_secret, WebhookSender(settings)).run()
    )

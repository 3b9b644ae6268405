"""The thread in every API and worker process that keeps the store going: reap, reconcile, drop what expired."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import redis

from dyno.errors import StoreUnavailable
from dyno.settings import Settings
from dyno.store.connect import sync_client
from dyno.store.expiry import drop_expired
from dyno.store.reap import Outlook, reap, redis_now_s
from dyno.store.reconcile import queues_to_wake

STOP_WITHIN_S = 10.0  # an answer and a wake-up that are on their way may take this long

log = logging.getLogger(__name__)


class Upkeep:
    """Runs every `settings.reap_every_s`, from `start()` until `stop()`. All it does may be done by many at once."""

    def __init__(
        self,
        settings: Settings,
        wake: Callable[[str], object],
        chores: Mapping[str, Callable[[redis.Redis], object]] | None = None,
    ) -> None:
        """`wake` sends one wake-up for the named queue; it may raise StoreUnavailable. `chores` are done beside."""
        self._settings = settings
        self._wake = wake
        self._chores = {"dropping what expired": lambda client: drop_expired(client, settings), **(chores or {})}
        self._guard = Outlook(settings.lease_s)
        self._stop = threading.Event()
        self._failing: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WITHIN_S)

    def _run(self) -> None:
        with sync_client(self._settings) as client:
            while not self._stop.is_set():
                self._attempt(client)
                self._stop.wait(self._settings.reap_every_s)

    def _attempt(self, client: redis.Redis) -> None:
        """Each part goes on without the others: a full Redis refuses wake-ups, and lost jobs still have to be found."""
        try:
            self._reap(client)
        except StoreUnavailable as error:
            self._guard.away()
            self._report("reaping", error)
            return
        except Exception:
            log.exception("lost jobs can't be looked for; the upkeep goes on")
        else:
            self._failing.discard("reaping")
        waiting: list[str] = []
        self._part("looking for queues to wake", lambda: waiting.extend(queues_to_wake(client, self._settings)))
        for queue in waiting:
            self._part(f"waking {queue}", partial(self._wake, queue))
        for name, chore in self._chores.items():
            self._part(name, partial(chore, client))

    def _part(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except StoreUnavailable as error:
            self._report(name, error)
        except Exception:
            log.exception("%s failed; the upkeep goes on", name)
        else:
            self._failing.discard(name)

    def _report(self, name: str, error: StoreUnavailable) -> None:
        """Once, until it works again: an outage of hours would fill the log."""
        if name not in self._failing:
            log.warning("no upkeep until Redis is back (%s): %s", name, error.detail)
        self._failing.add(name)

    def _reap(self, client: redis.Redis) -> None:
        redis_s, now_s = redis_now_s(client, self._settings), time.monotonic()
        self._guard.seen(redis_s, now_s)
        if self._guard.clear(now_s):
            for job_id in reap(client, self._settings):
                log.warning("%s lost its worker", job_id)

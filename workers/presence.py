"""Says every few seconds which device and worker live here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import redis

from dyno.devices.device import Device
from dyno.errors import StoreUnavailable
from dyno.models.inventory import WorkerRecord, WorkerState
from dyno.models.job import Holder
from dyno.settings import Settings
from dyno.store.fleet import publish, withdraw
from workers.log import event

_BEATS_PER_TTL = 3  # two may get lost before the device counts as gone


class Presence:
    """Publishes from a thread of its own, and at once when something changes. `device()` is what is known of it now."""

    def __init__(
        self, client: redis.Redis, settings: Settings, worker: WorkerRecord, device: Callable[[], Device]
    ) -> None:
        self._client, self._settings, self._worker, self._device = client, settings, worker, device
        self._changed, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._go_on, name="presence", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show(self, state: WorkerState, job: str | None = None, held_by: Holder | None = None) -> None:
        self._worker = self._worker.model_copy(update={"state": state, "job": job, "held_by": held_by})
        self._changed.set()

    def stop(self) -> None:
        """Take the device off the list. Returns when that is written, or Redis couldn't be reached."""
        self._ended = True
        self._changed.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._ended:
            self._write(lambda: publish(self._client, self._settings, self._device(), self._now()))
            self._changed.wait(self._settings.device_ttl_s / _BEATS_PER_TTL)
            self._changed.clear()
        self._write(lambda: withdraw(self._client, self._settings, self._worker))

    def _now(self) -> WorkerRecord:
        return self._worker.model_copy(update={"last_heartbeat": datetime.now(UTC)})

    def _write(self, action: Callable[[], None]) -> None:
        try:
            action()
        except StoreUnavailable as error:
            event("presence-not-written", logging.WARNING, why=error.detail)

"""The Celery side of a worker: it hears wake-ups on exactly its device's queues, and calls the supervisor."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.worker import WorkController, state

from dyno.devices.device import Device
from dyno.settings import Settings
from dyno.store.queues import queues_served
from dyno.wake import WAKE_TASK, app, celery_queue
from workers.log import event


class Consumer:
    """Runs on the main thread until a signal. `serve` is called on ready and for each wake-up, never twice at once."""

    def __init__(self, settings: Settings, device: Device, name: str, serve: Callable[[], int]) -> None:
        self._serve = serve
        self._first = threading.Thread(target=serve, name="first-serve", daemon=True)
        signals.setup_logging.connect(_leave_logging_alone, weak=False)
        application = app(settings)
        application.conf.task_queues = [celery_queue(queue) for queue in queues_served(device)]
        application.task(name=WAKE_TASK)(self._on_wake)
        # The controller without Celery's own signal handlers: a worker here has a runner to end and a job to give back.
        self._controller = WorkController(
            app=application,
            hostname=name,
            ready_callback=self._on_ready,
            loglevel=logging.WARNING,
            without_gossip=True,  # workers tell each other nothing: the store knows who lives
            without_mingle=True,  # a start-up exchange of revoked tasks, which there are none of; it costs a second
            without_heartbeat=True,  # events nobody listens to, in the middle of a benchmark
        )

    def run(self) -> None:
        """Returns after `end`, once the job at hand is finished or handed back."""
        self._controller.start()
        if self._first.ident is not None:
            self._first.join()

    def end(self) -> None:
        """Hear no more wake-ups. Safe to call from a signal handler; takes effect within about a second."""
        state.should_stop = 0

    def _on_ready(self, _: Any) -> None:
        event("ready")
        if self._first.ident is None:  # and not again after each reconnection
            self._first.start()

    def _on_wake(self, queue: str) -> None:
        event("woken", queue=queue)
        self._serve()


def _leave_logging_alone(**_: Any) -> None:
    """Connected to `setup_logging`: Celery then configures none."""


def on_signals(handle: Callable[[signal.Signals], None]) -> None:
    """Let `handle` see TERM and INT; called on the main thread, between two instructions of whatever runs there."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: handle(signal.Signals(number)))

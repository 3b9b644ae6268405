"""The Celery consumer of a worker: receives wake-ups on its device's queues and calls the supervisor."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.concurrency.thread import TaskPool
from celery.worker import WorkController, state
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.asynchronous import get_event_loop

from dyno.celery_app import WAKE_TASK, app, celery_queue, send_wake_up
from dyno.devices.device import Device
from dyno.errors import StoreUnavailable
from dyno.settings import Settings
from dyno.store.placement import queues_served
from workers.log import event


class _Pool(TaskPool):  # type: ignore[misc]
    """The threads pool, rousing Celery's loop when a task is over.

    With prefetching disabled a busy worker asks for no message; the loop noticed that it may ask again only at its
    next turn, up to 1 s later (measured: submit to first operation 0.6 s median, 0.1 s with this).
    """

    def on_apply(self, *args: Any, **kwargs: Any) -> Any:
        applied = super().on_apply(*args, **kwargs)
        applied.f.add_done_callback(_rouse)
        return applied


class _Connection(CeleryConsumer):  # type: ignore[misc]
    """Celery's consumer, trying to reconnect every second or two instead of after up to 30 s.

    And calling `init_callback` after every reconnect, too: a wake-up sent meanwhile may be lost.
    """

    init_callback: Any

    def on_ready(self) -> None:
        callback = self.init_callback
        super().on_ready()  # calls it, and forgets it
        self.init_callback = callback

    def ensure_connected(self, conn: Any) -> Any:
        def missed(error: Exception, interval_s: float) -> None:
            event("broker-away", logging.WARNING, why=str(error), again_s=interval_s)

        conn.ensure_connection(missed, interval_start=1, interval_step=1, interval_max=2, callback=state.maybe_shutdown)
        self.first_connection_attempt = False
        return conn


class Consumer:
    """Runs on the main thread until `end`. `serve` is called for each wake-up, and for one of its own on ready."""

    def __init__(self, settings: Settings, device: Device, name: str, serve: Callable[[], int]) -> None:
        self._settings, self._serve = settings, serve
        self._queues = queues_served(device)
        signals.setup_logging.connect(_leave_logging_alone, weak=False)
        application = app(settings)
        application.conf.task_queues = [celery_queue(queue) for queue in self._queues]
        application.conf.worker_consumer = _Connection
        application.conf.broker_channel_error_retry = True  # a full or read-only Redis is no reason to end either
        application.task(name=WAKE_TASK)(self._on_wake)
        # The bare controller, without Celery's signal handlers: this worker has a runner to end and a job to hand back.
        self._controller = WorkController(
            app=application,
            hostname=name,
            pool=_Pool,
            concurrency=1,  # one device, one benchmark
            ready_callback=self._on_ready,
            loglevel=logging.WARNING,
            without_gossip=True,  # workers tell each other nothing: the store knows who lives
            without_mingle=True,  # a start-up exchange of revoked tasks, which there are none of; it costs a second
            without_heartbeat=True,  # events nobody listens to, in the middle of a benchmark
        )

    def run(self) -> int:
        """Returns the exit code after `end`, once the job at hand is finished or handed back; not 0 after a crash."""
        self._controller.start()
        return int(self._controller.exitcode or 0)

    def end(self, exit_code: int = 0) -> None:
        """Hear no more wake-ups. Safe to call from a signal handler; takes effect within about a second."""
        state.should_stop = exit_code or state.should_stop or 0  # a TERM afterwards doesn't make it a clean end

    def _on_ready(self, _: Any) -> None:
        """Connected, or connected again: jobs may have waited for that, so call ourselves."""
        event("ready")
        try:
            send_wake_up(self._settings, self._queues[0])
        except StoreUnavailable as error:  # gone again; the next connection, or the reconciler, does it
            event("wake-failed", logging.WARNING, why=error.detail)

    def _on_wake(self, queue: str) -> None:
        event("woken", queue=queue)
        self._serve()


def _rouse(_: object) -> None:
    loop = get_event_loop()
    if loop is not None:
        loop.call_soon(_nothing)  # type: ignore[no-untyped-call]


def _nothing() -> None:
    """The turn of the loop is what counts."""


def _leave_logging_alone(**_: Any) -> None:
    """Connected to `setup_logging`: Celery then configures none."""


def on_signals(handle: Callable[[signal.Signals], None]) -> None:
    """Let `handle` see TERM and INT; called on the main thread, between two instructions of whatever runs there."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: handle(signal.Signals(number)))

"""The Celery consumer of a worker: it receives wake-ups on its device's queues and calls the supervisor."""

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
from dyno.errors import StoreUnavailable
from dyno.logging import event
from dyno.models.device import Device
from dyno.settings import Settings
from dyno.store.placement import queues_served


class _Pool(TaskPool):  # type: ignore[misc]
    """Celery's thread pool, which also wakes Celery's event loop when a task ends.

    With prefetching disabled, a busy worker requests no messages. If no event woke the loop, it would request the next
    message up to 1 s late. Measured median from submit to first operation: 0.6 s without this class, 0.1 s with it.
    """

    def on_apply(self, *args: Any, **kwargs: Any) -> Any:
        applied = super().on_apply(*args, **kwargs)
        applied.f.add_done_callback(_rouse)
        return applied


class _Connection(CeleryConsumer):  # type: ignore[misc]
    """Celery's consumer, changed to reconnect within 2 s instead of up to 30 s.

    It also calls `init_callback` after every reconnect, because wake-ups sent during the disconnection may be lost.
    """

    init_callback: Any

    def on_ready(self) -> None:
        callback = self.init_callback
        super().on_ready()  # calls the callback and resets it
        self.init_callback = callback

    def ensure_connected(self, conn: Any) -> Any:
        def missed(error: Exception, interval_s: float) -> None:
            event("broker-away", logging.WARNING, why=str(error), again_s=interval_s)

        conn.ensure_connection(missed, interval_start=1, interval_step=1, interval_max=2, callback=state.maybe_shutdown)
        self.first_connection_attempt = False
        return conn


class Consumer:
    """Runs on the main thread until `end` is called.

    Calls `serve` for each wake-up, and sends itself a wake-up after each connect.
    """

    def __init__(self, settings: Settings, device: Device, name: str, serve: Callable[[], int]) -> None:
        self._settings, self._serve = settings, serve
        self._queues = queues_served(device)
        signals.setup_logging.connect(_leave_logging_alone, weak=False)
        application = app(settings)
        application.conf.task_queues = [celery_queue(queue) for queue in self._queues]
        application.conf.worker_consumer = _Connection
        application.conf.broker_channel_error_retry = True  # continue even if Redis is full or read-only
        application.task(name=WAKE_TASK)(self._on_wake)
        # Without Celery's signal handlers: on a signal, this worker has to stop a runner and hand back a job.
        self._controller = WorkController(
            app=application,
            hostname=name,
            pool=_Pool,
            concurrency=1,  # one device, one benchmark
            ready_callback=self._on_ready,
            loglevel=logging.WARNING,
            without_gossip=True,  # the store tracks live workers
            without_mingle=True,  # mingling takes 1 s at startup, to exchange revoked tasks; Dyno has none
            without_heartbeat=True,  # Dyno doesn't use these events, and sending them would disturb benchmarks
        )

    def run(self) -> int:
        """Run until `end` is called and the current job is finished or handed back. Returns the exit code."""
        self._controller.start()
        return int(self._controller.exitcode or 0)

    def end(self, exit_code: int = 0) -> None:
        """Stop receiving wake-ups. Safe to call from a signal handler; takes effect within about a second."""
        state.should_stop = exit_code or state.should_stop or 0  # a later TERM must not reset the exit code to 0

    def _on_ready(self, _: Any) -> None:
        """Send this worker a wake-up after each connect, because jobs may have been waiting."""
        event("ready")
        try:
            send_wake_up(self._settings, self._queues[0])
        except StoreUnavailable as error:  # disconnected again; the next connect, or maintenance, sends the wake-up
            event("wake-failed", logging.WARNING, why=error.detail)

    def _on_wake(self, queue: str) -> None:
        event("woken", queue=queue)
        self._serve()


def _rouse(_: object) -> None:
    loop = get_event_loop()
    if loop is not None:
        loop.call_soon(lambda: None)  # type: ignore[no-untyped-call] # scheduling anything wakes the loop


def _leave_logging_alone(**_: Any) -> None:
    """An empty receiver: while a receiver is connected to `setup_logging`, Celery doesn't configure logging."""


def on_signals(handle: Callable[[signal.Signals], None]) -> None:
    """Call `handle` for TERM and INT. Python calls it on the main thread, between any two instructions."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: handle(signal.Signals(number)))

"""The Celery app that the API and workers share, and the wake-ups sent through it.

A message is a wake-up and carries no job: jobs are in the store. Losing, repeating or reordering messages therefore
changes nothing, and no setting here has to protect a message.
"""

import contextlib
import re
from functools import lru_cache
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import redis
from celery import Celery
from kombu.entity import Exchange, Queue
from kombu.exceptions import OperationalError

from dyno.errors import StoreUnavailable, StoreUnfit
from dyno.settings import Settings
from dyno.store.redis import ANSWER_TIMEOUT_S, CHECK_IDLE_AFTER_S, CONNECT_TIMEOUT_S, store_errors, sync_client

WAKE_TASK: Final = "dyno.wake"
WAKE_UP_TTL_S: Final = 60  # removes wake-ups from queues without workers; maintenance repeats lost wake-ups

_CONFIG: Final[dict[str, Any]] = {
    "result_backend": None,  # results are in the store; Celery's would take 2.7 kB per message
    "task_ignore_result": True,  # wake-ups have no result
    "task_acks_late": False,  # with late acks, Redis would redeliver a wake-up after hours and start a job's work twice
    "worker_prefetch_multiplier": 1,  # an idle worker can't see a wake-up that a busy worker has prefetched
    "worker_disable_prefetch": True,  # with only a multiplier of 1, a busy worker would still prefetch a wake-up
    "worker_concurrency": 1,  # one device, one benchmark
    "worker_pool": "threads",  # `solo` ignores TERM and lost connections while a benchmark runs
    "worker_cancel_long_running_tasks_on_connection_loss": False,  # a benchmark goes on while Redis is away
    "broker_connection_retry_on_startup": True,  # a worker may start before Redis
    "broker_connection_max_retries": None,  # a worker reconnects after any outage
    "broker_connection_timeout": CONNECT_TIMEOUT_S,  # the transport's own default is 4 s
    "broker_heartbeat": 0,  # Redis has no heartbeats; leases show which workers are alive
    "task_create_missing_queues": False,  # a typo would create a queue that no worker serves
    "task_default_queue": "any",  # other apps may use Celery's default, `celery`
    "task_serializer": "json",
    "accept_content": ["json"],  # pickle executes what it reads
    "worker_hijack_root_logger": False,  # each process sets up its own logging
    "worker_send_task_events": False,  # events are in the store
    "worker_enable_remote_control": False,  # it would be a second control channel, with traffic during benchmarks
    "enable_utc": True,
}
_TRANSPORT_OPTIONS: Final[dict[str, Any]] = {
    "visibility_timeout": 43200,  # no message is acknowledged late, so Celery should never restore one
    "socket_connect_timeout": CONNECT_TIMEOUT_S,  # detects a dead host before a request times out
    "health_check_interval": CHECK_IDLE_AFTER_S,  # proxies drop idle connections silently
}


def key_prefix(settings: Settings) -> str:
    """The prefix of all Celery keys, so that namespaces on one server don't wake each other's workers."""
    return f"{settings.namespace}:celery:"


def app(settings: Settings) -> Celery:
    """The Celery app for these settings. Raises StoreUnfit if no Redis is configured."""
    made = Celery("dyno", broker=_broker_url(settings), set_as_current=False)
    made.conf.update(
        _CONFIG,
        broker_transport_options=_TRANSPORT_OPTIONS | {"global_keyprefix": key_prefix(settings)},
        worker_soft_shutdown_timeout=settings.shutdown_s,  # time to finish or hand back the job
    )
    return made


def celery_queue(queue: str) -> Queue:
    """The Celery queue for wake-ups of a store queue, for senders and for workers (`task_queues`).

    Characters other than letters, digits, dots and dashes are written as their codes. Names therefore never clash with
    Celery's commas or kombu's separators, and no two queues share a name.

    The queue has the default exchange, which needs no bindings: kombu would keep bindings forever.

    Messages aren't acknowledged. A lost wake-up changes nothing, but a lost acknowledgement would block a worker: if
    Redis crashes during an acknowledgement, kombu considers the message in progress, stops reading, and never notices
    that the connection is gone.
    """
    name = re.sub(r"[^A-Za-z0-9.-]", lambda match: f"_{ord(match[0]):02x}", queue)
    return Queue(name, Exchange(""), routing_key=name, no_ack=True)  # type: ignore[no-untyped-call]


def send_wake_up(settings: Settings, queue: str) -> bool:
    """Send one wake-up to the workers that serve `queue`. Returns False if a wake-up already waits there.

    Call it only if a worker that serves `queue` is live or may be live. Blocks for a few seconds at most. Raises
    StoreUnavailable.
    """
    publisher = _publisher(settings)
    client = publisher.client
    target = celery_queue(queue)
    messages = key_prefix(settings) + target.name
    with store_errors():
        waits = client.llen(messages)
    try:
        if not waits:
            publisher.send(queue, target)
        client.pexpire(messages, WAKE_UP_TTL_S * 1000, nx=True)
    except (OperationalError, redis.RedisError, OSError) as error:
        raise StoreUnavailable(f"can't send a wake-up: {error}") from error
    return not waits


class _Publisher:
    """Sends wake-ups without kombu's retries, over a connection that stays open: a new connection takes 4 ms.

    kombu's retries reopen a connection that Redis closed, but sometimes with a closed channel (AttributeError).
    """

    def __init__(self, settings: Settings) -> None:
        self.client, self._celery = sync_client(settings), app(settings)
        # Only a sender may have a socket timeout: a consumer's connection waits for wake-ups.
        options = {**self._celery.conf.broker_transport_options, "socket_timeout": ANSWER_TIMEOUT_S}
        self._celery.conf.broker_transport_options = options
        self._kept: Any = None
        self._lock = Lock()

    def send(self, queue: str, target: Queue) -> None:
        """Send a wake-up, and retry over a new connection if the kept one fails; two wake-ups do no harm.

        Raises OSError and errors of kombu within seconds.
        """
        if not self._lock.acquire(timeout=ANSWER_TIMEOUT_S):
            raise TimeoutError("another wake-up is still being sent")
        try:
            self._send(queue, target)
        finally:
            self._lock.release()

    def _send(self, queue: str, target: Queue) -> None:
        if self._kept is not None:
            with contextlib.suppress(Exception):  # kombu raises various errors for a closed connection
                return self._send_over(self._kept, queue, target)
            self._drop()
        self._kept = self._celery.connection_for_write()
        try:
            self._kept.connect()  # retries once; `send_task` alone would retry forever
            self._send_over(self._kept, queue, target)
        except BaseException:
            self._drop()
            raise

    def _send_over(self, connection: Any, queue: str, target: Queue) -> None:
        self._celery.send_task(
            WAKE_TASK, args=[queue], queue=target, declare=[], ignore_result=True, connection=connection, retry=False
        )

    def _drop(self) -> None:
        connection, self._kept = self._kept, None
        with contextlib.suppress(Exception):
            connection.release()


@lru_cache(maxsize=8)
def _publisher(settings: Settings) -> _Publisher:
    return _Publisher(settings)


def _broker_url(settings: Settings) -> str:
    """The Redis URL in Celery's form: a socket's scheme is redis+socket, and its database is virtual_host."""
    if settings.redis_url is None:
        raise StoreUnfit("no Redis is configured: set DYNO_REDIS_URL, or start one with `dyno up`")
    parts = urlsplit(settings.redis_url)
    if parts.scheme != "unix":
        return settings.redis_url
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={database}"

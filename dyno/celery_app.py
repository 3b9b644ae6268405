"""The Celery app that API and workers share, and the wake-ups sent through it.

A message is a wake-up and carries no job: jobs are in the store. Losing, repeating or reordering messages therefore
changes nothing, and no setting here has to keep a message safe.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import redis
from celery import Celery
from kombu.entity import Exchange, Queue
from kombu.exceptions import OperationalError

from dyno.errors import StoreUnavailable, StoreUnfit
from dyno.settings import Settings
from dyno.store.redis import CHECK_IDLE_AFTER_S, CONNECT_TIMEOUT_S, store_errors, sync_client

WAKE_TASK: Final = "dyno.wake"

_CONFIG: Final[dict[str, Any]] = {
    "result_backend": None,  # results are in the store; Celery's would cost 2.7 kB for each
    "task_ignore_result": True,  # nor does anybody wait for a wake-up's
    "task_acks_late": False,  # a wake-up may be lost; late ones come back after hours, and start a job's work twice
    "worker_prefetch_multiplier": 1,  # a wake-up held by a busy worker is one that an idle worker doesn't see
    "worker_disable_prefetch": True,  # with 1, a busy worker would still hold one
    "worker_concurrency": 1,  # one device, one benchmark
    "worker_pool": "threads",  # `solo` would be deaf to TERM and to lost connections while a benchmark runs
    "worker_cancel_long_running_tasks_on_connection_loss": False,  # Redis away is no reason to stop a benchmark
    "broker_connection_retry_on_startup": True,  # a worker may start before Redis
    "broker_connection_max_retries": None,  # and outlasts any outage
    "broker_connection_timeout": CONNECT_TIMEOUT_S,  # the transport's own default is 4 s
    "broker_heartbeat": 0,  # Redis has none; leases tell who lives
    "task_create_missing_queues": False,  # a typo would make a queue that nobody serves
    "task_default_queue": "any",  # the default's name, `celery`, would be shared with other apps
    "task_serializer": "json",
    "accept_content": ["json"],  # pickle executes what it reads
    "worker_hijack_root_logger": False,  # logging is the process' own business
    "worker_send_task_events": False,  # events are in the store
    "worker_enable_remote_control": False,  # a second way in, and traffic in the middle of a benchmark
    "enable_utc": True,
}
_TRANSPORT_OPTIONS: Final[dict[str, Any]] = {
    "visibility_timeout": 43200,  # nothing is acknowledged late, so nothing should ever be restored
    "socket_connect_timeout": CONNECT_TIMEOUT_S,  # a dead host is noticed within a request's patience
    "health_check_interval": CHECK_IDLE_AFTER_S,  # idle connections die at proxies without a word
}


def key_prefix(settings: Settings) -> str:
    """Of all of Celery's keys, so that namespaces sharing a server don't wake each other."""
    return f"{settings.namespace}:celery:"


def app(settings: Settings) -> Celery:
    """The Celery app for these settings. Raises StoreUnfit where no Redis is configured."""
    made = Celery("dyno", broker=_broker_url(settings), set_as_current=False)
    made.conf.update(
        _CONFIG,
        broker_transport_options=_TRANSPORT_OPTIONS | {"global_keyprefix": key_prefix(settings)},
        worker_soft_shutdown_timeout=settings.shutdown_s,  # time to finish or hand back the job
    )
    return made


def celery_queue(queue: str) -> Queue:
    """The Celery queue for wake-ups of a store queue, to send to and to serve (`task_queues`).

    Anything but letters, digits, dots and dashes is written as its code, so that no name clashes with Celery's commas
    or kombu's separators, and no two queues share a name.

    Nothing is acknowledged, as a lost wake-up changes nothing. And a worker whose acknowledgement a crash of Redis met
    would take no further one: kombu counts that message as still at work, reads no more, and so never sees that its
    connection is gone.
    """
    name = re.sub(r"[^A-Za-z0-9.-]", lambda found: f"_{ord(found[0]):02x}", queue)
    return Queue(name, Exchange("dyno"), routing_key=name, no_ack=True)  # type: ignore[no-untyped-call]


def send_wake_up(settings: Settings, queue: str) -> bool:
    """Send one wake-up to the workers that serve `queue`, unless one waits there already. False: one did.

    Blocks for a few seconds at most. Raises StoreUnavailable.
    """
    publisher, client = _publisher(settings)
    target = celery_queue(queue)
    with store_errors():
        if client.llen(key_prefix(settings) + target.name):
            return False
    try:
        _send(publisher, queue, target)
    except (OperationalError, redis.RedisError, OSError) as error:
        raise StoreUnavailable(f"no wake-up could be sent: {error}") from error
    return True


def _send(publisher: Celery, queue: str, target: Queue) -> None:
    """By a connection of its own, without kombu's retries.

    A pooled connection that Redis left is revived by those, at times with a channel that is closed: AttributeError.
    """
    with publisher.connection_for_write() as connection:
        connection.connect()  # tries once more; `send_task` alone would try forever
        publisher.send_task(
            WAKE_TASK, args=[queue], queue=target, ignore_result=True, connection=connection, retry=False
        )


@lru_cache(maxsize=8)
def _publisher(settings: Settings) -> tuple[Celery, redis.Redis]:
    return app(settings), sync_client(settings)


def _broker_url(settings: Settings) -> str:
    """Celery's spelling: a socket's URL begins with redis+socket, and its database is called virtual_host."""
    if settings.redis_url is None:
        raise StoreUnfit("no Redis is configured: set DYNO_REDIS_URL, or start one with `dyno up`")
    parts = urlsplit(settings.redis_url)
    if parts.scheme != "unix":
        return settings.redis_url
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={database}"

"""Following what happens, over as many connections as it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx

from dyno.client.errors import ConnectionBroken, Refused
from dyno.client.events import event_of, messages
from dyno.client.transport import Transport
from dyno.events import AnyEvent, StatusEvent

SILENT_S = 45.0  # the service says every 15 s that the connection lives
PASSING = (httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.TOO_MANY_REQUESTS)
PATIENCE_S = 60.0  # without any answer
RETRY_S = 0.5


def follow(http: Transport, path: str, after: str | None, *, ends: bool) -> Iterator[AnyEvent]:
    """Each event behind `after` once, whatever becomes of connections meanwhile; `ends`: with the job that is done.

    Raises Refused, and ConnectionBroken after a minute without any answer.
    """
    failing_since_s: float | None = None
    while True:
        try:
            with http.open(path, headers={"Last-Event-ID": after} if after else {}, timeout=SILENT_S) as answer:
                if answer.status_code == httpx.codes.NO_CONTENT:
                    return
                for message in messages(answer.iter_bytes()):
                    failing_since_s, after = None, message.id or after
                    if (event := event_of(message)) is not None:
                        yield event
                        if ends and isinstance(event, StatusEvent) and event.done:
                            return
        except (ConnectionBroken, Refused) as error:
            away = isinstance(error, ConnectionBroken) or error.status in PASSING
            now_s = time.monotonic()
            failing_since_s = failing_since_s or now_s
            if not away or now_s - failing_since_s > PATIENCE_S:
                raise
        time.sleep(RETRY_S)
